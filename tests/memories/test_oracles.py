"""The memories against inference written another way, and against exact evidence."""

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from scipy.special import logsumexp

from mnemon import CategoricalMemory, Codes, GaussianMemory, KanervaMemory, MixtureMemory, TreeMemory
from mnemon.memories.records import Written
from tests.memories import oracle

SETTINGS = [  # shift, T, C, noise_var: T < C and T > C, noise far from 1
    (False, 3, 5, 0.3),
    (False, 7, 3, 2.5),
    (True, 2, 7, 0.3),
    (True, 8, 3, 2.5),
]


def random_state(memory, batch=(), seed=0):
    """A state with full covariances, nothing like the prior."""
    generator = torch.Generator().manual_seed(seed)
    prior = memory.prior(batch, dtype=torch.float64)
    like = {name: torch.randn(t.shape, dtype=t.dtype, generator=generator) for name, t in prior.tensors().items()}
    if "U_diag" in like:
        return prior.replace(R=like["R"], U_diag=like["U_diag"].exp())
    U = like["U_chol"] @ like["U_chol"].mT / 4 + 0.2 * torch.eye(memory.num_slots, dtype=torch.float64)
    moments = {"R": like["R"], "U": U}
    if "v_b" in like:
        moments |= {"mu_b": like["mu_b"], "v_b": like["v_b"].exp()}
    return type(prior).from_moments(**moments)


def clusters_of(state):
    """An unbatched state as the oracle's clusters."""
    fields = {"R": state.R, "U": state.U, "mu_b": state.mu_b, "v_b": state.v_b}
    parts = {name: tensor.numpy() for name, tensor in fields.items() if tensor is not None}
    if state.R.ndim == 2:
        parts = {k: v[None] for k, v in parts.items()}
    return [oracle.Cluster(**{k: v[h] for k, v in parts.items()}) for h in range(len(parts["R"]))]


def assert_same(state, clusters):
    view = (lambda x: x) if state.R.ndim == 3 else (lambda x: x[None])
    for h, cluster in enumerate(clusters):
        np.testing.assert_allclose(view(state.R)[h], cluster.R, atol=1e-9)
        np.testing.assert_allclose(np.kron(view(state.U)[h], np.eye(cluster.C)), cluster.S, atol=1e-9)
        if state.mu_b is not None:
            np.testing.assert_allclose(view(state.mu_b)[h], cluster.mu_b, atol=1e-9)
            np.testing.assert_allclose(float(view(state.v_b)[h]) * np.eye(cluster.C), cluster.S_b, atol=1e-9)


@pytest.mark.parametrize(("shift", "T", "C", "noise_var"), SETTINGS)
@pytest.mark.parametrize("given_prior", [False, True])
def test_gaussian_sweeps(shift, T, C, noise_var, given_prior):
    memory = GaussianMemory(C, 2, noise_var, 0.6, shift=shift, location_var=1.7, location_mean=0.2)
    codes = 2 * torch.randn(T, C, dtype=torch.float64, generator=torch.Generator().manual_seed(T))
    prior = random_state(memory, seed=5) if given_prior else None
    init = random_state(memory, seed=6)
    counts = torch.tensor([0.5, 2.0, *[1.0] * (T - 2)], dtype=torch.float64)
    written = memory.write(codes, prior=prior, init=init, weights=counts, num_steps=3, return_trace=True)
    clusters = clusters_of(init)
    base = clusters_of(memory.prior(dtype=torch.float64) if prior is None else prior)
    trace, _ = oracle.mixture_sweeps(codes.numpy(), clusters, base, noise_var, 3, counts.numpy())
    assert_same(written.state, clusters)
    np.testing.assert_allclose(written.trace, trace, rtol=1e-10)
    np.testing.assert_allclose(memory.terms(codes, written).joint, trace[-1], rtol=1e-10)


@pytest.mark.parametrize("noise_var", [0.3, 2.5])
def test_mixture_sweeps_on_stochastic_codes(noise_var):
    memory = MixtureMemory(3, 2, noise_var, 0.6, num_clusters=3, location_var=1.7)
    generator = torch.Generator().manual_seed(0)
    mean = 2 * torch.randn(8, 3, dtype=torch.float64, generator=generator)
    codes = Codes(mean, torch.rand(8, 3, dtype=torch.float64, generator=generator) + 0.1)
    init = random_state(memory, seed=6)
    written = memory.write(codes, init=init, num_steps=3, return_trace=True)
    clusters = clusters_of(init)
    base = clusters_of(memory.prior(dtype=torch.float64))
    variances = codes.std.square().numpy()
    trace, theta = oracle.mixture_sweeps(mean.numpy(), clusters, base, noise_var, 3, None, variances)
    assert_same(written.state, clusters)
    np.testing.assert_allclose(written.trace, trace, rtol=1e-10)
    np.testing.assert_allclose(written.address.theta, theta, atol=1e-10)
    terms = memory.terms(codes, written)
    np.testing.assert_allclose(terms.joint, trace[-1], rtol=1e-10)
    assert not terms.reconstruction.any()


def test_tree_is_a_mixture_per_segment():
    tree = TreeMemory(6, 2, 0.8, 0.6, num_segments=2, num_clusters=3, location_var=1.7)
    mixture = MixtureMemory(3, 2, 0.8, 0.6, num_clusters=3, location_var=1.7)
    codes = 2 * torch.randn(9, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    init = random_state(tree, seed=3)
    written = tree.write(codes, init=init, num_steps=4)
    parts = [mixture.write(codes[:, 3 * g : 3 * g + 3], init=init.segments[g], num_steps=4) for g in range(2)]
    for g in range(2):
        torch.testing.assert_close(written.state.R[g], parts[g].state.R)
    joint = sum(mixture.terms(codes[:, 3 * g : 3 * g + 3], parts[g]).joint for g in range(2))
    torch.testing.assert_close(tree.terms(codes, written).joint, joint)
    # counts of the most likely pairs of clusters, one item at a time
    expected = torch.zeros(9, dtype=torch.float64)
    for t in range(9):
        first, second = (
            mixture.address(parts[g].state, codes[t : t + 1, 3 * g : 3 * g + 3]).theta.argmax().item() for g in range(2)
        )
        expected[3 * first + second] += 1
    torch.testing.assert_close(written.state.counts, expected)


def test_tree_generates_only_sequences_that_occurred():
    tree = TreeMemory(4, 1, 1e-4, 1e-4, num_segments=2, num_clusters=2, location_var=100.0)
    codes = torch.tensor([[0.0, 0.0, 5.0, 5.0]] * 6 + [[9.0, 9.0, -5.0, -5.0]] * 2, dtype=torch.float64)
    codes = codes + 1e-3 * torch.randn(8, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    state = tree.write(codes, num_steps=10, generator=torch.Generator().manual_seed(1)).state
    drawn = tree.sample(state, 4000, generator=torch.Generator().manual_seed(2))
    low, high = drawn[:, 0] < 4.5, drawn[:, 2] > 0
    assert (low == high).all()  # never the first half of one with the second half of the other
    assert abs(low.double().mean() - 0.75) < 5 * (0.75 * 0.25 / 4000) ** 0.5


@pytest.mark.parametrize("noise_var", [0.3, 2.5])
def test_categorical_sweeps(noise_var):
    generator = torch.Generator().manual_seed(0)
    R0 = torch.randn(3, 4, dtype=torch.float64, generator=generator)
    memory = CategoricalMemory(4, 3, noise_var, 0.6, R0)
    codes = 2 * torch.randn(7, 4, dtype=torch.float64, generator=generator)
    counts = torch.rand(7, dtype=torch.float64, generator=generator) + 0.2
    init = random_state(memory, seed=2)
    written = memory.write(codes, init=init, weights=counts, num_steps=3, return_trace=True)
    R, U, trace = oracle.categorical_sweeps(
        codes.numpy(), init.R.numpy(), init.U.numpy(), R0.numpy(), 0.6 * np.eye(3), noise_var, 3, counts.numpy()
    )
    np.testing.assert_allclose(written.state.R, R, atol=1e-10)
    np.testing.assert_allclose(written.state.U, U, atol=1e-10)
    np.testing.assert_allclose(written.trace, trace, rtol=1e-10)


def test_bound_is_below_categorical_evidence():
    generator = torch.Generator().manual_seed(0)
    for seed in range(20):
        memory = CategoricalMemory(
            2, 2, 0.5 + seed / 10, 0.8, torch.randn(2, 2, dtype=torch.float64, generator=generator)
        )
        codes = torch.randn(5, 2, dtype=torch.float64, generator=generator)
        written = memory.write(codes, num_steps=30)
        evidence = oracle.categorical_evidence(codes.numpy(), memory.slot_mean.numpy(), 0.8, memory.noise_var)
        gap = evidence - memory.terms(codes, written).joint.item()
        assert -1e-9 < gap < 5


def scalar_evidence(z, mean, slot_var, noise_var, location=None):
    """log p(z_1..z_T) for K = C = 1 by quadrature over M (and b): w is integrated out by hand."""
    grid = np.linspace(-9, 9, 2001)
    M, step = mean + np.sqrt(slot_var) * grid, grid[1] - grid[0]
    log_p_M = stats.norm.logpdf(grid) + np.log(step)
    shifts, log_p_b = np.zeros(1), np.zeros(1)
    if location is not None:
        b_grid = np.linspace(-8, 8, 161)
        shifts, log_p_b = (
            location[0] + np.sqrt(location[1]) * b_grid,
            stats.norm.logpdf(b_grid) + np.log(b_grid[1] - b_grid[0]),
        )
    total = log_p_M[:, None] + log_p_b[None]
    for value in z:
        total = total + stats.norm.logpdf(value, shifts[None], np.sqrt(M**2 + noise_var)[:, None])
    return logsumexp(total)


def test_quadrature_agrees_with_scipy():
    def integrand(M):
        return stats.norm.pdf(M, 0.7, 0.8) * np.prod(stats.norm.pdf([0.4, -1.1], 0, np.sqrt(M**2 + 0.5)))

    value, _ = integrate.quad(integrand, -8, 9)
    assert scalar_evidence([0.4, -1.1], 0.7, 0.64, 0.5) == pytest.approx(np.log(value), abs=1e-8)


@pytest.mark.parametrize("noise_var", [0.05, 0.5, 5.0])
@pytest.mark.parametrize("kind", ["gaussian", "shift", "kanerva-online", "kanerva-batched", "mixture"])
def test_bound_is_below_evidence_by_quadrature(kind, noise_var):
    generator = torch.Generator().manual_seed(3)
    shared = {"slot_var": 0.8, "slot_mean": 0.7}
    memory = {
        "gaussian": GaussianMemory(1, 1, noise_var, **shared),
        "shift": GaussianMemory(1, 1, noise_var, **shared, shift=True, location_var=1.3, location_mean=-0.4),
        "kanerva-online": KanervaMemory(1, 1, noise_var, **shared),
        "kanerva-batched": KanervaMemory(1, 1, noise_var, **shared, online=False),
        "mixture": MixtureMemory(1, 1, noise_var, **shared, num_clusters=2, location_var=1.3, location_mean=-0.4),
    }[kind]
    for _ in range(3):
        codes = 1.5 * torch.randn(4, 1, dtype=torch.float64, generator=generator)
        written = memory.write(codes, num_steps=1 if kind == "kanerva-online" else 40, generator=generator)
        joint = memory.terms(codes, written).joint.item()
        z = codes[:, 0].numpy()
        location = (-0.4, 1.3) if kind in ("shift", "mixture") else None
        if kind == "mixture":  # clusters are independent given the assignments: sum over all 2^T of them
            logs = []
            for bits in range(2 ** len(z)):
                first = np.array([(bits >> t) & 1 for t in range(len(z))], dtype=bool)
                logs.append(sum(scalar_evidence(part, 0.7, 0.8, noise_var, location) for part in (z[first], z[~first])))
            evidence = logsumexp(logs) - len(z) * np.log(2)
        else:
            evidence = scalar_evidence(z, 0.7, 0.8, noise_var, location)
        assert joint <= evidence + 1e-7
        if not kind.startswith("kanerva"):  # its fixed address variance may cost anything
            assert joint > evidence - 8  # a bound that says nothing would pass the line above


def test_plug_in_density_is_a_gaussian_mixture():
    memory = MixtureMemory(4, 2, 0.5, num_clusters=3)
    state = random_state(memory, seed=1)
    codes = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    parts = [
        stats.multivariate_normal(
            state.mu_b[h].numpy(), (state.R[h].T @ state.R[h] + 0.5 * torch.eye(4, dtype=torch.float64)).numpy()
        ).logpdf(codes.numpy())
        for h in range(3)
    ]
    np.testing.assert_allclose(memory.log_density(state, codes), logsumexp(parts, axis=0) - np.log(3), rtol=1e-10)


def test_categorical_plug_in_density():
    memory = CategoricalMemory(2, 3, 0.5)
    state = random_state(memory, seed=1)
    codes = torch.randn(6, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    parts = [stats.multivariate_normal(state.R[k].numpy(), 0.5 * np.eye(2)).logpdf(codes.numpy()) for k in range(3)]
    np.testing.assert_allclose(memory.log_density(state, codes), logsumexp(parts, axis=0) - np.log(3), rtol=1e-10)


def test_kanerva_online_is_batched_for_fixed_addresses():
    """Rank-one updates with the addresses that the online write chose = one Bayesian regression on them."""
    generator = torch.Generator().manual_seed(0)
    memory = KanervaMemory(5, 3, 0.4, 0.7, torch.randn(3, 5, dtype=torch.float64, generator=generator))
    codes = torch.randn(2, 8, 5, dtype=torch.float64, generator=generator)
    online = memory.write(codes)
    batched = memory.update(online.address, codes)
    torch.testing.assert_close(online.state.R, batched.R, atol=1e-10, rtol=1e-10)
    torch.testing.assert_close(online.state.U, batched.U, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("start", ["random", "written"])
def test_kanerva_online_counts_its_items_once_wherever_addressing_starts(start):
    """`init` says where items are first addressed; what they are written into is the prior."""
    memory = KanervaMemory(5, 3, 0.4, 0.7)
    codes = torch.randn(2, 8, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    init = "random" if start == "random" else memory.write(codes, generator=torch.Generator().manual_seed(1)).state
    online = memory.write(codes, init=init, generator=torch.Generator().manual_seed(1))
    exact = memory.update(online.address, codes)
    torch.testing.assert_close(online.state.R, exact.R, atol=1e-10, rtol=1e-10)
    torch.testing.assert_close(online.state.U, exact.U, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("given", [torch.float64, torch.float32])
def test_kanerva_online_addresses_items_in_what_those_before_left(given):
    """The inverse that addresses need is updated from item to item: after 300 it is still that of the memory."""
    generator = torch.Generator().manual_seed(0)
    memory = KanervaMemory(6, 4, 0.1, 0.7, torch.randn(4, 6, dtype=given, generator=generator))
    codes = 3 * torch.randn(2, 300, 6, dtype=given, generator=generator)
    before = memory.write(codes[:, :-1])
    last = memory.write(codes).address.w[:, -1:]
    tolerance = 1e-10 if given == torch.float64 else 1e-4
    torch.testing.assert_close(last, memory.address(before.state, codes[:, -1:]).w, atol=tolerance, rtol=tolerance)


def test_kanerva_address_is_ridge_regression():
    memory = KanervaMemory(5, 3, 0.4)
    state = random_state(memory, seed=2)
    codes = torch.randn(4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    # least squares on the stacked system [R'; sigma I] w = [z; 0]
    stacked = np.vstack([state.R.numpy().T, np.sqrt(0.4) * np.eye(3)])
    expected = [np.linalg.lstsq(stacked, np.concatenate([z, np.zeros(3)]), rcond=None)[0] for z in codes.numpy()]
    np.testing.assert_allclose(memory.address(state, codes).w, expected, atol=1e-10)


def test_best_address_var_maximises_the_bound():
    memory = KanervaMemory(5, 3, 0.4, 0.7)
    codes = torch.randn(6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    written = memory.write(codes, generator=torch.Generator().manual_seed(0))
    best = memory.best_address_var(written.state).item()
    joints = [
        memory.replace(address_var=best * f).terms(codes, Written(written.state, written.address)).joint.item()
        for f in (0.9, 1.0, 1.1)
    ]
    assert joints[1] == max(joints)
    assert min(joints) < joints[1]


def test_the_mean_of_a_tree_goes_by_its_counts():
    tree = TreeMemory(6, 2, 0.5, num_segments=3, num_clusters=2)
    state = random_state(tree, seed=4)
    counts = torch.rand(8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    state = state.replace(counts=counts)
    z = tree.sample(state, 200_000, generator=torch.Generator().manual_seed(1))
    error = z.std(0) / 200_000**0.5
    assert ((tree._mean_code(state) - z.mean(0)).abs() < 5 * error).all()
