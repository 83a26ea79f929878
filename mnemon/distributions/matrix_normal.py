"""The matrix normal with identity column covariance: rows are correlated, columns independent."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from mnemon.core.linalg import log_det_from_cholesky
from mnemon.core.state import State, rank
from mnemon.distributions.gaussian import LOG_2PI, standard_normal_like


@dataclass(frozen=True, eq=False)
class MatrixNormal(State):
    """MN(R, U, I_C): each of the C columns is N(R[:, c], U), with U = U_chol U_chol'.

    Shapes: R (*B, K, C), U_chol (*B, K, K)
    """

    R: Tensor = field(metadata=rank(2))
    U_chol: Tensor = field(metadata=rank(2))

    def log_prob(self, M: Tensor) -> Tensor:
        """Shapes: (*B, K, C) -> (*B)"""
        K, C = self.R.shape[-2:]
        white = torch.linalg.solve_triangular(self.U_chol, M - self.R, upper=False)
        return -0.5 * (white.square().sum((-2, -1)) + C * log_det_from_cholesky(self.U_chol) + K * C * LOG_2PI)

    def rsample(self, sample_shape: tuple[int, ...] = (), generator: torch.Generator | None = None) -> Tensor:
        """Shapes: -> (*sample_shape, *B, K, C)"""
        noise = standard_normal_like(self.R, torch.Size(sample_shape) + self.R.shape, generator)
        return self.R + self.U_chol @ noise

    def kl(self, other: MatrixNormal) -> Tensor:
        """KL(self || other), by Cholesky factors only.

        1/2 [C tr(U0^-1 U) + tr((R-R0)' U0^-1 (R-R0)) - K C - C logdet U + C logdet U0]

        Shapes: -> (*B)
        """
        K, C = self.R.shape[-2:]
        ratio = torch.linalg.solve_triangular(other.U_chol, self.U_chol, upper=False).square().sum((-2, -1))
        gap = torch.linalg.solve_triangular(other.U_chol, self.R - other.R, upper=False).square().sum((-2, -1))
        log_dets = log_det_from_cholesky(other.U_chol) - log_det_from_cholesky(self.U_chol)
        return 0.5 * (C * (ratio - K + log_dets) + gap)
