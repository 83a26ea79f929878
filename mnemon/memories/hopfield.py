"""Hopfield networks on vectors of -1 and 1: the rules of Hebb and Storkey, and retrieval of the modern kind.

Hebb: W = (1/D) sum_t x_t x_t'. Storkey, pattern by pattern, with the local field h_ij = sum_{k != i, j} W_ik x_k:

    W_ij <- W_ij + (x_i x_j - x_i h_ji - x_j h_ij) / D,   i != j

Recall turns unit after unit to the sign of its field. Modern retrieval keeps the patterns X and goes
to X' softmax(beta X q). Hopfield 1982; Storkey and Valabregue 1999; Ramsauer et al. 2020.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

import torch
from torch import Tensor

from mnemon.core.checks import truth
from mnemon.core.state import State, rank

Rule = Literal["hebb", "storkey"]
TIE = 1e-30
"""What a unit's own state adds to its field, where the rest of it is 0: less than anything else."""
RULES: tuple[Rule, ...] = get_args(Rule)


@dataclass(frozen=True, eq=False)
class HopfieldState(State):
    """Symmetric couplings without a diagonal. Shapes: weights (*B, D, D)"""

    weights: Tensor = field(metadata=rank(2))


def write_couplings(x: Tensor, rule: Rule, *, start: Tensor | None = None, counts: Tensor | None = None) -> Tensor:
    """Couplings of the patterns, added to those of `start`. Storkey's rule takes them one after another, in all
    episodes at once.

    counts: how often each is written; 0 for an absent one. Storkey writes a pattern at most once: its field then
    already says the pattern, and writing it again adds little.

    Shapes: x (*B, T, D), start (*B, D, D), counts (*B, T) -> (*B, D, D)
    """
    check_rule(rule)
    size = x.shape[-1]
    weights = x.new_zeros(size, size) if start is None else start
    shares = torch.ones_like(x[..., 0]) if counts is None else counts.to(x.dtype)
    if rule == "hebb":
        return _without_diagonal(weights + (shares[..., None] * x).mT @ x / size)
    for pattern, share in zip(x.unbind(-2), shares.clamp(max=1).unbind(-1), strict=True):
        weights = weights + share[..., None, None] * _storkey_change(weights, pattern)
    return weights


def check_rule(rule: str) -> None:
    if rule not in RULES:
        raise ValueError(f"rule: expected one of {', '.join(RULES)}, got {rule!r}")


def _storkey_change(weights: Tensor, pattern: Tensor) -> Tensor:
    """Shapes: (*B, D, D), (*B, D) -> (*B, D, D)"""
    product = weights * pattern[..., None, :]
    whole = product.sum(-1, keepdim=True)
    fields = whole - product - product.diagonal(dim1=-2, dim2=-1)[..., None]  # h_ij leaves out k = i and k = j
    outer = pattern[..., :, None] * pattern[..., None, :]
    change = outer - pattern[..., :, None] * fields.mT - pattern[..., None, :] * fields
    return _without_diagonal(change / pattern.shape[-1])


def _without_diagonal(weights: Tensor) -> Tensor:
    return weights * (1 - torch.eye(weights.shape[-1], dtype=weights.dtype, device=weights.device))


def settle(weights: Tensor, x: Tensor, num_sweeps: int = 10) -> Tensor:
    """Turn unit after unit to the sign of its field, in order, in all episodes at once; with symmetric couplings the
    energy only falls. A field of 0 leaves a unit as it is.

    One unit at a time by definition: all at once would be faster and can end in a cycle of two states.

    Shapes: (*B, D, D), (*B, Q, D) -> (*B, Q, D)
    """
    batch = torch.broadcast_shapes(weights.shape[:-2], x.shape[:-2])
    x = x.expand(*batch, *x.shape[-2:]).clone()
    for _ in range(num_sweeps):
        before = x.clone()
        for i in range(x.shape[-1]):
            drive = (x @ weights[..., i, :, None]).squeeze(-1)
            x[..., i] = drive.add(x[..., i], alpha=TIE).sign()  # few operations: on a GPU their number is the time
        if truth(x == before):  # nothing turned: nothing will
            break
    return x


def retrieve(patterns: Tensor, x: Tensor, beta: float, *, counts: Tensor | None = None) -> Tensor:
    """X' softmax(beta X x), every pattern as often as it counts; 0 for an absent one.

    Shapes: patterns (*B, T, D), x (*B, Q, D), counts (*B, T) -> (*B, Q, D)
    """
    scores = beta * x @ patterns.mT
    return torch.softmax(scores if counts is None else scores + counts.log()[..., None, :], -1) @ patterns
