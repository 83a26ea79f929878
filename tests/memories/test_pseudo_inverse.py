"""The pseudo-inverse memory against NumPy's pinv, and what it cannot do said by name."""

import math

import numpy as np
import pytest
import torch

from mnemon import Codes, GaussianMemory, PseudoInverseMemory, State
from mnemon.memories import PseudoInverseState
from mnemon.memories.pseudo_inverse import pseudo_inverse
from mnemon.memories.records import Written
from mnemon.models import MemoryVAE
from mnemon.nets.codec import Codec

C, K, NOISE, SPREAD = 6, 4, 0.7, 0.2
LENGTHS = [2, 4, 9]
"""Fewer items than slots, as many, and more."""


def normal(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def make(**options):
    options = {"slot_mean": normal(K, C, seed=7), "address_var": SPREAD, "inverse_steps": None, **options}
    return PseudoInverseMemory(C, K, NOISE, **options)


def draws(seed=0):
    return torch.Generator().manual_seed(seed)


# -- the inverse -----------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (4, 4), (2, 3, 4, 6)])
@pytest.mark.parametrize("steps", [None, 40])
def test_the_inverse_is_that_of_numpy(shape, steps):
    A = normal(*shape)
    np.testing.assert_allclose(pseudo_inverse(A, steps).numpy(), np.linalg.pinv(A.numpy()), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_few_steps_damp_small_singular_values(scale):
    """Each is inverted up to the share (1 - alpha s^2)^(2^steps), whatever the scale."""
    left, right = torch.linalg.qr(normal(5, 3)).Q, torch.linalg.qr(normal(3, 3, seed=1)).Q
    s = scale * torch.tensor([1.0, 0.3, 0.01], dtype=torch.float64)
    share = 1 - (1 - s**2 / s.pow(4).sum().sqrt()) ** 2**7
    expected = right @ torch.diag(share / s) @ left.T
    torch.testing.assert_close(pseudo_inverse(left @ torch.diag(s) @ right.T, 7), expected, rtol=1e-9, atol=0)


def test_a_matrix_of_zeros():
    zero = torch.zeros(3, 2, dtype=torch.float64, requires_grad=True)
    inverse = pseudo_inverse(zero)
    assert not inverse.any()
    (inverse @ zero).sum().backward()
    assert zero.grad.isfinite().all()


# -- write, read, terms ----------------------------------------------------------------------------


@pytest.mark.parametrize("T", LENGTHS)
def test_write_and_recall_by_hand(T):
    memory, codes = make(), normal(T, C)
    Z, M0 = codes.numpy(), memory.slot_mean.numpy()
    M = np.linalg.pinv(Z @ np.linalg.pinv(M0)) @ Z
    written = memory.write(codes)
    np.testing.assert_allclose(written.state.R.numpy(), M, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(written.address.w.numpy(), Z @ np.linalg.pinv(M), rtol=1e-9, atol=1e-10)
    recalled = memory.recall(written.state, codes)
    np.testing.assert_allclose(recalled.numpy(), Z @ np.linalg.pinv(M) @ M, rtol=1e-9, atol=1e-10)
    if T <= K:  # room for every code
        torch.testing.assert_close(recalled, codes, rtol=1e-9, atol=1e-9)
    steps = make(inverse_steps=60).write(codes)
    torch.testing.assert_close(steps.state.R, written.state.R, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("T", LENGTHS)
def test_terms_by_hand(T):
    memory, codes = make(), normal(T, C)
    written = memory.write(codes)
    terms = memory.terms(codes, written)
    M, w, Z = written.state.R.numpy(), written.address.w.numpy(), codes.numpy()
    square = ((Z - w @ M) ** 2).sum(-1) + SPREAD * np.trace(M @ M.T)
    fit = -0.5 * square / NOISE - 0.5 * C * math.log(2 * math.pi * NOISE)
    kl = 0.5 * ((w**2).sum(-1) + K * (SPREAD - 1 - math.log(SPREAD)))
    np.testing.assert_allclose(terms.reconstruction.numpy(), fit, rtol=1e-10)
    np.testing.assert_allclose(terms.address_kl.numpy(), kl, rtol=1e-10)
    np.testing.assert_allclose(terms.conditional.numpy(), (fit - kl).sum(), rtol=1e-10)
    with pytest.raises(ValueError, match="bounds only log p"):
        terms.joint
    bound = memory.log_likelihood(written.state, codes)
    np.testing.assert_allclose(bound.value.numpy(), fit - kl, rtol=1e-10)
    assert (memory.log_density(written.state, codes) >= bound.value).all()


def test_density_by_hand():
    memory, codes = make(), normal(3, C)
    state = memory.write(normal(9, C, seed=3)).state
    covariance = state.R.T @ state.R + NOISE * torch.eye(C, dtype=torch.float64)
    exact = torch.distributions.MultivariateNormal(torch.zeros(C, dtype=torch.float64), covariance).log_prob(codes)
    torch.testing.assert_close(memory.log_density(state, codes), exact)


def test_codes_with_variance():
    memory, mean = make(), normal(5, C)
    codes = Codes(mean, torch.full_like(mean, 0.4))
    written = memory.write(codes)
    torch.testing.assert_close(written.state.R, memory.write(mean).state.R)
    terms, plain = memory.terms(codes, written), memory.terms(mean, written)
    # KL(q(z) || N(M'w, s2 I)): the misfit and the spread of q(z), less its entropy
    spread = -0.5 * C * 0.16 / NOISE + 0.5 * C * (1 + math.log(2 * math.pi * 0.16))
    torch.testing.assert_close(-terms.code_kl, plain.reconstruction + spread)
    assert not terms.reconstruction.any()


@pytest.mark.parametrize("T", LENGTHS)
@pytest.mark.parametrize("steps", [None, 7])
def test_batch_equals_loop(T, steps):
    memory, codes = make(inverse_steps=steps), normal(2, 3, T, C)
    mask = torch.ones(2, 3, T, dtype=torch.bool)
    mask[0, 1, 1:] = False
    batched = memory.write(codes, mask=mask)
    terms = memory.terms(codes, batched).conditional
    recalled = memory.recall(batched.state, codes)
    assert batched.state.batch_shape == (2, 3)
    assert memory.sample(batched.state, 5).shape == (2, 3, 5, C)
    for i in range(2):
        for j in range(3):
            alone = memory.write(codes[i, j], mask=mask[i, j])
            torch.testing.assert_close(batched.state.R[i, j], alone.state.R, rtol=1e-9, atol=1e-10)
            torch.testing.assert_close(terms[i, j], memory.terms(codes[i, j], alone).conditional)
            torch.testing.assert_close(recalled[i, j], memory.recall(alone.state, codes[i, j]))


@pytest.mark.parametrize("steps", [None, 7])
@pytest.mark.parametrize("T", [5, 9])
def test_masked_items_are_absent_and_weights_are_multiplicities(T, steps):
    memory, codes = make(inverse_steps=steps), normal(T, C)
    mask = torch.ones(T, dtype=torch.bool)
    mask[[1, 3]] = False
    spoiled = torch.where(mask[:, None], codes, torch.nan)
    left, right = memory.write(spoiled, mask=mask), memory.write(codes[mask])
    torch.testing.assert_close(left.state.R, right.state.R, rtol=1e-9, atol=1e-10)
    conditional = memory.terms(spoiled, left).conditional
    torch.testing.assert_close(conditional, memory.terms(codes[mask], right).conditional)
    weights = torch.ones(T, dtype=torch.float64)
    weights[2] = 2
    twice = torch.cat((codes, codes[2:3]))
    left, right = memory.write(codes, weights=weights), memory.write(twice)
    torch.testing.assert_close(left.state.R, right.state.R, rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(memory.terms(codes, left).conditional, memory.terms(twice, right).conditional)


def test_update_of_given_addresses_is_least_squares():
    memory, codes = make(), normal(9, C)
    address = memory.write(codes).address
    expected = np.linalg.lstsq(address.w.numpy(), codes.numpy(), rcond=None)[0]
    np.testing.assert_allclose(memory.update(address, codes).R.numpy(), expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("T", [2, 7])
@pytest.mark.parametrize("steps", [None, 7])
def test_gradients(T, steps):
    """Of what was written, and of the learned slots, through both fits and the read."""

    def score(codes, slots, spread):
        memory = make(slot_mean=slots, inverse_steps=steps, address_var=spread)
        mask = torch.tensor([True] * (T - 1) + [False])
        return memory.terms(codes, memory.write(codes, mask=mask if T > 2 else None)).conditional

    inputs = [normal(T, C), normal(K, C, seed=7), torch.tensor(0.2, dtype=torch.float64)]
    assert torch.autograd.gradcheck(score, [tensor.requires_grad_() for tensor in inputs])


def test_mapped_equals_batched():
    memory, codes = make(inverse_steps=7), normal(3, 5, C)
    mapped = torch.vmap(lambda z: memory.write(z).state.R)(codes)
    torch.testing.assert_close(mapped, memory.write(codes).state.R)


def test_compiled_equals_eager():
    memory, codes = make(inverse_steps=7), normal(3, 5, C)

    def bound(codes):
        return memory.terms(codes, memory.write(codes)).conditional

    compiled = torch.compile(bound, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(codes), bound(codes))


def test_inside_a_memory_vae():
    """Any latent memory fits there; this one with a conditional bound only."""
    codec = Codec.convolutional((1, 22, 22), C, architecture="improved", num_filters=4)
    model = MemoryVAE(codec, make(inverse_steps=7), write_gradient="through").double()
    x = (normal(2, 5, 1, 22, 22) > 0).double()
    terms = model.terms(x, generator=draws())
    assert terms.memory_kl is None
    terms.conditional.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    state = model.write(x)
    assert model.read(state, x).shape == model.read(state, x, generator=draws()).shape == x.shape
    assert model.sample(state, 3).shape == (2, 3, 1, 22, 22)
    assert model.log_likelihood(state, x, num_samples=4).value.shape == (2, 5)


def test_save_and_load(tmp_path):
    memory = make()
    state = memory.write(normal(2, 5, C)).state
    state.save(tmp_path / "memory.safetensors")
    loaded = State.load(tmp_path / "memory.safetensors")
    assert type(loaded) is PseudoInverseState
    assert torch.equal(*(memory.sample(s, 3, generator=draws()) for s in (state, loaded)))


# -- what is drawn ---------------------------------------------------------------------------------


def test_samples_have_the_spread_of_the_memory():
    memory, n = make(), 40_000
    state = memory.write(normal(5, C)).state
    z = memory.sample(state, n, generator=draws())
    spread = state.R.T @ state.R + NOISE * torch.eye(C, dtype=torch.float64)
    error = (spread.diagonal()[:, None] * spread.diagonal() + spread**2).div(n).sqrt()
    assert ((z.T @ z / n - spread).abs() < 5 * error).all()
    assert torch.linalg.matrix_rank(memory.sample(state, 50, noise=False)) == K


@pytest.mark.parametrize("shared", [False, True])
def test_drawn_terms_have_the_mean_of_the_closed_form(shared):
    memory = make(shared_noise=shared)
    codes, n = normal(5, C), 20_000
    written = memory.write(codes)
    many = Written(written.state.expand((n,)), written.address.expand((n,)))
    wide = codes.expand(n, 5, C)
    drawn = memory.terms(wide, many, draw=memory.draw(many.state), generator=draws()).reconstruction
    exact = memory.terms(codes, written).reconstruction
    assert ((drawn.mean(0) - exact).abs() < 5 * drawn.std(0) / n**0.5).all()


def test_noise_is_independent_unless_it_is_shared():
    for shared in (False, True):
        memory = make(shared_noise=shared)
        address = memory.write(normal(2, 5, C)).address
        noise = (memory.draw_weights(address, generator=draws()) - address.w) / SPREAD**0.5
        distinct = len(set(noise.flatten().mul(1e6).round().tolist()))
        assert distinct == (2 if shared else noise.numel())  # one per episode
        assert memory.is_bound is not shared


def test_shared_noise_is_no_bound():
    """Its number may lie above the exact log density of the same memory; that of independent noise never does."""
    codes, found = normal(9, C), {}
    R = torch.tensor([[1.0, -1.0, 1.0, -1.0]], dtype=torch.float64).T * 30 * normal(1, C)  # the noise cancels in M'1
    state = PseudoInverseState(R)
    for shared in (False, True):
        memory = make(shared_noise=shared)
        terms = memory.terms(codes, Written(state))
        found[shared] = terms.reconstruction - terms.address_kl - memory.log_density(state, codes)
    assert (found[False] <= 0).all()
    assert (found[True] > 0).all()


def test_an_importance_weighted_bound_tends_to_the_exact_density():
    memory, n = make(input_var=0.05), 20_000
    codes = normal(5, C)
    state = memory.write(codes, generator=draws()).state
    drawn = memory.explain(state, codes.expand(n, 5, C), generator=draws(1))
    log_fit = -0.5 * ((codes - drawn.mean) ** 2 / drawn.variance + (2 * math.pi * drawn.variance).log()).sum(-1)
    log_weight = log_fit + drawn.log_ratio
    ratio = (log_weight - memory.log_density(state, codes)).exp()
    assert ((ratio.mean(0) - 1).abs() < 5 * ratio.std(0) / n**0.5 + 1e-3).all()
    assert (log_weight.mean(0) < memory.log_density(state, codes)).all()


def test_input_noise_is_drawn_for_every_element():
    memory, codes = make(input_var=0.25), normal(2, 5, C)
    one, same, other = (memory.write(codes, generator=draws(seed)) for seed in (0, 0, 1))
    assert torch.equal(one.state.R, same.state.R)
    assert not torch.isclose(one.state.R, other.state.R).any()
    noise = memory._with_noise(normal(200, 100, C), draws()) - normal(200, 100, C)
    assert float(noise.std()) == pytest.approx(0.5, rel=0.02)
    assert len(noise.unique()) == noise.numel()


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prior": PseudoInverseState(normal(K, C))}, "write: a pseudo-inverse memory cannot be written on into"),
        ({"init": "random"}, "init: .* one fit of all items, without sweeps; leave init out"),
        ({"num_steps": 3}, "leave num_steps out"),
        ({"tol": 0.1}, "leave tol out"),
        ({"return_trace": True}, "leave return_trace out"),
        ({"chunk_size": 2}, "leave chunk_size out"),
        ({"num_clusters": 2}, "num_clusters: PseudoInverseMemory has no clusters"),
    ],
)
def test_what_it_cannot_do(options, message):
    with pytest.raises(ValueError, match=message):
        make().write(normal(5, C), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"slot_var": 0.5}, "slot_var: .* no prior variance, got 0.5; leave it out"),
        ({"address_var": 0.0}, "address_var: expected a positive"),
        ({"input_var": -1.0}, "input_var: expected a variance of at least 0"),
        ({"inverse_steps": 0}, "inverse_steps: expected a whole number of at least 1"),
        ({"slot_mean": normal(C, K)}, "slot_mean: expected a number or a tensor"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        make(**options)


def test_more_refusals():
    codes = normal(5, C)
    with pytest.raises(ValueError, match=r"slot_mean as a tensor \(4, 6\) of full rank, got 0.0"):
        make(slot_mean=0.0).write(codes)
    written = make().write(codes)
    with pytest.raises(ValueError, match="update: a pseudo-inverse memory cannot be written on into"):
        make().update(written.address, codes, prior=written.state)
    shared = make(shared_noise=True)
    for call in (shared.explain, shared.log_likelihood):
        with pytest.raises(ValueError, match="no density, so this would be no bound"):
            call(written.state, codes)
    gaussian = GaussianMemory(C, K).write(codes).state
    with pytest.raises(ValueError, match="expected a PseudoInverseState, got a GaussianState"):
        make().recall(gaussian, codes)
    with pytest.raises(ValueError, match="memory of another size"):
        make().recall(PseudoInverseState(normal(K + 1, C)), codes)
