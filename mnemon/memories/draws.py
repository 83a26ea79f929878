"""Draws of a linear-Gaussian memory: M and b once per episode, w for every item."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor

from mnemon.distributions.gaussian import standard_normal_like
from mnemon.memories.slot_state import Slots, SlotState

S = TypeVar("S", bound=SlotState)


def draw_slots(state: S, generator: torch.Generator | None) -> S:
    """M ~ MN(R, U, I) and b ~ N(mu_b, v_b I), as a state whose covariances are 0.

    Shapes: any batch and cluster dimensions -> the same
    """
    M = state.R + state.U_chol @ standard_normal_like(state.R, state.R.shape, generator)
    drawn = state.replace(R=M, U_chol=torch.zeros_like(state.U_chol))
    if state.mu_b is None or state.v_b is None:
        return drawn
    noise = standard_normal_like(state.mu_b, state.mu_b.shape, generator)
    return drawn.replace(mu_b=state.mu_b + state.v_b.sqrt()[..., None] * noise, v_b=torch.zeros_like(state.v_b))


def drawn_square(
    drawn: Slots, codes: Tensor, mu_w: Tensor, w_chol: Tensor, generator: torch.Generator | None
) -> Tensor:
    """|z - M'w - b|^2 in every cluster, with w ~ N(mu_w, L L').

    Shapes: codes (*B, T, C), mu_w (*B, T, H, K), w_chol (*B, H, K, K) -> (*B, T, H)
    """
    noise = standard_normal_like(mu_w, mu_w.shape, generator)
    w = mu_w + torch.einsum("...hkl,...thl->...thk", w_chol, noise)
    explained = torch.einsum("...thk,...hkc->...thc", w, drawn.R)
    if drawn.mu_b is not None:
        explained = explained + drawn.mu_b[..., None, :, :]
    return (codes[..., None, :] - explained).square().sum(-1)
