"""Kanerva++: its bound against quadrature, what its write depends on, and what it refuses."""

import math

import numpy as np
import pytest
import torch

from mnemon.distributions.gaussian import DiagonalGaussian
from mnemon.memories.spatial import SpatialState
from mnemon.models import VAE, KanervaPlusPlus
from mnemon.nets.codec import Codec
from mnemon.nets.resnet_tsm import tsm_codec
from mnemon.registry import build_model
from mnemon.training.config import ModelConfig
from tests.models.separation import check_cues_are_alone, check_unwritten_frames_stay_out
from tests.models.toys import learned

SHAPE = (1, 12, 10)


def model(code_dim=4, num_reads=2, likelihood="bernoulli", **options):
    torch.manual_seed(0)
    codec = tsm_codec(SHAPE, code_dim, likelihood=likelihood, num_filters=4, hidden=6)
    options = {"map_shape": (2, 8, 8), "read_size": 5, **options}
    made = KanervaPlusPlus(codec, num_reads=num_reads, num_filters=4, hidden=6, **options).double()
    made.terms(images(4, 6, seed=9))  # running statistics
    return made.eval()


def images(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(*shape, *SHAPE, dtype=torch.float64, generator=generator) < 0.3).double()


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def evidence(made, state, x, points):
    """log p(x | memory) for one read and codes of one number, by sums over grids: of keys at the middles of intervals
    of equal probability (reads have kinks, at which rules of high order gain nothing), and of codes."""
    nodes = torch.special.ndtri((torch.arange(points, dtype=torch.float64) + 0.5) / points)
    prior = made._code_prior(state, torch.cartesian_prod(nodes, nodes, nodes)[:, None, :])
    z = torch.linspace(-15, 15, 501, dtype=torch.float64)
    log_prior = DiagonalGaussian(prior.mean[:, None], prior.std[:, None]).log_prob(z[:, None])
    log_prior = log_prior.logsumexp(0) - 3 * math.log(points)
    log_pixels = made.codec.log_prob(z[:, None].expand(len(x), -1, 1), x[:, None].expand(-1, len(z), *SHAPE))
    return torch.logsumexp(log_prior + log_pixels, -1) + (z[1] - z[0]).log()


@pytest.mark.parametrize("likelihood", ["bernoulli", "gaussian"])
def test_importance_weights_are_unbiased(likelihood):
    made, x = model(1, 1, likelihood), images(5)
    for net, log_std in ((made.codec.head, 0.7), (made.key_net, 0.3)):
        half = len(net.gain) // 2
        net.gain.detach()[:half] = 0.05  # near the prior, so that weights have a finite variance
        net.gain.detach()[half:] = 1  # deviations other than 1, which depend on the image
        net.offset.detach()[:half] = 0
        net.offset.detach()[half:] = log_std
    state = made.write(x)
    with torch.no_grad():
        exact, coarse = (evidence(made, state, x[:2], points) for points in (20, 14))
        log_weights = made.log_weights(state, x[:2], num_samples=4000, generator=seeded())
    assert (exact - coarse).abs().max() < 1e-2
    ratios = (log_weights - exact).exp()
    error = ratios.std(0) / len(ratios) ** 0.5
    assert (error < 0.1).all()
    assert ((ratios.mean(0) - 1).abs() < 4 * error + 1e-2).all()
    bounds = [made.log_likelihood(state, x[:2], num_samples=n, generator=seeded(1)).value for n in (1, 10, 500)]
    elbo = log_weights.mean(0)
    assert (elbo < exact).all()
    assert ((exact - bounds[-1]).abs() < (exact - elbo).abs()).all()


def test_terms_and_weights_agree_on_episodes_of_one():
    """There both encode the frame alone: the mean log-weight is the bound's mean."""
    made, x = model(), images(3, 1)
    state = made.write(x)
    with torch.no_grad():
        draws = made.log_weights(state, x, num_samples=1500, generator=seeded())[..., 0]
        many = made.terms(x.expand(500, *x.shape), generator=seeded(1))
    assert many.memory_kl is None
    error = (draws.var(0) / len(draws) + many.conditional.var(0) / len(many.conditional)).sqrt()
    assert ((draws.mean(0) - many.conditional.mean(0)).abs() < 4 * error).all()


def test_a_cue_does_not_depend_on_the_others():
    made, x = model(), images(5)
    check_cues_are_alone(made, made.write(x), x, num_samples=800, generator=seeded)


def test_order_and_neighbours_move_the_memory_a_little():
    """What the shift costs: another order moves the map by less than other frames do."""
    made, x = model(), images(6)
    memory = made.write(x).memory
    shuffled = made.write(x[torch.tensor([3, 0, 5, 1, 4, 2])]).memory
    other = made.write(images(6, seed=4)).memory
    assert 0 < (shuffled - memory).norm() < (other - memory).norm()
    alone = made.map_net(made.codec.encodings(x).mean(0)[None])[0]
    assert (alone - memory).abs().max() > 0


def test_weights_count_in_the_mean():
    made, x = model(), images(4)
    torch.testing.assert_close(made.write(x, weights=torch.full((4,), 2.0)).memory, made.write(x).memory)
    weights = torch.tensor([1.0, 0.0, 3.0, 1.0])
    without = x[weights > 0]
    encodings = made.codec.encoder.encode_episodes(without)
    pooled = (encodings * weights[weights > 0][:, None]).sum(0) / weights.sum()
    torch.testing.assert_close(made.write(x, weights=weights).memory, made.map_net(pooled[None])[0])
    with pytest.raises(ValueError, match="weights of shape"):
        made.write(x, weights=torch.ones(3))


def test_what_is_not_written_does_not_reach_the_memory():
    """Not through the shift either: held-out frames are scored against a memory that never saw them."""
    check_unwritten_frames_stay_out(model(), images(6), images(6, seed=5), of=lambda state: state.memory)


def test_reading_goes_through_the_memory():
    made, x = model(), images(5)
    one, two = made.write(x), made.write(images(5, seed=7))
    assert not torch.allclose(made.read(one, x), made.read(two, x))
    step = made.read(one, x)
    torch.testing.assert_close(made.read(one, x, steps=2), made.read(one, step))


def test_perturbed_keys_stay_near():
    made, x = model(), images(2, 3)
    state = made.write(x)
    around = made.perturbed(state, x, 4, generator=seeded())
    assert around.shape == (2, 3, 4, *SHAPE)
    still = made.perturbed(state, x, 2, std=0.0)
    torch.testing.assert_close(still, made.read(state, x)[:, :, None].expand_as(still))
    near, far = (
        (made.perturbed(state, x, 8, std=std, generator=seeded()) - still[:, :, :1]).norm() for std in (0.05, 0.8)
    )
    assert 0 < near < far


def test_one_memory_for_many_cues():
    made, x = model(), images(5)
    state = made.write(x)
    cues = images(2, 3, 4, seed=2)
    shared = made.read(state, cues)
    torch.testing.assert_close(shared[1, 2], made.read(state, cues[1, 2]))
    assert made.log_weights(state, cues, num_samples=2).shape == (2, 2, 3, 4)


def test_training_learns():
    """A few steps on one batch raise the bound."""
    values = learned(model().train(), images(3, 6), steps=60, rate=3e-3)
    assert np.mean(values[-5:]) > np.mean(values[:5]) + 10


def test_fresh_codes_tell_images_apart_and_fresh_keys_read_one_window():
    """What training starts from: otherwise it finds codes and memory not worth their noise."""
    torch.manual_seed(0)
    made = build_model(ModelConfig(kind="kanerva-pp", image_shape=(1, 28, 28), num_filters=8, code_dim=16, hidden=32))
    x = (torch.rand(8, 8, 1, 28, 28, generator=seeded()) < torch.rand(8, 8, 1, 1, 1, generator=seeded(1))).float()
    with torch.no_grad():
        keys, codes = made._posteriors(made._encode_episodes(x, None))
    assert torch.equal(codes.std, torch.ones_like(codes.std))
    assert 0.4 < codes.mean.flatten(0, 1).std(0).mean() < 2  # of deviations: some nats, not none
    assert keys.mean.flatten(0, 1).std(0).max() < 0.3
    torch.testing.assert_close(keys.std, torch.full_like(keys.std, 0.05))
    first = torch.tensor([1.0, 0.0, 0.0]).expand(2, 3)
    torch.testing.assert_close(keys.mean.mean((0, 1)), first, atol=1e-3, rtol=0)


def test_dense_readout_sees_the_whole_map():
    made, x = model(dense_readout=True), images(5)
    state = made.write(x)
    keys = torch.zeros(1, 2, 3, dtype=torch.float64)
    before = made._code_prior(state, keys).mean
    for place in ((0, 0), (4, 4), (7, 7)):  # with windows of scale 0, only the middle would count
        memory = state.memory.clone()
        memory[:, place[0], place[1]] += 1
        assert (made._code_prior(SpatialState(memory), keys).mean - before).abs().max() > 1e-6
    cues = images(2, 3, seed=2)
    torch.testing.assert_close(made.read(state, cues)[1], made.read(state, cues[1]))


def test_refusals():
    made, x = model(), images(4)
    state = made.write(x)
    with pytest.raises(ValueError, match="one pass from the mean encoding"):
        made.write(x, prior=state)
    with pytest.raises(ValueError, match=r"use \.conditional"):
        made.terms(x).joint
    with pytest.raises(ValueError, match="no memory before the first write"):
        made.prior_state()
    small = SpatialState(torch.zeros(2, 8, 7, dtype=torch.float64))
    for use in (made.read, made.log_weights, made.perturbed):
        with pytest.raises(ValueError, match=r"memory \(\*B, 2, 8, 8\), got \(2, 8, 7\)"):
            use(small, x)
    with pytest.raises(ValueError, match="another model"):
        made.sample(small)
    with pytest.raises(ValueError, match="got CountState"):
        made.sample(VAE(made.codec).write(x))
    with pytest.raises(ValueError, match="tsm_codec"):
        KanervaPlusPlus(Codec.convolutional((1, 28, 28), 4))
    with pytest.raises(ValueError, match="map_shape"):
        model(map_shape=(2, 8))
    with pytest.raises(ValueError, match="nets of its own"):
        build_model(ModelConfig(kind="kanerva-pp", image_shape=SHAPE, architecture="mlp"))


def test_the_published_size():
    """A map of 3 x 64 x 64, two reads, dense nets of 512."""
    made = build_model(ModelConfig(kind="kanerva-pp", image_shape=(1, 28, 28), num_filters=64))
    assert isinstance(made, KanervaPlusPlus)
    assert (made.num_reads, made.map_shape) == (2, (3, 64, 64))
    assert made.codec.encoding_dim == 512
    with torch.no_grad():
        state = made.eval().write(torch.rand(2, 3, 1, 28, 28))
    assert state.memory.shape == (2, 3, 64, 64)
