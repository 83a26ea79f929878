"""What MemoryVAE does beyond the protocol: estimated terms, writing in chunks, the regulariser's draws."""

import pytest
import torch

from mnemon import Codes, GaussianMemory, KanervaMemory, MixtureMemory, TreeMemory
from mnemon.memories.records import Written
from mnemon.models import MemoryVAE, StochasticRegulariser
from tests.memories.cases import cases, episode
from tests.models.test_conformance import C, codec, images, seeded

N = 20_000


@cases()
def test_estimated_terms_average_to_the_closed_form(case):
    mean = episode(5 if case.name == "gaussian-span" else 6)
    codes = Codes(mean, torch.full_like(mean, 0.3))
    written = case.memory.write(codes, num_steps=case.num_steps, generator=seeded())
    closed = case.memory.terms(codes, written)
    many = Written(*(part.map(lambda t: t.expand(N, *t.shape)) for part in (written.state, written.address)))
    draw = case.memory.draw(many.state, generator=seeded(1))
    terms = case.memory.terms(codes.expand((N,)), many, draw=draw, generator=seeded(2))
    error = terms.code_kl.std(0) / N**0.5
    assert ((terms.code_kl.mean(0) - closed.code_kl).abs() < 5 * error).all()
    torch.testing.assert_close(terms.address_kl[0], closed.address_kl)
    torch.testing.assert_close(terms.memory_kl[0], closed.memory_kl)


@cases()
def test_a_draw_is_a_state_without_uncertainty(case):
    state = case.memory.write(episode(9), num_steps=case.num_steps, generator=seeded()).state
    draw = case.memory.draw(state.expand((N,)), generator=seeded(1))
    error = draw.R.std(0) / N**0.5
    assert ((draw.R.mean(0) - state.R).abs() < 6 * error).all()
    assert (draw.U == 0).all()
    gap = (draw.R - state.R).movedim(0, -1)
    variance = gap.square().mean(-1)
    torch.testing.assert_close(
        variance, state.U.diagonal(dim1=-2, dim2=-1)[..., None].expand(variance.shape), rtol=0.1, atol=1e-3
    )


def test_estimated_terms_share_one_memory_per_episode():
    """With one item many times and hardly any noise in its address, every copy meets the same draw."""
    memory = KanervaMemory(C, 3, 0.5, slot_mean=torch.randn(3, C, dtype=torch.float64), address_var=1e-12)
    model = MemoryVAE(codec(), memory, sampled_terms=True)
    x = images(1).expand(4, 1, 22, 24)
    terms = model.terms(x, write_mask=torch.ones(4, dtype=torch.bool), generator=seeded())
    torch.testing.assert_close(terms.code_kl, terms.code_kl[:1].expand(4), rtol=1e-4, atol=1e-4)
    other = model.terms(x, write_mask=torch.ones(4, dtype=torch.bool), generator=seeded(1))
    assert (terms.code_kl[0] - other.code_kl[0]).abs() > 1e-2


def vae(memory, **options):
    return MemoryVAE(codec(), memory, **options)


MEMORIES = {
    "gaussian": GaussianMemory(C, 3, 0.5, shift=True),
    "mixture": MixtureMemory(C, 2, 0.5, num_clusters=2),
    "kanerva": KanervaMemory(C, 3, 0.5),
}


@pytest.mark.parametrize("name", MEMORIES)
@pytest.mark.parametrize("sampled", [False, True])
def test_one_chunk_is_the_whole_episode(name, sampled):
    x, mask = images(2, 6), torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    whole, chunks = (vae(MEMORIES[name], sampled_terms=sampled, online_chunks=n) for n in (None, 1))
    for given in (None, mask):
        left, right = (model.terms(x, mask=given, generator=seeded()) for model in (whole, chunks))
        torch.testing.assert_close(left.joint, right.joint)
        torch.testing.assert_close(left.memory_kl, right.memory_kl)


def test_chunks_are_written_one_on_another_and_scored_with_their_own_addresses():
    memory, x = MEMORIES["gaussian"], images(7)
    model = vae(memory, online_chunks=3, num_steps=4)
    terms = model.terms(x, generator=seeded())
    generator, codes = seeded(), model.codec.encode(x)
    pieces, state = [], None
    for part in (slice(0, 3), slice(3, 5), slice(5, 7)):  # lengths differ by one at most
        some = Codes(codes.mean[part], codes.std[part])
        written = memory.write(some, prior=state, num_steps=4, generator=generator)
        pieces.append((some, written.address))
        state = written.state
    code_kl = torch.cat([memory.terms(some, Written(state, address)).code_kl for some, address in pieces])
    torch.testing.assert_close(terms.code_kl, code_kl)
    torch.testing.assert_close(terms.memory_kl, state.kl(memory.prior(dtype=torch.float64)))
    anew = memory.terms(codes, Written(state))  # addressing anew is the best that can be done with this state
    stale = (terms.code_kl + terms.address_kl).sum()
    assert stale > (anew.code_kl + anew.address_kl).sum()


def test_an_online_memory_does_not_notice_chunks():
    x = images(2, 6)
    memory = KanervaMemory(C, 3, 0.5, slot_mean=torch.randn(3, C, dtype=torch.float64))
    left, right = (vae(memory, online_chunks=n).terms(x, generator=seeded()) for n in (None, 3))
    torch.testing.assert_close(left.joint, right.joint)


@pytest.mark.parametrize("name", MEMORIES)
def test_a_chunk_may_be_absent_from_an_episode(name):
    """The second episode ends before the last chunk begins."""
    x, mask = images(2, 6), torch.tensor([[True] * 6, [True] * 3 + [False] * 3])
    model = vae(MEMORIES[name], online_chunks=2, num_steps=1)
    spoiled = torch.where(mask[..., None, None, None], x, torch.nan)
    terms = model.terms(spoiled, mask=mask, generator=seeded())
    alone = vae(MEMORIES[name], num_steps=1).terms(x[:, :3], generator=seeded())  # the same draws for the first chunk
    torch.testing.assert_close(terms.memory_kl[1], alone.memory_kl[1])
    torch.testing.assert_close(terms.code_kl[1, :3], alone.code_kl[1])
    assert not torch.isclose(terms.memory_kl[0], alone.memory_kl[0])


def test_online_chunks_refuse_what_they_cannot_do():
    model = vae(MEMORIES["gaussian"], online_chunks=3)
    with pytest.raises(ValueError, match="no write_mask with online_chunks"):
        model.terms(images(6), write_mask=torch.ones(6, dtype=torch.bool))
    with pytest.raises(ValueError, match="at most one chunk per item, got 3 for 2"):
        model.terms(images(2))
    with pytest.raises(ValueError, match="online_chunks"):
        vae(MEMORIES["gaussian"], online_chunks=0)


def test_the_regulariser_draws_a_beta():
    regulariser = StochasticRegulariser(gamma=0.0, epsilon=0.0, delta=1.0, alpha=2.0, beta=5.0)
    codes = Codes(torch.ones(30, 1000, 1, dtype=torch.float64), torch.ones(30, 1000, 1, dtype=torch.float64))
    t = regulariser(codes, torch.zeros_like(codes.mean), seeded()).mean
    assert torch.equal(t, regulariser(codes, torch.zeros_like(codes.mean), seeded()).mean)
    assert t.unique().numel() == 30_000  # one per frame
    assert abs(t.mean() - 2 / 7) < 5 * t.std() / 30_000**0.5
    assert abs(t.var() - 10 / (49 * 8)) < 0.001


def test_a_regulariser_that_is_always_on_evaluates_at_its_mean():
    regulariser = StochasticRegulariser(gamma=0.5, epsilon=0.1, delta=0.2, always=True)
    codes, expected = Codes(torch.ones(4, 3), torch.ones(4, 3)), torch.zeros(4, 3)
    torch.testing.assert_close(regulariser.mean(codes, expected).mean, torch.full((4, 3), 0.5))
    many = Codes(torch.ones(20_000, 1), torch.ones(20_000, 1))
    drawn = regulariser(many, torch.zeros(20_000, 1), torch.Generator().manual_seed(0)).mean
    assert abs(float(drawn.mean()) - 0.5) < 4 * float(drawn.std()) / 20_000**0.5
    assert 0.4 <= float(drawn.min()) <= float(drawn.max()) <= 0.6


def test_at_convergence_the_fixed_gradient_is_the_whole_one():
    """Envelope theorem: where sweeps have converged, the bound does not change with what they left."""
    gradients = {}
    for kind in ("fixed", "through"):
        for steps in (2, 600):
            model = MemoryVAE(codec(), GaussianMemory(C, 2, 0.5), num_steps=steps, write_gradient=kind)
            model.terms(images(5), generator=seeded()).joint.backward()
            gradients[kind, steps] = torch.cat([p.grad.flatten() for p in model.codec.encoder.parameters()])
    early, late = (
        (gradients["fixed", n] - gradients["through", n]).norm() / gradients["through", n].norm() for n in (2, 600)
    )
    assert late < 1e-5
    assert early > 100 * late
    with pytest.raises(ValueError, match="expected fixed or through"):
        MemoryVAE(codec(), GaussianMemory(C, 2), write_gradient="none")


def test_a_read_may_trust_its_cue():
    memory = MixtureMemory(C, 2, 0.5, num_clusters=2)
    distrusting, trusting = vae(memory), vae(memory, cue_weight=0.25)
    trusting.load_state_dict(distrusting.state_dict())
    state, cue = trusting.write(images(6), generator=seeded()), images(4)
    expected = memory.recall(state, trusting.codec.encode(cue))
    moved = 0.25 * trusting.codec.encode(cue).mean + 0.75 * expected
    torch.testing.assert_close(trusting.read(state, cue), trusting.codec.image(moved))
    torch.testing.assert_close(distrusting.read(state, cue), distrusting.codec.image(expected))
    with pytest.raises(ValueError, match="cue_weight: expected at least 0 and below 1"):
        vae(memory, cue_weight=1.0)


@pytest.mark.parametrize("memory", [MixtureMemory(C, 2, 0.5, num_clusters=5), TreeMemory(C, 2, 0.5, num_clusters=5)])
def test_few_items_make_few_clusters(memory):
    model = vae(memory)
    assert model.write(images(2, 3), generator=seeded()).R.shape[-3] == 3
    mask = torch.tensor([True, True, False]).expand(2, 3)
    assert model.write(images(2, 3), mask=mask, generator=seeded()).R.shape[-3] == 2
    assert model.write(images(7), generator=seeded()).R.shape[-3] == 5
    assert model.write(images(3), num_clusters=2, generator=seeded()).R.shape[-3] == 2
    assert model.terms(images(3), generator=seeded()).joint.isfinite()
    assert model.terms(images(7), write_mask=torch.arange(7) < 2, generator=seeded()).joint.isfinite()
    assert vae(memory, online_chunks=3).terms(images(7), generator=seeded()).joint.isfinite()
