"""Pixel likelihoods against their definitions, summed or integrated over all pixel values."""

import math

import pytest
import torch
from scipy import stats

from mnemon.distributions.pixels import BernoulliPixels, GaussianPixels, LogisticMixturePixels, bits_per_dim

KINDS = [BernoulliPixels(), GaussianPixels(), LogisticMixturePixels(3, 16)]


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
