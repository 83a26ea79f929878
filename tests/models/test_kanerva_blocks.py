"""Kanerva++ with allocated blocks: its bound against sums over all places, what it depends on, and what it refuses."""

import math

import numpy as np
import pytest
import torch

from mnemon.distributions.gaussian import DiagonalGaussian
from mnemon.memories.blocks import BlockState
from mnemon.models import VAE, KanervaBlocks
from mnemon.nets.codec import Codec
from mnemon.nets.resnet_tsm import tsm_codec
from mnemon.registry import build_model
from mnemon.training.config import ModelConfig
from tests.models.separation import check_cues_are_alone
from tests.models.test_kanerva_pp import SHAPE, images, seeded
from tests.models.toys import learned

BLOCKS = 6


def model(code_dim=4, likelihood="bernoulli", *, log_std=None, **options):
    """With `log_std`, that of fine codes."""
    torch.manual_seed(0)
    codec = tsm_codec(SHAPE, code_dim, likelihood=likelihood, num_filters=4, hidden=6)
    options = {"map_shape": (2, 9, 8), "read_size": 3, **options}
    made = KanervaBlocks(codec, **options).double()
    made.terms(images(4, 6, seed=9))  # running statistics
    if log_std is not None:
        made.fine_log_std.detach().fill_(log_std)
    return made.eval()


def costs(made, state, x):
    """KL(q(z | x, y) || p(z | M, y)) of every place y by itself, in order: blocks, taken or not, and none.

    Shapes: -> (Q, BLOCKS + 1)
    """
    fine, coarse = made._codes(x)
    blocks = made.grid.contents(state)
    found = []
    for place in range(BLOCKS + 1):
        held = place < min(BLOCKS, int(state.written))
        q = fine if held else coarse
        mean = blocks[place][: q.mean.shape[-1]] if held else torch.zeros_like(q.mean[0])
        p = torch.distributions.Normal(mean, 0.02 + made.fine_log_std.exp() if held else 1.0)
        found.append(torch.distributions.kl_divergence(torch.distributions.Normal(q.mean, q.std), p).sum(-1))
    return torch.stack(found, -1)


@pytest.mark.parametrize("number", [1, 4, 6, 8])
def test_keys_against_a_sum_over_all_places(number):
    made, written = model(log_std=0.2), images(number)
    state = made.write(written)
    x = torch.cat((written[-2:], images(3, seed=1)))
    with torch.no_grad():
        each, found = costs(made, state, x), made._find(state, *made._codes(x))
        best = (-each).softmax(-1)  # p(y) is the same for all
        code_kl = (best * each).sum(-1)
        address_kl = (best * (best.log() + math.log(BLOCKS + 1))).sum(-1)
    torch.testing.assert_close(found.code_kl, code_kl)
    torch.testing.assert_close(found.address_kl, address_kl)
    torch.testing.assert_close(code_kl + address_kl, math.log(BLOCKS + 1) - (-each).logsumexp(-1))
    other = torch.rand(50, *best.shape, dtype=torch.float64, generator=seeded()).softmax(
        -1
    )  # no other q(y) does better
    assert ((other * (each + other.log() + math.log(BLOCKS + 1))).sum(-1) >= code_kl + address_kl).all()


def evidence(made, state, x):
    """log p(x | memory) for codes of one number: a sum over all places, and one over a grid of codes."""
    priors = made._code_priors(state)
    z = torch.linspace(-12, 12, 601, dtype=torch.float64)
    log_prior = DiagonalGaussian(priors.mean[:, None], priors.std[:, None]).log_prob(z[:, None])
    log_prior = log_prior.logsumexp(0) - math.log(BLOCKS + 1)
    log_pixels = made.codec.log_prob(z[:, None].expand(len(x), -1, 1), x[:, None].expand(-1, len(z), *SHAPE))
    return torch.logsumexp(log_prior + log_pixels, -1) + (z[1] - z[0]).log()


@pytest.mark.parametrize(("likelihood", "number"), [("bernoulli", 2), ("gaussian", 7)])
def test_importance_weights_are_unbiased(likelihood, number):
    made, x = model(1, likelihood), images(number)
    made.codec.head.gain.detach().fill_(0.3)
    made.codec.head.offset.detach()[1:] = 0.5
    made.fine_head.weight.detach().mul_(0.3)  # near each other: a finite variance
    made.fine_log_std.detach().fill_(0.2)
    state = made.write(x)
    scored = torch.cat((x[-1:], images(1, seed=3)))
    with torch.no_grad():
        exact = evidence(made, state, scored)
        log_weights = made.log_weights(state, scored, num_samples=1500, generator=seeded())
    ratios = (log_weights - exact).exp()
    error = ratios.std(0) / len(ratios) ** 0.5
    assert (error < 0.1).all()
    assert ((ratios.mean(0) - 1).abs() < 4 * error).all()
    assert (log_weights.mean(0) < exact).all()


def test_a_frame_that_is_held_costs_a_place_and_one_that_is_not_the_rest():
    """The limit of sharp codes: log(places) for the block, log(places / free places) without one."""
    made, x = model(log_std=-8.0), images(4)
    made.codec.head.offset.detach()[:4] = 4  # coarse codes are dear
    made.fine_head.weight.detach().mul_(100)  # and fine ones far apart
    terms, state = made.terms_and_state(x)
    torch.testing.assert_close(terms.address_kl, torch.full((4,), math.log(BLOCKS + 1), dtype=torch.float64))
    torch.testing.assert_close(terms.code_kl, torch.zeros(4, dtype=torch.float64), atol=1e-6, rtol=0)
    unseen = images(3, seed=5)
    found = made._find(state, *made._codes(unseen))
    expected = torch.full((3,), math.log((BLOCKS + 1) / (BLOCKS + 1 - 4)), dtype=torch.float64)
    torch.testing.assert_close(found.address_kl, expected)
    codes = made.codec.encode(unseen)
    to_prior = DiagonalGaussian(codes.mean, codes.std).kl(
        DiagonalGaussian(torch.zeros_like(codes.mean), torch.ones_like(codes.std))
    )
    torch.testing.assert_close(found.code_kl, to_prior)


def test_with_nothing_written_it_is_the_vae():
    made, x = model(), images(4)
    found = made._find(made.prior_state(), *made._codes(x))
    expected = VAE(made.codec).terms(x)
    torch.testing.assert_close(found.code_kl, expected.code_kl)
    torch.testing.assert_close(found.address_kl, torch.zeros_like(expected.code_kl), atol=1e-12, rtol=0)
    blank = made.codec.image(torch.zeros(1, 4, dtype=torch.float64))
    torch.testing.assert_close(made.read(made.prior_state(), x), blank.expand(4, *SHAPE))


def test_the_order_of_writing_does_not_matter():
    made, x = model(log_std=0.0), images(5)
    order = torch.tensor([3, 0, 4, 1, 2])
    left, right = made.write(x), made.write(x[order])
    assert not torch.equal(left.memory, right.memory)
    torch.testing.assert_close(made.read(left, x), made.read(right, x))
    one, two = (made._find(state, *made._codes(x)) for state in (left, right))
    for part in ("code_kl", "address_kl"):
        torch.testing.assert_close(getattr(one, part), getattr(two, part))
    torch.testing.assert_close(one.log_probs[:, order], two.log_probs[:, :5])


def test_a_cue_does_not_depend_on_the_others():
    made, x = model(log_std=0.0), images(5)
    check_cues_are_alone(made, made.write(x), images(6, seed=2), num_samples=300, generator=seeded)


def test_one_memory_for_many_cues():
    made, x = model(), images(5)
    state, cues = made.write(x), images(2, 3, 4, seed=2)
    torch.testing.assert_close(made.read(state, cues)[1, 2], made.read(state, cues[1, 2]))
    assert made.log_weights(state, cues, num_samples=2).shape == (2, 2, 3, 4)
    several = made.write(images(3, 5))
    assert made.read(several, x[:2]).shape == (3, 2, *SHAPE)
    torch.testing.assert_close(made.read(several, x[:2])[1], made.read(several[1], x[:2]))


def test_writing_on():
    made, x = model(), images(3, 5)
    two = made.write(x[:, 2:], prior=made.write(x[:, :2]))
    torch.testing.assert_close(two.memory, made.write(x).memory)
    assert torch.equal(two.written, torch.full((3,), 5.0, dtype=torch.float64))
    weights = torch.tensor([1.0, 0.0, 3.0, 1.0, 0.5], dtype=torch.float64).expand(3, 5)
    torch.testing.assert_close(made.write(x, weights=weights).memory, made.write(x[:, [0, 2, 3, 4]]).memory)


def test_the_oldest_frames_give_way():
    """Six blocks, eight frames: the first two are as good as never written, and fall back on the coarse code."""
    made, x = model(log_std=-5.0), images(8)
    made.fine_head.weight.detach().mul_(10)
    state = made.write(x)
    nothing = made._find(state, *made._codes(x)).log_probs[:, -1].exp()
    assert (nothing[:2] > 0.999).all()
    assert (nothing[2:] < 0.5).all()


def test_reading_gives_what_stands_in_the_block():
    made, x = model(log_std=-3.0), images(5)
    state = made.write(x)
    fine, _ = made._codes(x)
    torch.testing.assert_close(made.read(state, x), made.codec.image(fine.mean))
    drawn = made._recall_codes(state, x, seeded())
    assert ((drawn - fine.mean).abs() < 6 * fine.std).all()
    foreign = made.write(images(5, seed=7))
    assert not torch.allclose(made.read(foreign, x), made.read(state, x))


def test_samples_are_codes_of_the_blocks_that_random_keys_name():
    made, x = model(log_std=-4.0), images(3)
    state = made.write(x)
    fine, _ = made._codes(x)
    named = made.grid.named(torch.randn(200, 3, dtype=torch.float64, generator=seeded(3)))
    codes = made._sample_codes(state, 200, seeded(3))
    for place in range(3):
        assert ((codes[named == place] - fine.mean[place]).abs() < 6 * fine.std[place]).all()
    rest = codes[named >= 3]
    assert 0.8 < rest.std() < 1.2  # N(0, I)


def test_training_learns_to_use_the_memory():
    made = model().train()
    x = images(2, 6)
    values = learned(made, x, steps=25, rate=1e-2)
    assert np.mean(values[-3:]) > np.mean(values[:3]) + 10
    made.eval()
    with torch.no_grad():
        state = made.write(x)
        own, other = (
            made.log_likelihood(memory, x, generator=seeded()).value.mean()
            for memory in (state, state.map(lambda tensor: tensor.roll(1, 0)))
        )
    assert own > other


def test_refusals():
    made, x = model(), images(4)
    small = BlockState(torch.zeros(2, 9, 7, dtype=torch.float64), torch.zeros((), dtype=torch.float64))
    for use in (made.read, made.log_weights, lambda state, x: made.write(x, prior=state)):
        with pytest.raises(ValueError, match=r"memory \(\*B, 2, 9, 8\), got \(2, 9, 7\)"):
            use(small, x)
    with pytest.raises(ValueError, match="got CountState"):
        made.sample(VAE(made.codec).write(x))
    with pytest.raises(ValueError, match=r"use \.conditional"):
        made.terms(x).joint
    with pytest.raises(ValueError, match="larger blocks"):
        model(code_dim=19)
    with pytest.raises(ValueError, match="with a head"):
        KanervaBlocks(Codec.convolutional((1, 28, 28), 4, head=False))
    options = {"kind": "kanerva-pp", "image_shape": SHAPE, "block_write": True}
    with pytest.raises(ValueError, match="got both"):
        build_model(ModelConfig(**options, dense_readout=True))
    with pytest.raises(ValueError, match="one block"):
        build_model(ModelConfig(**options, num_reads=2))


def test_sixty_four_blocks_in_the_published_map():
    made = build_model(
        ModelConfig(kind="kanerva-pp", image_shape=(1, 28, 28), num_filters=4, code_dim=192, block_write=True)
    )
    assert isinstance(made, KanervaBlocks)
    assert (made.grid.map_shape, made.grid.num_blocks, made.grid.block_floats) == ((3, 64, 64), 64, 192)


def test_what_is_not_finite_is_not_written():
    made, x = model(), images(3)
    x[1] = torch.nan
    for call in (made.write, made.terms):
        with pytest.raises(ValueError, match="codes: expected finite values"):
            call(x)
    mask = torch.tensor([True, False, True])
    assert made.write(x, mask=mask).memory.isfinite().all()
