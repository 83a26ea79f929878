"""Gaussians with diagonal and with full covariance, as records of tensors.

They are not `torch.distributions`: those do not pass through `vmap`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from mnemon.core.linalg import log_det_from_cholesky
from mnemon.core.state import State, rank

LOG_2PI = math.log(2 * math.pi)


def standard_normal_like(tensor: Tensor, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
    return torch.randn(shape, dtype=tensor.dtype, device=tensor.device, generator=generator)


@dataclass(frozen=True, eq=False)
class DiagonalGaussian(State):
    """N(mean, diag(std^2)). Shapes: mean, std (*B, C)"""

    mean: Tensor = field(metadata=rank(1))
    std: Tensor = field(metadata=rank(1))

    def log_prob(self, x: Tensor) -> Tensor:
        """Shapes: (*B, C) -> (*B)"""
        residual = (x - self.mean) / self.std
        return -(0.5 * (residual.square() + LOG_2PI) + self.std.log()).sum(-1)

    def rsample(self, sample_shape: tuple[int, ...] = (), generator: torch.Generator | None = None) -> Tensor:
        """Shapes: -> (*sample_shape, *B, C)"""
        shape = torch.Size(sample_shape) + self.mean.shape
        return self.mean + self.std * standard_normal_like(self.mean, shape, generator)

    def kl(self, other: DiagonalGaussian) -> Tensor:
        """KL(self || other). Shapes: -> (*B)"""
        ratio = (self.std / other.std).square()
        gap = ((self.mean - other.mean) / other.std).square()
        return 0.5 * (ratio + gap - 1 - ratio.log()).sum(-1)

    def log_overlap(self, other: DiagonalGaussian) -> Tensor:
        """log int self(c) other(c) / N(c; 0, I) dc: how much likelier two data sets are with one c between them than
        with one each, if these are the posteriors of c under N(0, I). Deviations count as at most 1, as they then are.

        Shapes: -> (*B)
        """
        first, second = (g.std.square().reciprocal().clamp(min=1.0) for g in (self, other))
        together = first + second - 1
        pointed = first * self.mean + second * other.mean
        gain = pointed.square() / together - first * self.mean.square() - second * other.mean.square()
        return 0.5 * (first.log() + second.log() - together.log() + gain).sum(-1)

    def entropy(self) -> Tensor:
        """Shapes: -> (*B)"""
        return (0.5 * (1 + LOG_2PI) + self.std.log()).expand(self.mean.shape).sum(-1)


@dataclass(frozen=True, eq=False)
class FullGaussian(State):
    """N(mean, L L') with L lower triangular. Shapes: mean (*B, C), chol (*B, C, C)"""

    mean: Tensor = field(metadata=rank(1))
    chol: Tensor = field(metadata=rank(2))

    def log_prob(self, x: Tensor) -> Tensor:
        """Shapes: (*B, C) -> (*B)"""
        white = torch.linalg.solve_triangular(self.chol, (x - self.mean)[..., None], upper=False)
        quadratic = white.square().sum((-2, -1))
        return -0.5 * (quadratic + x.shape[-1] * LOG_2PI + log_det_from_cholesky(self.chol))

    def rsample(self, sample_shape: tuple[int, ...] = (), generator: torch.Generator | None = None) -> Tensor:
        """Shapes: -> (*sample_shape, *B, C)"""
        noise = standard_normal_like(self.mean, torch.Size(sample_shape) + self.mean.shape, generator)
        return self.mean + (self.chol @ noise[..., None])[..., 0]

    def kl(self, other: FullGaussian) -> Tensor:
        """KL(self || other). Shapes: -> (*B)"""
        ratio = torch.linalg.solve_triangular(other.chol, self.chol, upper=False).square().sum((-2, -1))
        gap = torch.linalg.solve_triangular(other.chol, (self.mean - other.mean)[..., None], upper=False)
        log_dets = log_det_from_cholesky(other.chol) - log_det_from_cholesky(self.chol)
        return 0.5 * (ratio + gap.square().sum((-2, -1)) - self.mean.shape[-1] + log_dets)

    def entropy(self) -> Tensor:
        """Shapes: -> (*B)"""
        return 0.5 * (self.mean.shape[-1] * (1 + LOG_2PI) + log_det_from_cholesky(self.chol))
