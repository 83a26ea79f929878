import pytest
import torch

from mnemon.core.linalg import (
    cholesky_without_branch,
    inverse_after_rank_two,
    inverse_alone,
    safe_cholesky,
    spd_inverse,
)


def spd(*batch, K=4, seed=0):
    factor = torch.randn(*batch, K, K, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return factor @ factor.mT + 0.1 * torch.eye(K, dtype=torch.float64)


def test_inverse_and_log_determinant():
    matrix = spd(2, 3)
    inverse, log_det = spd_inverse(matrix)
    torch.testing.assert_close(inverse, torch.linalg.inv(matrix))
    torch.testing.assert_close(log_det, torch.linalg.slogdet(matrix)[1])


def test_an_inverse_follows_its_matrix_through_a_change_of_rank_two():
    """Of R R' + I as R becomes R + c e', which is how an online write moves it; nothing moves where c is 0."""
    generator = torch.Generator().manual_seed(1)
    R, c, e = (torch.randn(2, 5, *size, dtype=torch.float64, generator=generator) for size in ((4, 6), (4, 1), (1, 6)))
    c[0, 0] = 0
    eye = torch.eye(4, dtype=torch.float64)
    moved = R + c * e
    found = inverse_after_rank_two(torch.linalg.inv(R @ R.mT + eye), c, (R + moved) @ e.mT / 2)
    torch.testing.assert_close(found, torch.linalg.inv(moved @ moved.mT + eye), atol=1e-10, rtol=1e-10)


def test_an_inverse_alone_is_the_same_with_and_without_a_derivative():
    matrix = spd(2, 3)
    for given in (matrix, matrix.clone().requires_grad_()):
        assert torch.equal(inverse_alone(given), spd_inverse(matrix)[0])


@pytest.mark.parametrize("learned", [False, True])
def test_without_a_branch_only_the_matrix_that_fails_is_shifted(learned):
    """As a captured step factorises: no waiting, the same factors."""
    bad = torch.diag(torch.tensor([1.0, 2.0, 3.0, -1e-9], dtype=torch.float64))
    matrix = torch.stack((spd(seed=3), bad)).requires_grad_(learned)
    factor = cholesky_without_branch(matrix)
    shifted = bad + 1e-4 * 1.5 * torch.eye(4, dtype=torch.float64)
    assert torch.equal(factor[0], torch.linalg.cholesky(matrix[0]))
    torch.testing.assert_close(factor[1], torch.linalg.cholesky(shifted))
    if learned:
        assert torch.autograd.grad(factor.sum(), matrix)[0].isfinite().all()


def test_inverse_gradients_to_second_order():
    factor = torch.randn(2, 3, 3, dtype=torch.float64, requires_grad=True)

    def through(f):
        return spd_inverse(f @ f.mT + torch.eye(3, dtype=torch.float64))

    assert torch.autograd.gradcheck(through, factor)
    assert torch.autograd.gradgradcheck(through, factor)


def test_good_matrices_get_no_jitter():
    matrix = spd(3)
    assert torch.equal(safe_cholesky(matrix), torch.linalg.cholesky(matrix))


def test_a_matrix_that_fails_by_rounding_gets_jitter_and_its_neighbour_none():
    v = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    singular = torch.outer(v, v) - 1e-13 * torch.eye(3, dtype=torch.float64)  # one eigenvalue just below 0
    matrix = torch.stack((singular, torch.eye(3, dtype=torch.float64)))
    with pytest.raises(torch.linalg.LinAlgError):
        torch.linalg.cholesky(matrix)
    factor = safe_cholesky(matrix)
    torch.testing.assert_close(factor @ factor.mT, matrix, atol=1e-8, rtol=0)
    assert torch.equal(factor[1], matrix[1])


def test_an_indefinite_matrix_fails_with_its_condition():
    with pytest.raises(ValueError, match=r"eigenvalues from -1 to 2.*condition 2"):
        safe_cholesky(torch.diag(torch.tensor([2.0, -1.0])))


def test_nan_fails_at_once():
    with pytest.raises(ValueError, match="NaN"):
        safe_cholesky(torch.full((2, 2), torch.nan))


def test_inverse_in_forward_mode():
    matrix, change = spd(2), spd(2, seed=1)
    _, (tangent, log_det_tangent) = torch.func.jvp(spd_inverse, (matrix,), (change,))
    inverse = torch.linalg.inv(matrix)
    torch.testing.assert_close(tangent, -inverse @ change @ inverse)
    torch.testing.assert_close(log_det_tangent, (inverse * change.mT).sum((-2, -1)))
