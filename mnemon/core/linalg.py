"""Factorisations of symmetric positive definite matrices that either succeed or say why not."""

from __future__ import annotations

import torch
from torch import Tensor

from mnemon.core.checks import is_transformed, truth


def as_scalar(value: float | Tensor, dtype: torch.dtype | None, device: torch.device | None) -> Tensor:
    """A number as a tensor, filled in on the device: copying it there would wait, and a CUDA graph forbids that."""
    if isinstance(value, Tensor):
        return value.to(dtype=dtype, device=device)
    return torch.full((), float(value), dtype=dtype, device=device)


def safe_cholesky(matrix: Tensor) -> Tensor:
    """Lower Cholesky factor; a failed one is tried again with growing jitter on its diagonal.

    The jitter starts at the rounding error of the mean diagonal and grows tenfold, up to 1e-3 of it.

    Shapes: (*B, K, K) -> (*B, K, K)
    """
    if matrix.is_cuda and torch.cuda.is_current_stream_capturing():  # a graph can neither wait nor branch
        return cholesky_without_branch(matrix)
    factor, info = torch.linalg.cholesky_ex(matrix)
    success = truth(info == 0)
    if success is None:  # compile and vmap cannot branch on values; this call raises by itself
        return torch.linalg.cholesky(matrix)
    return factor if success else _cholesky_with_jitter(matrix, info)


def cholesky_without_branch(matrix: Tensor) -> Tensor:
    """The factor, of a matrix shifted by 1e-4 of its mean diagonal where it has none.

    Where no derivative is wanted, matrix and shifted matrix are factorised side by side, in half the launches; a
    derivative would go through the factor that failed.
    """
    scale = matrix.diagonal(dim1=-2, dim2=-1).abs().mean(-1)
    if matrix.requires_grad and torch.is_grad_enabled():
        shift = 1e-4 * scale * (torch.linalg.cholesky_ex(matrix)[1] != 0)
        eye = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
        return torch.linalg.cholesky_ex(matrix + shift[..., None, None] * eye)[0]
    both = matrix.expand(2, *matrix.shape).clone(memory_format=torch.contiguous_format)
    both[1].diagonal(dim1=-2, dim2=-1).add_(scale[..., None], alpha=1e-4)
    factors, info = torch.linalg.cholesky_ex(both)
    return torch.where((info[0] == 0)[..., None, None], factors[0], factors[1])


def _cholesky_with_jitter(matrix: Tensor, info: Tensor) -> Tensor:
    failed = info != 0
    if not bool(torch.isfinite(matrix).all()):
        raise ValueError("cholesky: expected finite entries, got NaN or infinity; check the codes and variances")
    scale = matrix.diagonal(dim1=-2, dim2=-1).abs().mean(-1)
    eye = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    jitter = torch.finfo(matrix.dtype).eps
    while jitter <= 1e-3:
        shifted = matrix + (jitter * scale * failed)[..., None, None] * eye
        factor, info = torch.linalg.cholesky_ex(shifted)
        if bool((info == 0).all()):
            return factor
        jitter *= 10
    worst = matrix[failed].reshape(-1, *matrix.shape[-2:])[0]
    raise ValueError(
        f"cholesky: expected a positive definite matrix, got one with eigenvalues from "
        f"{torch.linalg.eigvalsh(worst)[0].item():.3g} to {torch.linalg.eigvalsh(worst)[-1].item():.3g} "
        f"(condition {torch.linalg.cond(worst).item():.3g}), also after jitter of 1e-3 of its diagonal; "
        "use float64 or larger variances"
    )


class _SpdInverse(torch.autograd.Function):
    """Inverse and log-determinant with the short backward: -X G X + g X, no triangular solves."""

    generate_vmap_rule = True

    @staticmethod
    def forward(matrix: Tensor) -> tuple[Tensor, Tensor]:
        factor = safe_cholesky(matrix)
        return inverse_from_cholesky(factor), log_det_from_cholesky(factor)

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
        ctx.save_for_backward(output[0])

    @staticmethod
    def backward(ctx, grad_inverse, grad_logdet):  # type: ignore[no-untyped-def]
        (inverse,) = ctx.saved_tensors
        symmetric = (grad_inverse + grad_inverse.mT) / 2
        return grad_logdet[..., None, None] * inverse - inverse @ symmetric @ inverse


def spd_inverse(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Inverse and log-determinant of symmetric positive definite matrices.

    Shapes: (*B, K, K) -> (*B, K, K), (*B)
    """
    if matrix.requires_grad and torch.is_grad_enabled():
        return _SpdInverse.apply(matrix)
    return _SpdInverse.forward(matrix)


def inverse_alone(matrix: Tensor) -> Tensor:
    """The same without the log-determinant: sweeps that want no bound save its launches.

    Shapes: (*B, K, K) -> (*B, K, K)
    """
    if matrix.requires_grad and torch.is_grad_enabled():
        return spd_inverse(matrix)[0]
    return inverse_from_cholesky(safe_cholesky(matrix))


def inverse_after_rank_two(inverse: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """(A + l r' + r l')^-1 from A^-1, by a few products in place of a factorisation.

        A^-1 - A^-1 V (J + V' A^-1 V)^-1 V' A^-1,   V = (l, r),  J = ((0, 1), (1, 0))

    Both matrices have to be positive definite; then the determinant of the middle one is below 0.

    Shapes: inverse (*B, K, K), left and right (*B, K, 1) -> (*B, K, K)
    """
    V = torch.cat((left, right), dim=-1)
    turned = inverse @ V
    middle = V.mT @ turned
    first, both, second = middle[..., :1, :1], middle[..., :1, 1:] + 1, middle[..., 1:, 1:]
    p, q = turned[..., :1], turned[..., 1:]
    solved = torch.cat([torch.addcmul(a * b, both, d, value=-1) for a, b, d in ((second, p, q), (first, q, p))], dim=-1)
    return inverse - turned @ (solved / torch.addcmul(first * second, both, both, value=-1)).mT


def log_det_from_cholesky(factor: Tensor) -> Tensor:
    """Log-determinant of L L'. Shapes: (*B, K, K) -> (*B)"""
    return 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def inverse_from_cholesky(factor: Tensor) -> Tensor:
    """(L L')^-1. Shapes: (*B, K, K) -> (*B, K, K)"""
    # torch.cholesky_inverse takes a batch one matrix at a time on a GPU, and its forward-mode derivative is wrong
    # (torch 2.11 to 2.15)
    if not factor.is_cuda and not is_transformed():
        return torch.cholesky_inverse(factor)
    eye = torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
    inverse = torch.linalg.solve_triangular(factor, eye, upper=False)
    return inverse.mT @ inverse
