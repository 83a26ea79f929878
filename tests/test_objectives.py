"""VIMCO against the exact gradient of the K-sample bound, with every tuple of addresses enumerated."""

import itertools
import math

import pytest
import torch

from mnemon.objectives import Estimator, bound, importance_weighted, leave_one_out, vimco

BASELINES = ("arithmetic", "geometric")
SLOTS = 3


def parameters():
    """q(a) and p(a) by logits, log p(x | a) by numbers: all that the bound of a discrete address depends on."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(SLOTS, dtype=torch.float64, generator=generator).requires_grad_() for _ in range(3)]


def log_weights(values, index):
    q, p, likelihood = values
    log_q = q.log_softmax(-1)[index]
    return p.log_softmax(-1)[index] + likelihood[index] - log_q, log_q


def all_tuples(num_samples):
    return torch.tensor(list(itertools.product(range(SLOTS), repeat=num_samples))).T


def exact_gradient(num_samples):
    """Of sum over tuples of prod_k q(a_k) log mean_k w_k, q differentiated as the probability that it is."""
    values = parameters()
    weights, log_q = log_weights(values, all_tuples(num_samples))
    total = (log_q.sum(0).exp() * (weights.logsumexp(0) - math.log(num_samples))).sum()
    return torch.cat(torch.autograd.grad(total, values))


@pytest.mark.parametrize("baseline", BASELINES)
@pytest.mark.parametrize("num_samples", [2, 3, 4])
def test_its_expectation_is_the_exact_gradient(baseline, num_samples):
    values = parameters()
    weights, log_q = log_weights(values, all_tuples(num_samples))
    chance = log_q.sum(0).exp().detach()
    estimate = (chance * vimco(weights, log_q, baseline)).sum()
    torch.testing.assert_close(torch.cat(torch.autograd.grad(estimate, values)), exact_gradient(num_samples))


@pytest.mark.parametrize("baseline", BASELINES)
def test_drawn_gradients_close_in_as_the_square_root(baseline):
    exact, errors, generator = exact_gradient(3), [], torch.Generator().manual_seed(1)
    numbers = (100, 10_000)
    for number in numbers:
        squares = []
        for _ in range(20):
            values = parameters()
            chance = values[0].detach().softmax(-1)
            index = torch.multinomial(chance, 3 * number, replacement=True, generator=generator).view(3, number)
            weights, log_q = log_weights(values, index)
            found = torch.cat(torch.autograd.grad(vimco(weights, log_q, baseline).mean(), values))
            squares.append((found - exact).square().sum())
        errors.append(torch.stack(squares).mean().sqrt().item())
    # 100 times as many samples, a tenth of the error; 20 repetitions know a root mean square to about 10%
    assert 7 < errors[0] / errors[1] < 14


def test_the_bracket_form_of_the_paper_gives_the_same_gradient():
    """VMA, equation 8: weights without gradient, and w_k / sum w written out."""
    values, index = parameters(), all_tuples(3)
    weights, log_q = log_weights(values, index)
    share = weights.softmax(0).detach()
    p_part = weights + log_q  # without q(a)
    gain = (importance_weighted(weights) - leave_one_out(weights)).detach() - share
    bracket = (share * p_part).sum(0) + (gain * log_q).sum(0)
    left = torch.autograd.grad(bracket.sum(), values, retain_graph=True)
    right = torch.autograd.grad(vimco(weights, log_q).sum(), values)
    torch.testing.assert_close(torch.cat(left), torch.cat(right))


def test_counting_the_weights_twice_is_wrong():
    """L plus the full bracket is the mistake that the surrogate must not make."""
    values = parameters()
    weights, log_q = log_weights(values, all_tuples(2))
    share = weights.softmax(0).detach()
    wrong = vimco(weights, log_q) - (share * log_q).sum(0)
    found = torch.autograd.grad((log_q.sum(0).exp().detach() * wrong).sum(), values)
    assert (torch.cat(found) - exact_gradient(2)).abs().max() > 0.01


@pytest.mark.parametrize("baseline", BASELINES)
def test_its_value_is_the_bound(baseline):
    weights, log_q = log_weights(parameters(), all_tuples(4))
    torch.testing.assert_close(vimco(weights, log_q, baseline), bound(weights).value)


def test_leaving_one_out():
    weights = torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64)
    others = torch.tensor([7 / 2, 6 / 2, 3 / 2], dtype=torch.float64)
    torch.testing.assert_close(leave_one_out(weights.log()), others.log())
    means = torch.tensor([10**0.5, 5**0.5, 2**0.5], dtype=torch.float64)
    replaced = (weights.sum() - weights + means) / 3
    torch.testing.assert_close(leave_one_out(weights.log(), "geometric"), replaced.log())


@pytest.mark.parametrize("baseline", BASELINES)
def test_weights_of_any_size(baseline):
    """Images have log-weights of hundreds of nats: the largest must not swallow what the others say of each other."""
    weights = torch.tensor([[-500.0, -900.0, -650.0]], dtype=torch.float64).T
    found = leave_one_out(weights, baseline)[:, 0]
    assert found.isfinite().all()
    assert found[0] < -600
    torch.testing.assert_close(leave_one_out(weights + 1e4, baseline)[:, 0] - 1e4, found, atol=1e-8, rtol=0)


def test_bad_input():
    one = torch.zeros(1, 2)
    with pytest.raises(ValueError, match=r"at least 2 samples, got 1; the baseline .* leaves out the only one"):
        vimco(one, one)
    with pytest.raises(ValueError, match="at least 2 samples"):
        Estimator("vimco_geometric", 1)
    with pytest.raises(ValueError, match="one for every weight"):
        vimco(torch.zeros(3, 2), torch.zeros(3))
    with pytest.raises(ValueError, match="arithmetic or geometric"):
        leave_one_out(torch.zeros(2), "harmonic")
    with pytest.raises(ValueError, match="estimator: expected one of terms"):
        Estimator("reinforce")
    with pytest.raises(ValueError, match="temperature"):
        Estimator("gumbel", temperature=0.0)
    assert Estimator("gumbel", 1).num_samples == 1
