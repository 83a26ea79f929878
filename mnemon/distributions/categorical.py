"""Categorical distributions by their log-probabilities."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def categorical_kl(log_theta: Tensor) -> Tensor:
    """theta (log theta + log K), the summands of the KL to the uniform. Shapes: (*B, T, K) -> (*B, T, K)"""
    finite = log_theta.clamp(min=-1e6)  # 0 log 0 = 0, and no infinity for the gradient to meet
    return log_theta.exp() * (finite + math.log(log_theta.shape[-1]))


def draw_category(log_theta: Tensor, generator: torch.Generator | None) -> Tensor:
    """Gumbel's trick. Shapes: (*B, T, H) -> (*B, T)"""
    uniform = torch.rand(log_theta.shape, dtype=log_theta.dtype, device=log_theta.device, generator=generator)
    tiny = torch.finfo(log_theta.dtype).tiny
    waiting_time = (-torch.log(uniform.clamp(min=tiny))).clamp(min=tiny)
    return (log_theta - torch.log(waiting_time)).argmax(-1)
