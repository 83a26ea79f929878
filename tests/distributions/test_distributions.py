"""Gaussians and the matrix normal against SciPy, Kronecker products and sampling."""

import numpy as np
import pytest
import torch
from scipy import stats

from mnemon.distributions.categorical import draw_category
from mnemon.distributions.gaussian import DiagonalGaussian, FullGaussian
from mnemon.distributions.matrix_normal import MatrixNormal


def normal(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def chol(*batch, size, seed=0):
    factor = normal(*batch, size, size, seed=seed)
    return torch.linalg.cholesky(factor @ factor.mT + 0.3 * torch.eye(size, dtype=torch.float64))


PAIRS = {
    "diagonal": lambda s: DiagonalGaussian(normal(2, 3, seed=s), normal(2, 3, seed=s + 1).exp()),
    "full": lambda s: FullGaussian(normal(2, 3, seed=s), chol(2, size=3, seed=s + 1)),
    "matrix": lambda s: MatrixNormal(normal(2, 3, 4, seed=s), chol(2, size=3, seed=s + 1)),
}


def as_scipy(d, i):
    """Element i as SciPy sees it; the matrix normal as a Gaussian with a Kronecker covariance."""
    if isinstance(d, DiagonalGaussian):
        return stats.multivariate_normal(d.mean[i].numpy(), np.diag(d.std[i].numpy() ** 2))
    if isinstance(d, FullGaussian):
        return stats.multivariate_normal(d.mean[i].numpy(), (d.chol[i] @ d.chol[i].T).numpy())
    U = (d.U_chol[i] @ d.U_chol[i].T).numpy()
    return stats.multivariate_normal(d.R[i].numpy().reshape(-1), np.kron(U, np.eye(d.R.shape[-1])))


@pytest.mark.parametrize("kind", PAIRS)
def test_log_prob(kind):
    d = PAIRS[kind](0)
    x = d.rsample(generator=torch.Generator().manual_seed(5))
    expected = [as_scipy(d, i).logpdf(x[i].numpy().reshape(-1)) for i in range(2)]
    np.testing.assert_allclose(d.log_prob(x), expected, rtol=1e-10)


def test_matrix_normal_log_prob_against_scipy():
    d = PAIRS["matrix"](0)
    x = normal(2, 3, 4, seed=8)
    for i in range(2):
        U = (d.U_chol[i] @ d.U_chol[i].T).numpy()
        expected = stats.matrix_normal(d.R[i].numpy(), U, np.eye(4)).logpdf(x[i].numpy())
        np.testing.assert_allclose(d.log_prob(x)[i], expected, rtol=1e-10)


@pytest.mark.parametrize("kind", PAIRS)
def test_kl_against_the_full_gaussian_formula(kind):
    q, p = PAIRS[kind](0), PAIRS[kind](10)
    for i in range(2):
        a, b = as_scipy(q, i), as_scipy(p, i)
        inverse = np.linalg.inv(b.cov)
        gap = a.mean - b.mean
        expected = 0.5 * (
            np.trace(inverse @ a.cov) + gap @ inverse @ gap - len(gap)
            + np.linalg.slogdet(b.cov)[1] - np.linalg.slogdet(a.cov)[1]
        )  # fmt: skip
        np.testing.assert_allclose(q.kl(p)[i], expected, rtol=1e-10)
    torch.testing.assert_close(q.kl(q), torch.zeros(2, dtype=torch.float64), atol=1e-12, rtol=0)


@pytest.mark.parametrize("kind", PAIRS)
def test_kl_against_sampling(kind):
    q, p = PAIRS[kind](0), PAIRS[kind](10)
    x = q.rsample((20_000,), generator=torch.Generator().manual_seed(0))
    draws = q.log_prob(x) - p.log_prob(x)
    error = draws.std(0) / len(draws) ** 0.5
    assert ((draws.mean(0) - q.kl(p)).abs() < 5 * error).all()


@pytest.mark.parametrize("kind", ["diagonal", "full"])
def test_entropy(kind):
    d = PAIRS[kind](0)
    np.testing.assert_allclose(d.entropy(), [as_scipy(d, i).entropy() for i in range(2)], rtol=1e-10)


@pytest.mark.parametrize("kind", PAIRS)
def test_samples_have_the_right_moments(kind):
    d = PAIRS[kind](0)
    x = d.rsample((50_000,), generator=torch.Generator().manual_seed(1)).flatten(2)
    for i in range(2):
        expected = as_scipy(d, i)
        scale = np.sqrt(np.diag(expected.cov) / 50_000)
        assert (np.abs(x[:, i].mean(0).numpy() - expected.mean) < 5 * scale).all()
        largest = np.diag(expected.cov).max()
        assert np.abs(np.cov(x[:, i].T.numpy()) - expected.cov).max() < 6 * largest * (2 / 50_000) ** 0.5


def test_prior_without_batch_broadcasts():
    q = PAIRS["matrix"](0)
    p = MatrixNormal(torch.zeros(3, 4, dtype=torch.float64), torch.eye(3, dtype=torch.float64))
    assert q.kl(p).shape == (2,)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_categories_are_drawn_as_often_as_they_are_likely(dtype):
    chances = torch.tensor([0.5, 0.3, 0.15, 0.05, 0.0], dtype=dtype)
    draws = draw_category(chances.log().expand(20_000, 5), torch.Generator().manual_seed(0))
    share = torch.bincount(draws, minlength=5) / 20_000
    error = (chances * (1 - chances) / 20_000).sqrt()
    assert ((share - chances).abs() <= 4 * error).all()


def test_overlap_against_a_numerical_integral():
    first, second = (
        DiagonalGaussian(normal(4, 1, seed=s), 0.1 + 0.9 * normal(4, 1, seed=s + 1).sigmoid()) for s in (0, 2)
    )
    c = torch.linspace(-12, 12, 200_001, dtype=torch.float64)[:, None, None]
    prior = DiagonalGaussian(torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64))
    ratio = (first.log_prob(c) + second.log_prob(c) - prior.log_prob(c)).exp()
    expected = torch.trapezoid(ratio, c[:, 0], dim=0).log()
    torch.testing.assert_close(first.log_overlap(second), expected)
    torch.testing.assert_close(first.log_overlap(prior), torch.zeros(4, dtype=torch.float64))
