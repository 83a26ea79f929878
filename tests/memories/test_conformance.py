"""One suite for every latent memory."""

import pytest
import torch

from mnemon import Codes, State
from mnemon.memories.records import Written
from tests.memories.cases import C, assert_close, cases, episode, num_items, start

BATCHES = [(), (2,), (2, 3)]


@cases()
@pytest.mark.parametrize("batch", BATCHES)
def test_shapes(case, batch):
    T = num_items(case)
    codes = episode(*batch, T)
    written = case.memory.write(codes, num_steps=case.num_steps, return_trace=True)
    assert written.state.batch_shape == batch
    assert written.trace.shape == (case.num_steps, *batch)
    terms = case.memory.terms(codes, written)
    assert terms.reconstruction.shape == terms.code_kl.shape == terms.address_kl.shape == (*batch, T)
    assert terms.memory_kl.shape == terms.joint.shape == terms.per_frame.shape == batch
    assert case.memory.recall(written.state, codes).shape == codes.shape
    assert case.memory.sample(written.state, 5).shape == (*batch, 5, C)
    assert case.memory.log_likelihood(written.state, codes).value.shape == (*batch, T)
    assert case.memory.log_density(written.state, codes).shape == (*batch, T)
    assert case.memory.prior(batch, dtype=codes.dtype).batch_shape == batch


@cases()
def test_batch_equals_loop(case):
    codes = episode(2, 3, num_items(case))
    mask = torch.ones(codes.shape[:-1], dtype=torch.bool)
    mask[0, 1, 2:4] = False
    init = start(case, codes)
    batched = case.memory.write(codes, init=init, mask=mask, num_steps=case.num_steps, return_trace=True)
    for i in range(2):
        for j in range(3):
            alone = case.memory.write(
                codes[i, j], init=init[i, j], mask=mask[i, j], num_steps=case.num_steps, return_trace=True
            )
            assert_close(batched.state[i, j], alone.state)
            assert_close(batched.address[i, j], alone.address)
            torch.testing.assert_close(batched.trace[:, i, j], alone.trace, atol=1e-10, rtol=1e-10)


@cases(lambda case: case.rises)
def test_batch_equals_loop_when_stopped_by_tolerance(case):
    codes = torch.stack([episode(num_items(case), seed=s) * scale for s, scale in ((0, 1.0), (1, 0.1), (2, 2.0))])
    init = start(case, codes)
    batched = case.memory.write(codes, init=init, num_steps=200, tol=1e-3)
    lengths = set()
    for i in range(3):
        alone = case.memory.write(codes[i], init=init[i], num_steps=200, tol=1e-3, return_trace=True)
        lengths.add(len(alone.trace))
        assert len(alone.trace) < 200
        gains = alone.trace.diff(dim=0) / codes.shape[-2]
        assert gains[-1] < 1e-3
        assert (gains[:-1] >= 1e-3).all()
        assert_close(batched.state[i], alone.state)
    assert case.name == "categorical" or len(lengths) > 1  # else this test would show nothing


@cases(lambda case: not case.ordered)
def test_order_of_items_does_not_matter(case):
    codes = episode(num_items(case))
    order = torch.randperm(len(codes), generator=torch.Generator().manual_seed(3))
    init = start(case, codes)
    left = case.memory.write(codes, init=init, num_steps=case.num_steps)
    right = case.memory.write(codes[order], init=init, num_steps=case.num_steps)
    assert_close(left.state, right.state)


@cases()
def test_masked_item_is_absent_item(case):
    codes = episode(num_items(case))
    mask = torch.ones(len(codes), dtype=torch.bool)
    mask[[1, 3]] = False
    spoiled = torch.where(mask[:, None], codes, torch.nan)
    init = start(case, codes)
    left = case.memory.write(spoiled, init=init, mask=mask, num_steps=case.num_steps)
    right = case.memory.write(codes[mask], init=init, num_steps=case.num_steps)
    assert_close(left.state, right.state)
    joint = case.memory.terms(spoiled, left).joint
    torch.testing.assert_close(joint, case.memory.terms(codes[mask], right).joint, atol=1e-9, rtol=1e-10)


@cases(lambda case: not case.ordered)
def test_weight_of_two_is_the_item_twice(case):
    codes = episode(num_items(case))
    weights = torch.ones(len(codes), dtype=torch.float64)
    weights[2] = 2
    twice = torch.cat((codes, codes[2:3]))
    init = start(case, codes)
    left = case.memory.write(codes, init=init, weights=weights, num_steps=case.num_steps, return_trace=True)
    right = case.memory.write(twice, init=init, num_steps=case.num_steps, return_trace=True)
    assert_close(left.state, right.state)
    torch.testing.assert_close(left.trace, right.trace, atol=1e-9, rtol=1e-10)
    per_frame = case.memory.terms(codes, left).per_frame
    torch.testing.assert_close(per_frame, case.memory.terms(twice, right).per_frame, atol=1e-10, rtol=1e-10)


def test_online_kanerva_weight_is_an_item_of_less_noise():
    """A count of n on one item is n observations at the same address: noise_var / n."""
    from mnemon import KanervaMemory

    memory = KanervaMemory(C, 3, 0.7, 0.5)
    codes = episode(1)
    init = memory.write(codes, num_steps=1, generator=torch.Generator().manual_seed(0)).state
    address = memory.address(init, codes)
    weighted = memory.write(codes, init=init, prior=init, weights=torch.tensor([3.0], dtype=torch.float64))
    thrice = memory.update(type(address)(address.w.expand(3, -1)), codes.expand(3, -1), prior=init)
    assert_close(weighted.state, thrice)


@cases()
def test_rotating_codes_rotates_the_memory(case):
    from dataclasses import replace

    memory = replace(case.memory, slot_mean=0.0)
    if hasattr(memory, "location_mean"):
        memory = replace(memory, location_mean=0.0)
    generator = torch.Generator().manual_seed(5)
    segments = getattr(memory, "num_segments", 1)
    width = C // segments
    rotation = torch.linalg.qr(torch.randn(segments, width, width, dtype=torch.float64, generator=generator))[0]

    def rotate_code(z):
        return (z.unflatten(-1, (segments, 1, width)) @ rotation).flatten(-3)

    def rotate_state(state):
        by_segment = rotation[:, None] if segments > 1 else rotation[0]
        changes = {"R": state.R @ by_segment}
        if getattr(state, "mu_b", None) is not None:
            changes["mu_b"] = (state.mu_b[..., None, :] @ by_segment)[..., 0, :]
        return state.replace(**changes)

    codes = episode(num_items(case))
    init = memory.write(codes, num_steps=1, generator=generator).state
    left = memory.write(codes, init=init, num_steps=case.num_steps).state
    right = memory.write(rotate_code(codes), init=rotate_state(init), num_steps=case.num_steps).state
    assert_close(rotate_state(left), right, 1e-9)


@cases(lambda case: case.chunks)
def test_chunks_give_the_same_state(case):
    codes = episode(2, 9)
    weights = torch.rand(2, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(2)) + 0.1
    init = start(case, codes)
    options = {"init": init, "weights": weights, "num_steps": case.num_steps, "return_trace": True}
    whole = case.memory.write(codes, **options)
    pieces = case.memory.write(codes, **options, chunk_size=4)
    assert_close(whole.state, pieces.state)
    torch.testing.assert_close(whole.trace, pieces.trace, atol=1e-9, rtol=1e-10)
    assert pieces.address is None
    # without a kept address the codes are addressed anew under the final state, which can only help
    if case.rises:
        assert (case.memory.terms(codes, pieces).joint >= case.memory.terms(codes, whole).joint - 1e-9).all()


@cases()
def test_trace_is_the_bound_that_terms_gives(case):
    codes = Codes(episode(2, num_items(case)), torch.full((2, num_items(case), C), 0.4, dtype=torch.float64))
    for given in (codes, codes.mean):
        written = case.memory.write(given, num_steps=case.num_steps, return_trace=True)
        joint = case.memory.terms(given, written).joint
        torch.testing.assert_close(joint, written.trace[-1], atol=1e-9, rtol=1e-11)


@cases(lambda case: case.name != "kanerva-online")
def test_update_of_address_is_one_sweep(case):
    codes = episode(2, num_items(case))
    state = start(case, codes)
    swept = case.memory.write(codes, init=state, num_steps=1)
    assert_close(case.memory.update(case.memory.address(state, codes), codes), swept.state)
    assert_close(case.memory.address(state, codes), swept.address)


@cases()
def test_log_likelihood_is_the_conditional_bound_of_readdressed_codes(case):
    codes = episode(2, num_items(case))
    state = start(case, codes)
    terms = case.memory.terms(codes, Written(state))
    bound = case.memory.log_likelihood(state, codes)
    assert bound.kind == "elbo"
    torch.testing.assert_close(terms.reconstruction - terms.address_kl, bound.value, atol=1e-10, rtol=1e-10)
    # the bound integrates the memory's uncertainty, so it cannot exceed the plug-in density by Jensen's gap alone;
    # with a certain memory the two are the same number
    if case.rises and hasattr(state, "U_chol"):
        certain = state.replace(U_chol=state.U_chol * 1e-9)
        if getattr(state, "v_b", None) is not None:
            certain = certain.replace(v_b=state.v_b * 1e-18)
        density = case.memory.log_density(certain, codes)
        torch.testing.assert_close(case.memory.log_likelihood(certain, codes).value, density, atol=1e-7, rtol=1e-7)


@cases()
def test_writing_on(case):
    """A given prior replaces p(memory): the KL is measured from it, and inference starts there."""
    codes = episode(num_items(case))
    first = case.memory.write(codes, num_steps=case.num_steps).state
    more = episode(num_items(case), seed=9)
    written = case.memory.write(more, prior=first, num_steps=case.num_steps, return_trace=True)
    terms = case.memory.terms(more, written)
    torch.testing.assert_close(terms.joint, written.trace[-1], atol=1e-9, rtol=1e-11)
    at_prior = case.memory.terms(more, Written(first, None, first))
    torch.testing.assert_close(at_prior.memory_kl, torch.zeros((), dtype=torch.float64), atol=1e-10, rtol=0)
    if case.rises:
        assert terms.joint > at_prior.joint


@cases(lambda case: case.name.startswith("kanerva") or case.name == "gaussian")
def test_bayes_in_two_parts_is_bayes_at_once(case):
    codes = episode(8)
    address = case.memory.address(start(case, codes), codes)
    take = {name: tensor for name, tensor in address.tensors().items() if name in ("w", "mu_w")}
    halves = [address.replace(**{n: t[part] for n, t in take.items()}) for part in (slice(0, 3), slice(3, 8))]
    at_once = case.memory.update(address, codes)
    first = case.memory.update(halves[0], codes[:3])
    assert_close(case.memory.update(halves[1], codes[3:], prior=first), at_once)


@cases()
def test_save_and_load_give_equal_samples(case, tmp_path):
    codes = episode(2, num_items(case))
    state = case.memory.write(codes, num_steps=case.num_steps).state
    path = tmp_path / "memory.safetensors"
    state.save(path)
    loaded = State.load(path)
    assert type(loaded) is type(state)
    samples = [case.memory.sample(s, 3, generator=torch.Generator().manual_seed(4)) for s in (state, loaded)]
    assert torch.equal(*samples)


@cases()
def test_samples_have_the_mean_and_spread_of_the_memory(case):
    codes = episode(num_items(case))
    state = case.memory.write(codes, num_steps=case.num_steps).state
    n = 40_000
    z = case.memory.sample(state, n, generator=torch.Generator().manual_seed(0))
    # by hand: mixture over clusters h of N(mu_b, R'R + (tr U + v_b + s2) I), all w and M integrated out
    if case.name == "tree":
        counts = state.counts / state.counts.sum()
        share = counts.reshape(3, 3)
        weights = torch.stack((share.sum(1), share.sum(0)))
        mean = torch.cat([weights[g] @ state.mu_b[g] for g in range(2)])
    elif case.name == "categorical":
        mean = state.R.mean(0)
    else:
        mean = state.mu_b if getattr(state, "mu_b", None) is not None else torch.zeros(C, dtype=torch.float64)
        mean = mean.mean(0) if mean.ndim > 1 else mean
    error = z.std(0) / n**0.5
    assert ((z.mean(0) - mean).abs() < 5 * error).all()
    if case.name.startswith(("gaussian", "kanerva")):
        U = state.U
        spread = state.R.T @ state.R + torch.eye(C) * (U.trace() + case.memory.noise_var)
        if state.mu_b is not None:
            spread = spread + torch.eye(C) * state.v_b
        assert ((torch.cov(z.T) - spread).abs() < 6 * spread.diagonal().max() * (3 / n) ** 0.5).all()


@cases()
def test_noise_off_draws_less(case):
    codes = episode(num_items(case))
    state = case.memory.write(codes, num_steps=case.num_steps).state
    spread = [
        case.memory.sample(state, 4000, noise=flag, generator=torch.Generator().manual_seed(1)).var(0).sum()
        for flag in (True, False)
    ]
    noise = case.memory.noise_var * C
    assert spread[0] - spread[1] == pytest.approx(noise, rel=0.5)


@cases()
def test_recall_completes_what_is_absent(case):
    codes = episode(num_items(case))
    state = case.memory.write(codes, num_steps=1 if case.ordered else 20).state
    observed = torch.ones(C, dtype=torch.bool)
    observed[-2:] = False
    cue = torch.where(observed, codes, torch.nan)
    recalled = case.memory.recall(state, cue, observed=observed, steps=50)
    assert recalled.isfinite().all()
    # more reads move less: the filling-in converges
    reads = {n: case.memory.recall(state, cue, observed=observed, steps=n) for n in (1, 2, 40, 41)}
    moved = [(reads[n + 1] - reads[n]).abs().max() for n in (1, 40)]
    assert moved[1] <= moved[0] + 1e-12
    fixed = case.memory.recall(state, torch.where(observed, codes, recalled))
    torch.testing.assert_close(fixed, recalled, atol=5e-2, rtol=5e-2)


@cases()
def test_float32_is_close_to_float64(case):
    codes = episode(2, num_items(case)) + 30.0  # far from the origin: what centring is for
    state = start(case, codes)
    double = case.memory.write(codes, init=state, num_steps=case.num_steps, return_trace=True)
    single = case.memory.write(codes.float(), init=state.to(torch.float32), num_steps=case.num_steps, return_trace=True)
    assert single.state.R.dtype == torch.float32
    torch.testing.assert_close(single.trace.double(), double.trace, atol=1e-3, rtol=1e-3)


@cases()
def test_explanations_are_importance_samples_of_the_predictive_density(case):
    """E[p(y)/q(y) N(z; mean, variance)] is log p(z | q(memory)) exactly; with a certain memory, the plug-in density."""
    codes = episode(4)
    state = case.memory.write(episode(num_items(case)), num_steps=case.num_steps).state
    shrink = {"U_chol": 1e-8, "U_diag": 1e-16, "v_b": 1e-16}
    state = state.replace(**{n: t * shrink[n] for n, t in state.tensors().items() if n in shrink})
    n = 20_000
    cues = codes.expand(n, 4, C)
    drawn = case.memory.explain(state.expand((n,)), cues, generator=torch.Generator().manual_seed(0))
    variance = drawn.variance.expand(drawn.mean.shape)
    density = -0.5 * ((cues - drawn.mean).square() / variance + (2 * torch.pi * variance).log()).sum(-1)
    weights = (density + drawn.log_ratio).double()
    estimate = weights.logsumexp(0) - torch.tensor(float(n)).log()
    relative = (weights - estimate).exp()
    error = relative.std(0) / n**0.5
    assert (error < 0.2).all()
    assert ((estimate - case.memory.log_density(state, codes)).abs() < 6 * error + 1e-6).all()


@cases()
def test_one_state_for_a_batch_of_cues_and_the_other_way_round(case):
    codes = episode(3, num_items(case))
    state = case.memory.write(codes[0], num_steps=1).state
    address = case.memory.address(state, codes)
    assert address.batch_shape[0] == 3
    assert case.memory.update(address, codes).batch_shape == (3,)
    torch.testing.assert_close(case.memory.recall(state, codes)[1], case.memory.recall(state, codes[1]))
    states = case.memory.write(codes, num_steps=1).state
    observed = torch.arange(C) < 3
    left = case.memory.recall(states, codes[0], observed=observed)
    torch.testing.assert_close(left[2], case.memory.recall(states[2], codes[0], observed=observed))


@cases()
def test_a_start_without_batch_serves_a_batch(case):
    codes = episode(3, num_items(case))
    init = start(case, codes[0])
    written = case.memory.write(codes, init=init, num_steps=1)
    assert written.state.batch_shape == (3,)
    alone = case.memory.write(codes[2], init=init, num_steps=1)
    assert_close(written.state[2], alone.state)
    assert_close(written.address[2], alone.address)


@cases(lambda case: case.chunks)
def test_terms_after_chunks_go_by_chunks(case):
    codes = episode(2, 9)
    init = start(case, codes)
    written = case.memory.write(codes, init=init, num_steps=2, chunk_size=4)
    whole = case.memory.terms(codes, written.replace(chunk_size=None))
    assert_close(case.memory.terms(codes, written), whole)
