"""Pixel likelihoods against their definitions, summed or integrated over all pixel values."""

import math

import pytest
import torch
from scipy import stats

from mnemon.distributions.pixels import (
    BernoulliPixels,
    GaussianPixels,
    LinkedLogisticPixels,
    LogisticMixturePixels,
    bits_per_dim,
)

KINDS = [BernoulliPixels(), GaussianPixels(), LogisticMixturePixels(3, 16), LinkedLogisticPixels(3, 16)]


def outputs(likelihood, channels=2, size=(3, 4), seed=0):
    generator = torch.Generator().manual_seed(seed)
    shape = (5, likelihood.num_outputs(channels), *size)
    return torch.randn(shape, dtype=torch.float64, generator=generator)


@pytest.mark.parametrize("likelihood", KINDS, ids=lambda k: type(k).__name__)
def test_shapes_and_ranges(likelihood):
    out = outputs(likelihood)
    x = likelihood.sample(out, torch.Generator().manual_seed(1))
    assert x.shape == likelihood.mean(out).shape == (5, 2, 3, 4)
    assert likelihood.log_prob(out, x).shape == (5,)
    for image in (x, likelihood.mean(out)):
        assert ((image >= 0) & (image <= 1)).all()


def test_bernoulli_probabilities():
    out = outputs(BernoulliPixels(), 1, (1, 1))
    p = out.sigmoid().flatten()
    for value, expected in ((0.0, 1 - p), (1.0, p)):
        x = torch.full((5, 1, 1, 1), value, dtype=torch.float64)
        torch.testing.assert_close(BernoulliPixels().log_prob(out, x).exp(), expected)


def test_gaussian_density():
    likelihood = GaussianPixels()
    out = outputs(likelihood, 1, (1, 1))
    x = torch.rand(5, 1, 1, 1, dtype=torch.float64)
    mean, scale = out[:, 0].sigmoid().flatten(), 0.005 + 0.5 * out[:, 1].sigmoid().flatten()
    expected = stats.norm(mean.numpy(), scale.numpy()).logpdf(x.flatten().numpy())
    torch.testing.assert_close(likelihood.log_prob(out, x), torch.from_numpy(expected))


@pytest.mark.parametrize("scale", [1.0, 6.0])
def test_logistic_mixture_sums_to_one_over_all_levels(scale):
    likelihood = LogisticMixturePixels(3, 16)
    out = scale * outputs(likelihood, 1, (1, 1))
    levels = torch.arange(16, dtype=torch.float64) / 15
    total = sum(likelihood.log_prob(out, level.expand(5, 1, 1, 1)).exp() for level in levels)
    torch.testing.assert_close(total, torch.ones(5, dtype=torch.float64))


def test_logistic_mixture_samples_follow_its_probabilities():
    likelihood = LogisticMixturePixels(2, 4)
    out = outputs(likelihood, 1, (1, 1))[:1].expand(40_000, -1, 1, 1)
    x = likelihood.sample(out, torch.Generator().manual_seed(0)).flatten()
    for level in range(4):
        p = likelihood.log_prob(out[:1], torch.full((1, 1, 1, 1), level / 3, dtype=torch.float64)).exp().item()
        share = (x - level / 3).abs().lt(1e-6).double().mean().item()
        assert share == pytest.approx(p, abs=5 * math.sqrt(p * (1 - p) / 40_000) + 1e-4)


def colours(levels, channels=3):
    """Every pixel there is. Shapes: -> (levels^channels, channels, 1, 1)"""
    steps = torch.arange(levels, dtype=torch.float64) / (levels - 1)
    return torch.cartesian_prod(*[steps] * channels)[..., None, None]


@pytest.mark.parametrize("scale", [1.0, 5.0])
def test_linked_channels_sum_to_one_over_all_colours(scale):
    likelihood = LinkedLogisticPixels(2, 6)
    out = scale * outputs(likelihood, 3, (1, 1))
    total = likelihood.log_prob(out[:, None], colours(6)).exp().sum(-1)
    torch.testing.assert_close(total, torch.ones(5, dtype=torch.float64))


def test_linked_channels_by_scipy():
    """One component, three channels: logistics whose means are moved by the channels before."""
    likelihood = LinkedLogisticPixels(1, 8)
    out = outputs(likelihood, 3, (1, 1))[:1]
    x = torch.tensor([3.0, 5.0, 2.0], dtype=torch.float64) / 7
    _, *means = (0.5 + 0.5 * out[0, :4, 0, 0]).tolist()
    scales = (out[0, 4:7, 0, 0].exp() / 2).tolist()
    a10, a20, a21 = out[0, 7:, 0, 0].tanh().tolist()
    r, g, _ = (x - 0.5).tolist()
    means = [means[0], means[1] + a10 * r, means[2] + a20 * r + a21 * g]
    expected = 0.0
    for value, mean, scale in zip(x.tolist(), means, scales, strict=True):
        between = stats.logistic(mean, scale).cdf([value - 0.5 / 7, value + 0.5 / 7])
        expected += math.log(between[1] - between[0])
    assert likelihood.log_prob(out, x[None, :, None, None]).item() == pytest.approx(expected)


def test_one_channel_is_linked_to_none():
    out = outputs(LogisticMixturePixels(3, 16), 1)
    x = LogisticMixturePixels(3, 16).sample(out, torch.Generator().manual_seed(1))
    for ask in ("log_prob", "mean"):
        linked, alone = (getattr(kind(3, 16), ask) for kind in (LinkedLogisticPixels, LogisticMixturePixels))
        arguments = (out, x) if ask == "log_prob" else (out,)
        torch.testing.assert_close(linked(*arguments), alone(*arguments))


def test_the_mean_of_linked_channels_is_that_of_many_samples():
    """Narrow components in the middle of the range, where nothing is cut off."""
    likelihood = LinkedLogisticPixels(2, 256)
    out = 0.3 * outputs(likelihood, 3, (1, 1), seed=2)[:1]
    out[:, 8:14] = -4.0  # log scales
    out[:, 14:] = 2.0  # moves
    drawn = likelihood.sample(out.expand(20_000, -1, 1, 1), torch.Generator().manual_seed(0))
    torch.testing.assert_close(likelihood.mean(out)[0], drawn.mean(0), atol=0.005, rtol=0.0)


def test_samples_of_linked_channels_follow_their_probabilities():
    likelihood = LinkedLogisticPixels(2, 3)
    out = outputs(likelihood, 3, (1, 1), seed=3)[:1]
    drawn = likelihood.sample(out.expand(60_000, -1, 1, 1), torch.Generator().manual_seed(0))
    for colour in colours(3):
        p = likelihood.log_prob(out, colour[None]).exp().item()
        share = (drawn - colour).abs().amax((-3, -2, -1)).lt(1e-6).double().mean().item()
        assert share == pytest.approx(p, abs=5 * math.sqrt(p * (1 - p) / 60_000) + 1e-4)


def test_logistic_mixture_is_finite_in_the_far_tails_with_gradients():
    likelihood = LogisticMixturePixels(2, 256)
    out = (100 * outputs(likelihood, 1, (2, 2))).requires_grad_()
    value = likelihood.log_prob(out, torch.rand(5, 1, 2, 2, dtype=torch.float64)).sum()
    value.backward()
    assert value.isfinite()
    assert out.grad.isfinite().all()


def test_bits_per_dim():
    # a uniform density on [0, 1) costs 8 bits; VBM's 3593.7 nats on CIFAR-10 are 6.31 bits
    assert bits_per_dim(torch.tensor(0.0), 3072, is_density=True) == 8
    assert bits_per_dim(torch.tensor(3593.7), 3072, is_density=True).item() == pytest.approx(6.31, abs=0.005)
    assert bits_per_dim(torch.tensor(-math.log(256) * 10), 10, is_density=False).item() == pytest.approx(8)
