"""What a context-aware learner keeps of a data set, and which states and data sets it cannot use."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from mnemon.core.checks import holds
from mnemon.core.state import State, rank
from mnemon.distributions.gaussian import DiagonalGaussian


@dataclass(frozen=True, eq=False)
class ContextsState(State):
    """q(c_k | X) of every context if it is constant, q(a | X) over the allowed patterns, and what they came from.

    Shapes: mean, std (*B, K, D), log_choice (*B, M), pooled (*B, W), count (*B)
    """

    mean: Tensor = field(metadata=rank(2))
    std: Tensor = field(metadata=rank(2))
    log_choice: Tensor = field(metadata=rank(1))
    pooled: Tensor = field(metadata=rank(1))
    count: Tensor = field(metadata=rank(0))

    @property
    def constant(self) -> DiagonalGaussian:
        return DiagonalGaussian(self.mean, self.std)


def check_contexts(where: str, state: ContextsState, num_contexts: int, context_dim: int) -> None:
    """Refuse what is no state of a learner with such contexts."""
    if not isinstance(state, ContextsState) or tuple(state.mean.shape[-2:]) != (num_contexts, context_dim):
        got = tuple(state.mean.shape) if isinstance(state, ContextsState) else type(state).__name__
        raise ValueError(
            f"{where}: expected a ContextsState with mean (*B, {num_contexts}, {context_dim}), got {got}; contexts of "
            "another size belong to another model"
        )


def check_items(where: str, num_items: int, counts: Tensor | None, prior: ContextsState | None) -> None:
    """Refuse a data set of one item, also of one that is left by a mask, or of one of any weight; beside those that
    were written before, one more is no less than two. Shapes: counts (*B, T), those of 0 absent"""
    number: int | Tensor = num_items if counts is None else (counts > 0).sum(-1)
    if prior is not None:
        number = number + prior.count
    if not (holds(number != 1) if isinstance(number, Tensor) else number != 1):
        raise ValueError(
            f"{where}: expected a data set of at least 2 items, got 1; everything is constant in it, so which context "
            "is cannot be told: give more items, or constant="
        )
