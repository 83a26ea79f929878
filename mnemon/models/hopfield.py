"""Associative memories without training, under the protocol: what an energy-based memory is measured against.

Hopfield networks of the images' bits (Hebb, Storkey), modern Hopfield retrieval, slots that keep as many images as fit,
and copying: the cue itself.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mnemon.core.checks import check_size
from mnemon.core.state import State
from mnemon.memories.hopfield import HopfieldState, Rule, check_rule, retrieve, settle, write_couplings
from mnemon.memories.slots import ItemState
from mnemon.models.recall_model import RecallModel


class HopfieldModel(RecallModel):
    """A Hopfield network with a unit for every pixel; pixels above 1/2 are on. Recall gives 0 and 1.

    rule  "hebb" or "storkey"
    """

    state_kind = HopfieldState

    def __init__(self, image_shape: tuple[int, ...], rule: Rule = "storkey", *, num_sweeps: int = 10) -> None:
        super().__init__(image_shape)
        check_size("num_sweeps", num_sweeps)
        check_rule(rule)
        self.rule, self.num_sweeps, self.size = rule, num_sweeps, math.prod(image_shape)

    @property
    def _sizes(self) -> tuple[int, int]:
        return self.size, self.size

    def memory_floats(self, state: State) -> int:
        """Couplings of pairs, and a threshold for every unit (0 here)."""
        return self.size * (self.size - 1) // 2 + self.size

    def _write(
        self,
        x: Tensor,
        prior: HopfieldState | None,
        counts: Tensor | None,
        num_steps: int | None,
        generator: torch.Generator | None,
    ) -> HopfieldState:
        start = None if prior is None else prior.weights
        return HopfieldState(write_couplings(self._signs(x), self.rule, start=start, counts=counts))

    def _recall(self, state: HopfieldState, x: Tensor) -> Tensor:
        return ((settle(state.weights, self._signs(x), self.num_sweeps) + 1) / 2).unflatten(-1, self.image_shape)

    def prior_state(self, batch_shape: tuple[int, ...] = ()) -> HopfieldState:
        return HopfieldState(torch.zeros(*batch_shape, self.size, self.size))

    def _signs(self, x: Tensor) -> Tensor:
        """Shapes: (*B, T, *X) -> (*B, T, D) of -1 and 1"""
        return torch.where(self._flat(x) > 0.5, 1.0, -1.0).to(x.dtype)


class PatternModel(RecallModel):
    """Keeps the patterns as they came; a subclass says what is recalled from them."""

    state_kind = ItemState

    @property
    def _sizes(self) -> tuple[int, int]:
        return -1, math.prod(self.image_shape)

    def _write(
        self,
        x: Tensor,
        prior: ItemState | None,
        counts: Tensor | None,
        num_steps: int | None,
        generator: torch.Generator | None,
    ) -> ItemState:
        """The items, after those of `prior`. They are compared as they are, and need no keys."""
        items = self._flat(x)
        new = ItemState(items, items[..., :0], counts).compact()
        return self._keep(new if prior is None else prior.append(new), generator)

    def _keep(self, state: ItemState, generator: torch.Generator | None) -> ItemState:
        """What stays of all that was written."""
        return state


class ModernHopfieldModel(PatternModel):
    """All patterns are kept; recall moves to their mean under softmax(beta <pattern, cue>), pixels as 2 x - 1.

    Its memory grows with the episode: it is an upper mark, not a rival at equal size.
    """

    def __init__(self, image_shape: tuple[int, ...], beta: float = 1.0) -> None:
        super().__init__(image_shape)
        if not 0 < beta < math.inf:
            raise ValueError(f"beta: expected a positive, finite number, got {beta}")
        self.beta = beta

    def _recall(self, state: ItemState, x: Tensor) -> Tensor:
        found = retrieve(2 * state.items - 1, 2 * self._flat(x) - 1, self.beta, counts=state.counts)
        return ((found + 1) / 2).clamp(0, 1).unflatten(-1, self.image_shape)  # a mean may round to beyond them


class SlotMemory(PatternModel):
    """Keeps the images that fit into a number of floats, a random subset of the episode, and recalls the nearest.

    capacity  floats; None keeps everything. Written on (`prior=`), it draws from what it holds and what is new alike,
              so that of what was written long ago less is left
    """

    def __init__(self, image_shape: tuple[int, ...], capacity: int | None = None) -> None:
        super().__init__(image_shape)
        self.num_slots = None if capacity is None else capacity // math.prod(image_shape)
        if self.num_slots is not None and self.num_slots < 1:
            raise ValueError(
                f"capacity: expected room for an image of {math.prod(image_shape)} numbers, got {capacity}"
            )

    def memory_floats(self, state: State) -> int:
        """Of all slots, also of those that a short episode leaves empty."""
        return super().memory_floats(state) if self.num_slots is None else self.num_slots * math.prod(self.image_shape)

    def _keep(self, state: ItemState, generator: torch.Generator | None) -> ItemState:
        """Which images stay is drawn."""
        if self.num_slots is None or state.num_slots <= self.num_slots:
            return state
        order = torch.rand(state.items.shape[:-1], device=state.items.device, generator=generator)
        if state.counts is not None:  # what is there goes before what is not
            order = torch.where(state.counts > 0, order, 2.0)
        kept = order.argsort(-1)[..., : self.num_slots]
        items = state.items.take_along_dim(kept[..., None], -2)
        return ItemState(items, items[..., :0], None if state.counts is None else state.counts.gather(-1, kept))

    def _recall(self, state: ItemState, x: Tensor) -> Tensor:
        far = torch.cdist(self._flat(x), state.items)
        if state.counts is not None:
            far = torch.where(state.counts[..., None, :] > 0, far, math.inf)
        items = state.items.expand(*far.shape[:-2], *state.items.shape[-2:])  # one memory may be read by many
        return items.take_along_dim(far.argmin(-1)[..., None], -2).unflatten(-1, self.image_shape)


class CopyModel(PatternModel):
    """Remembers nothing: what is read is the cue."""

    def memory_floats(self, state: State) -> int:
        return 0

    def _recall(self, state: ItemState, x: Tensor) -> Tensor:
        return x.expand(*self._batch("read", state, x), *x.shape[x.ndim - len(self.image_shape) - 1 :])
