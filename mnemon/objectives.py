"""Bounds from log-weights alone: log p(x, latents) / q(latents), one row per sample."""

from __future__ import annotations

import math

from torch import Tensor

from mnemon.core.checks import check_size
from mnemon.core.protocol import Bound


def elbo(log_weights: Tensor) -> Tensor:
    """Mean of the log-weights. Shapes: (num_samples, *B) -> (*B)"""
    return log_weights.mean(0)


def importance_weighted(log_weights: Tensor) -> Tensor:
    """log mean_k w_k, accumulated in float64: a bound that tightens with the number of samples.

    Shapes: (num_samples, *B) -> (*B)
    """
    total = log_weights.double().logsumexp(0) - math.log(log_weights.shape[0])
    return total.to(log_weights.dtype)


def bound(log_weights: Tensor) -> Bound:
    """The importance-weighted bound; with one sample it is the ELBO. Shapes: (num_samples, *B) -> (*B)"""
    num_samples = log_weights.shape[0]
    check_size("num_samples", num_samples)
    kind = "elbo" if num_samples == 1 else "iwae"
    return Bound(importance_weighted(log_weights), kind, num_samples)  # type: ignore[arg-type]
