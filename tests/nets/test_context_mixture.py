"""The mixture prior of contexts, against torch.distributions and against draws."""

import pytest
import torch
from torch import distributions as td

from mnemon.distributions.gaussian import DiagonalGaussian
from mnemon.nets.context_mixture import ContextMixture


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def mixture(contexts=2, components=3, size=4):
    torch.manual_seed(0)
    made = ContextMixture(contexts, size, components).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, dtype=torch.float64))
    return made


def oracle(made, k):
    parts = td.Independent(td.Normal(made.means[k], made.log_stds[k].exp()), 1)
    return td.MixtureSameFamily(td.Categorical(logits=made.logits[k]), parts)


def gaussians(*shape):
    mean, log_std = torch.randn(2, *shape, 2, 4, dtype=torch.float64, generator=seeded(1))
    return DiagonalGaussian(mean, (0.5 * log_std - 1).exp())


def test_density_is_that_of_a_mixture():
    made, c = mixture(), torch.randn(5, 3, 2, 4, dtype=torch.float64, generator=seeded(2))
    expected = torch.stack([oracle(made, k).log_prob(c[..., k, :]) for k in range(2)], -1)
    torch.testing.assert_close(made.log_prob(c), expected)


def test_expected_density_is_a_bound_and_exact_for_points():
    made, q = mixture(), gaussians(6)
    draws = made.log_prob(q.rsample((20_000,), generator=seeded(3)))
    error = draws.std(0) / 20_000**0.5
    assert (made.expected_log_prob(q) <= draws.mean(0) + 4 * error).all()
    point = DiagonalGaussian(q.mean, torch.full_like(q.std, 1e-9))
    torch.testing.assert_close(made.expected_log_prob(point), made.log_prob(q.mean))


def test_kl_is_at_least_that_of_draws_and_exact_with_one_component():
    made, q = mixture(), gaussians(6)
    c = q.rsample((20_000,), generator=seeded(4))
    ratios = q.log_prob(c) - made.log_prob(c)
    assert (made.kl(q) >= ratios.mean(0) - 4 * ratios.std(0) / 20_000**0.5).all()
    alone = mixture(components=1)
    only = DiagonalGaussian(alone.means[:, 0], alone.log_stds[:, 0].exp())
    torch.testing.assert_close(alone.kl(q), q.kl(only))


def test_half_precision_around_it_does_not_reach_it():
    made, q = mixture().float(), gaussians(6)
    q = DiagonalGaussian(q.mean.float(), q.std.float())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = made.expected_log_prob(q)
    torch.testing.assert_close(inside, made.expected_log_prob(q))


@pytest.mark.parametrize("shape", [(), (3,), (2, 5), (0,)])
def test_draws_have_the_shape_that_was_asked_for(shape):
    assert mixture().sample(shape, seeded()).shape == (*shape, 2, 4)


def test_draws_follow_the_mixture():
    """Mean and variance of a mixture: those within components, and between them."""
    made = mixture()
    drawn = made.sample((40_000,), seeded(5))
    share = made.logits.softmax(-1)[..., None]
    mean = (share * made.means).sum(1)
    variance = (share * (made.log_stds.exp().square() + made.means.square())).sum(1) - mean.square()
    assert ((drawn.mean(0) - mean).abs() < 5 * (variance / 40_000).sqrt()).all()
    torch.testing.assert_close(drawn.var(0), variance, rtol=0.1, atol=0)
