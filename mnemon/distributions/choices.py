"""A discrete choice in a training step: drawn and relaxed in the backward pass only, or relaxed altogether."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def gumbel_softmax(log_probs: Tensor, temperature: float, generator: torch.Generator | None) -> Tensor:
    """The logarithm of one relaxed draw: log softmax((log pi + g) / temperature), g from the Gumbel distribution.

    Shapes: (*B, M) -> (*B, M). Thesis, 6.12
    """
    uniform = torch.rand(log_probs.shape, dtype=log_probs.dtype, device=log_probs.device, generator=generator)
    gumbel = -torch.log(-torch.log(uniform.clamp(1e-7, 1 - 1e-7)))
    return ((log_probs + gumbel) / temperature).log_softmax(-1)


def straight_through(soft: Tensor) -> Tensor:
    """One-hot in value, with the gradient of the soft draw. Shapes: (*B, M) -> (*B, M)"""
    hard = torch.zeros_like(soft).scatter(-1, soft.argmax(-1, keepdim=True), 1.0)
    return hard + soft - soft.detach()


def concrete_log_density(log_y: Tensor, log_probs: Tensor, temperature: float) -> Tensor:
    """Log density of the Concrete distribution of y = exp(log_y) on the simplex, up to the factor 1 / prod y_k.

    That factor is left out because it does not depend on pi, so that it cancels in ratios:
    log (M-1)! + (M-1) log t + sum_k (log pi_k - t log y_k) - M log sum_k pi_k y_k^-t

    Shapes: (*B, M) both -> (*B). Thesis, 6.11
    """
    M = log_y.shape[-1]
    scaled = log_probs - temperature * log_y
    constant = math.lgamma(M) + (M - 1) * math.log(temperature)
    return constant + scaled.sum(-1) - M * scaled.logsumexp(-1)


BALANCING_STEPS, SHARPNESS = 50, 5.0


def balance(log_probs: Tensor) -> Tensor:
    """The distributions nearest to given ones under which every value is equally likely on average over the batch.

    A factor for each value, by Sinkhorn's iterations. Distributions that are surer than the iterations can follow are
    first flattened by one factor for the whole batch. Shapes: (*B, M) -> (*B, M)
    """
    flat = log_probs.reshape(-1, log_probs.shape[-1])
    centred = flat - flat.mean(-1, keepdim=True)
    scaled = centred / (centred.abs().mean() / SHARPNESS).clamp(min=1.0)
    offset = torch.zeros_like(scaled[:1])
    for _ in range(BALANCING_STEPS):
        found = (scaled + offset).log_softmax(-1)
        offset = offset - (found.logsumexp(0, keepdim=True) - math.log(len(flat)))
    return (scaled + offset).log_softmax(-1).reshape(log_probs.shape)


def uniform_kl(log_probs: Tensor) -> Tensor:
    """KL of a categorical distribution from the uniform one; impossible values count 0. Shapes: (*B, M) -> (*B)"""
    probs = log_probs.exp()
    return torch.where(probs > 0, probs * log_probs, 0.0).sum(-1) + math.log(log_probs.shape[-1])
