import math

import torch
from torch.distributions import Categorical, Normal, RelaxedOneHotCategorical, kl_divergence

from mnemon.distributions.choices import concrete_log_density, gumbel_softmax, straight_through, uniform_kl
from mnemon.distributions.pixels import NormalValues


def log_probs(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator).log_softmax(-1)


def test_the_density_is_that_of_the_relaxed_categorical():
    q, p, temperature = log_probs(6, 3), log_probs(6, 3, seed=1), 0.7
    log_y = log_probs(6, 3, seed=2)
    expected = [
        RelaxedOneHotCategorical(torch.tensor(temperature).double(), logits=logs).log_prob(log_y.exp())
        for logs in (q, p)
    ]
    ours = [concrete_log_density(log_y, logs, temperature) for logs in (q, p)]
    torch.testing.assert_close(ours[0] - ours[1], expected[0] - expected[1])
    torch.testing.assert_close(ours[0] - log_y.sum(-1), expected[0])


def test_relaxed_draws_fall_on_each_value_as_often_as_they_should():
    logs = log_probs(3).expand(20000, 3)
    drawn = straight_through(gumbel_softmax(logs, 0.3, torch.Generator().manual_seed(0)).exp())
    torch.testing.assert_close(drawn, drawn.round())
    assert (drawn.sum(-1) - 1).abs().max() < 1e-9
    error = (logs[0].exp() * (1 - logs[0].exp()) / 20000).sqrt()
    assert ((drawn.mean(0) - logs[0].exp()).abs() < 5 * error).all()


def test_the_gradient_is_that_of_the_soft_draw():
    logits = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    soft = gumbel_softmax(logits.log_softmax(-1), 0.5, torch.Generator().manual_seed(0)).exp()
    weights = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64)
    expected = torch.autograd.grad((soft * weights).sum(), logits, retain_graph=True)[0]
    torch.testing.assert_close(torch.autograd.grad((straight_through(soft) * weights).sum(), logits)[0], expected)


def test_kl_from_the_uniform_distribution():
    logs = log_probs(4, 5)
    flat = Categorical(logits=torch.zeros(5, dtype=torch.float64))
    torch.testing.assert_close(uniform_kl(logs), kl_divergence(Categorical(logits=logs), flat))
    certain = torch.tensor([0.0, -math.inf])
    assert uniform_kl(certain) == math.log(2)


def test_normal_values():
    outputs = torch.randn(7, 4, 1, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x = torch.randn(7, 2, 1, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    mean, log_std = outputs[:, :2], outputs[:, 2:]
    expected = Normal(mean, log_std.exp()).log_prob(x).sum((-3, -2, -1))
    torch.testing.assert_close(NormalValues().log_prob(outputs, x), expected)
    many = NormalValues().sample(outputs[:1].expand(20000, 4, 1, 1), torch.Generator().manual_seed(2))
    assert ((many.mean(0) - mean[0]).abs() < 5 * log_std[0].exp() / 20000**0.5).all()
