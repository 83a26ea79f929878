"""Which contexts are constant in a data set: the pattern a in {0, 1}^K, known, drawn, relaxed or summed out.

Functions of q(a | X), a categorical distribution over the allowed patterns, and of the bound's parts under them. What
the contexts are is no concern of theirs. Shapes: patterns (M, K), log q(a | X) (*B, M). The estimators of a bound:

enumerate  a is summed out.
posterior  summed out with q(a | X) proportional to exp(bound under a), where the KL terms weigh `kl_weight`, in place
           of the net's, which is taught by it. q then depends on the noise, so a training's values are a little above
           those of the bound that is reported in evaluation, which uses the net.
balanced   likewise, and every pattern equally often in the batch, as p(a) has it; without this, contexts may settle so
           that one is never constant.
held       summed out with the net's q(a | X), which learns nothing: what an earlier stage found out about a stays
           while contexts change that would no longer say it.
gumbel     hard draws, so the discrete bound; only their gradient is that of the relaxed draw.
concrete   soft draws and the ratio of Concrete densities, which concerns the relaxed model alone.

Thesis, 6.3.2
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from mnemon.core.checks import check_broadcast, holds
from mnemon.distributions.choices import balance, concrete_log_density, gumbel_softmax, straight_through, uniform_kl
from mnemon.objectives import Estimator

BY_BOUND = ("posterior", "balanced")
"""Kinds of estimators that take q(a | X) from the bound."""
SUMMED = ("enumerate", "held", *BY_BOUND)
"""Kinds of estimators that sum a out."""


def used_estimator(estimator: Estimator | None, training: bool) -> Estimator:
    """The estimator that counts: without one a is summed out, and outside training q(a | X) is the net's."""
    if estimator is None or (estimator.kind in SUMMED and not training):
        return Estimator("enumerate")
    return estimator


def every_pattern(patterns: Tensor, batch_shape: Sequence[int]) -> Tensor:
    """All patterns for every data set. Shapes: (M, K) -> (M, *B, K)"""
    ones = (1,) * len(batch_shape)
    return patterns.reshape(-1, *ones, patterns.shape[-1]).expand(-1, *batch_shape, -1)


def given_pattern(where: str, constant: Tensor, num_contexts: int, batch_shape: Sequence[int]) -> Tensor:
    """The patterns that are given for data sets, as bool, after checks; one may stand for all of them.

    Shapes: constant (*B, K), or what broadcasts to it -> (*B, K)
    """
    if not isinstance(constant, Tensor):
        raise ValueError(f"{where}: expected constant as a Tensor, got {type(constant).__name__}; use torch.as_tensor")
    if constant.ndim == 0 or constant.shape[-1] != num_contexts:
        remedy = f"; make the model with num_contexts={constant.shape[-1]}" if constant.ndim else ""
        raise ValueError(
            f"{where}: expected constant (*B, {num_contexts}), one entry for each context, got "
            f"{tuple(constant.shape)}{remedy}"
        )
    if constant.dtype != torch.bool and not holds((constant == 0) | (constant == 1)):
        raise ValueError(f"{where}: expected constant to be 1 or True where a context is constant, else 0, got others")
    shape = (*batch_shape, num_contexts)
    check_broadcast(f"{where}: constant", constant, shape)
    return constant.bool().expand(shape)


def known_choice(where: str, constant: Tensor, patterns: Tensor, like: Tensor) -> Tensor:
    """log q(a) of a that is given: 0 at its pattern. Shapes: constant (*B, K), like (*B, ...) -> (*B, M)"""
    same = (constant[..., None, :].to(patterns.dtype) == patterns).all(-1)
    if not holds(same.any(-1)):
        raise ValueError(
            f"{where}: expected labels of a among {patterns.int().tolist()}, got others; make the model with "
            "constant='any' to allow every pattern"
        )
    log_choice = torch.where(same, 0.0, -math.inf).to(like.dtype)
    return log_choice.expand(*like.shape[:-1], len(patterns))


def draw_pattern(log_choice: Tensor, patterns: Tensor, generator: torch.Generator | None) -> Tensor:
    """a ~ q(a | X). Shapes: (*B, M), (M, K) -> (*B, K)"""
    probs = log_choice.exp()
    flat = probs.reshape(-1, probs.shape[-1])
    drawn = torch.multinomial(flat, 1, generator=generator).reshape(probs.shape[:-1])
    return patterns[drawn]


def likely_pattern(log_choice: Tensor, patterns: Tensor) -> Tensor:
    """The a that q(a | X) holds most likely. Shapes: (*B, M), (M, K) -> (*B, K)"""
    return patterns[log_choice.argmax(-1)]


def relaxed_pattern(
    log_choice: Tensor, patterns: Tensor, estimator: Estimator, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """A draw through which the net of q(a | X) has a gradient, and what it costs.

    concrete: soft, at the ratio of Concrete densities. Otherwise hard in value, at the KL of the discrete choice.
    Shapes: (*B, M), (M, K) -> chosen (*B, K), choice_kl (*B)
    """
    choice_kl = uniform_kl(log_choice)
    log_y = gumbel_softmax(log_choice, estimator.temperature, generator)
    y = log_y.exp() if estimator.kind == "concrete" else straight_through(log_y.exp())
    chosen = y @ patterns.to(y.dtype)
    if estimator.kind == "concrete":
        flat = torch.full_like(log_y, -math.log(len(patterns)))
        q, p = (concrete_log_density(log_y, log_probs, estimator.temperature) for log_probs in (log_choice, flat))
        choice_kl = q - p
    return chosen, choice_kl


def choice_by_bound(per_item: Tensor, constant_kl: Tensor, counts: Tensor | None) -> Tensor:
    """log q(a | X) proportional to the bound under each pattern, of which items have a part and the set has one.

    Shapes: per_item (M, *B, T), constant_kl (M, *B), counts (*B, T) -> (*B, M)
    """
    whole = (per_item if counts is None else counts * per_item).sum(-1) - constant_kl
    return whole.movedim(0, -1).log_softmax(-1)


def posterior_choice(
    parts: Sequence[Tensor], counts: Tensor | None, kl_weight: float | Tensor, *, balanced: bool = False
) -> Tensor:
    """`choice_by_bound` with weighted KL terms, and without gradient.

    parts     of the bound: reconstruction, code_kl, varying_kl (M, *B, T), constant_kl (M, *B)
    balanced  every pattern equally often in the batch
    Shapes: -> (*B, M)
    """
    reconstruction, code_kl, varying_kl, constant_kl = (part.detach() for part in parts)
    per_item = reconstruction - kl_weight * (code_kl + varying_kl)
    log_q = choice_by_bound(per_item, kl_weight * constant_kl, counts)
    return balance(log_q) if balanced else log_q


def taught_kl(log_q: Tensor, log_choice: Tensor) -> Tensor:
    """KL of a given q(a), whose gradient teaches it to the net that says log_choice. Shapes: (*B, M) both -> (*B)"""
    taught = -(log_q.exp() * log_choice).sum(-1)
    return uniform_kl(log_q) + taught - taught.detach()  # the net learns it, and no value changes


def sum_out(parts: Sequence[Tensor], log_q: Tensor) -> list[Tensor]:
    """The bound's parts in the mean over q(a). Shapes: parts as in `posterior_choice` -> (*B, T) thrice, (*B)"""
    *per_item, constant_kl = parts
    weights = log_q.exp().movedim(-1, 0)
    return [*((weights[..., None] * part).sum(0) for part in per_item), (weights * constant_kl).sum(0)]
