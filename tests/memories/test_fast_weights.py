"""Fast weights: what a write step does, against energies whose gradients are known, and against finite differences."""

import pytest
import torch

from mnemon.memories.fast_weights import WriteRule, inverse_softplus, write_gradients

P, T, D = 6, 3, 2


def bilinear(weights, x):
    """E(x) = x'Ax/2 + b'x with flat weights (A, b): every gradient is a line of algebra."""
    A, b = weights[:4].view(2, 2), weights[4:]
    return 0.5 * ((x @ A) * x).sum(-1) + x @ b


def deep(weights, x):
    """Smooth, with no symmetry to hide a mistake."""
    return torch.tanh(torch.sin(x @ weights[:4].view(2, 2)) + weights[4:]).pow(3).sum(-1) + (x * weights[:2]).sum(-1)


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("share", [[1 / 3, 1 / 3, 1 / 3], [0.5, 0.5, 0.0]])
def test_gradients_of_a_quadratic_energy(share):
    weights, x, share = draw(P), draw(T, D, seed=1), torch.tensor(share, dtype=torch.float64)
    A, b = weights[:4].view(2, 2), weights[4:]
    S = 0.5 * (A + A.T)
    slopes = x @ S + b  # grad_x E
    energy_by_A = 0.5 * torch.einsum("t,ti,tj->ij", share, x, x)
    energy_by_b = share @ x
    by_S = 2 * torch.einsum("t,ti,tj->ij", share, x, slopes)  # d |Sx + b|^2 / dS
    norm_by_A, norm_by_b = 0.5 * (by_S + by_S.T), 2 * share @ slopes
    by_energy, by_norm = write_gradients(bilinear, weights, x, share)
    torch.testing.assert_close(by_energy, torch.cat((energy_by_A.flatten(), energy_by_b)))
    torch.testing.assert_close(by_norm, torch.cat((norm_by_A.flatten(), norm_by_b)))
    (alone,) = write_gradients(bilinear, weights, x, share, use_gradient=False)
    torch.testing.assert_close(alone, by_energy)


def test_gradients_against_finite_differences():
    weights, x = draw(P), draw(T, D, seed=1)
    share = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)

    def slopes(weights):
        bumps = 1e-5 * torch.eye(D, dtype=torch.float64)
        return torch.stack([(deep(weights, x + b) - deep(weights, x - b)) / 2e-5 for b in bumps], -1)

    def values(weights):
        return torch.stack(((share * deep(weights, x)).sum(), (share * slopes(weights).square().sum(-1)).sum()))

    bumps = 1e-4 * torch.eye(P, dtype=torch.float64)
    expected = torch.stack([(values(weights + b) - values(weights - b)) / 2e-4 for b in bumps], -1)
    torch.testing.assert_close(torch.stack(write_gradients(deep, weights, x, share)), expected, atol=1e-5, rtol=1e-5)


def test_a_step_moves_each_layer_by_its_own_rates():
    rule = WriteRule((4, 2), num_steps=1, rate=(0.5, 0.25, 0.125)).double()
    with torch.no_grad():
        rule.raw_rates[:, 1] += 1
    weights, start, x = draw(2, P), draw(P, seed=3), draw(2, T, D, seed=1)
    share = torch.full((2, T), 1 / T, dtype=torch.float64)
    (moved,) = rule(bilinear, weights, start, x, share)
    rates = torch.nn.functional.softplus(rule.raw_rates)
    torch.testing.assert_close(rates[:, 0], torch.tensor([0.5, 0.25, 0.125], dtype=torch.float64))
    spread = rates.repeat_interleave(torch.tensor([4, 2]), 1)
    for b in range(2):
        by_energy, by_norm = write_gradients(bilinear, weights[b], x[b], share[b])
        change = spread[0] * by_energy + spread[1] * by_norm + spread[2] * 2 * (weights[b] - start)
        torch.testing.assert_close(moved[b], weights[b] - change)


@pytest.mark.parametrize("recompute", [False, True])
def test_training_differentiates_through_the_steps(recompute):
    """Gradients of a loss of the written weights by rates, start and weights, against finite differences: third
    derivatives of the energy."""
    rule = WriteRule((4, 2), num_steps=2, rate=(0.2, 0.1, 0.1), recompute=recompute).double()
    x, share = draw(2, T, D, seed=1), torch.full((2, T), 1 / T, dtype=torch.float64)
    start = torch.nn.Parameter(draw(P, seed=3))

    def loss():
        return rule(deep, start.expand(2, -1), start, x, share)[-1].square().sum()

    loss().backward()
    for parameter in (start, rule.raw_rates):
        expected = torch.zeros_like(parameter)
        with torch.no_grad():
            for i in range(parameter.numel()):
                flat, at = parameter.view(-1), expected.view(-1)
                flat[i] += 1e-5
                at[i] = loss()
                flat[i] -= 2e-5
                at[i] = (at[i] - loss()) / 2e-5
                flat[i] += 1e-5
        torch.testing.assert_close(parameter.grad, expected, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("value", [1e-4, 0.3, 1.0, 40.0])
def test_inverse_softplus(value):
    assert float(torch.nn.functional.softplus(torch.tensor(inverse_softplus(value), dtype=torch.float64))) == (
        pytest.approx(value, rel=1e-12)
    )


def test_bad_settings():
    with pytest.raises(ValueError, match="num_steps"):
        WriteRule((4,), num_steps=0)
    for rate in ((1.0,), (1.0, 0.0, 1.0), (1.0, 1.0, float("inf"))):
        with pytest.raises(ValueError, match="rate: expected a positive, finite number for each of energy, gradient"):
            WriteRule((4,), rate=rate)
