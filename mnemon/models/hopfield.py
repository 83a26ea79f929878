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
from mnemon.memories.hopfield import HopfieldState, Rule, retrieve, settle, write_couplings
from mnemon.memories.slots import ItemState
from mnemon.models.recall_model import RecallModel


class HopfieldModel(RecallModel):
    """A Hopfield network with a unit for every pixel; pixels above 1/2 are on. Recall gives 0 and 1.

    rule  "hebb" or "storkey"
    """

    def __init__(self, image_shape: tuple[int, ...], rule: Rule = "storkey", *, num_sweeps: int = 10) -> None:
        super().__init__(image_shape)
        check_size("num_sweeps", num_sweeps)
        self.rule, self.num_sweeps, self.size = rule, num_sweeps, math.prod(image_shape)

    def memory_floats(self, state: State) -> int:
        """Couplings of pairs, and a threshold for every unit (0 here)."""
        return self.size * (self.size - 1) // 2 + self.size

    def write(
        self,
        x: Tensor,
        *,
        prior: HopfieldState | None = None,
        mask: Tensor | None = None,
        weights: Tensor | None = None,
        num_steps: int | None = None,
        generator: torch.Generator | None = None,
    ) -> HopfieldState:
        self._check("write", x, mask)
        if prior is not None:
            self._check_state("write: prior", prior, HopfieldState, (self.size, self.size))
        counts = self._counts("write", x, mask, weights)
        start = None if prior is None else prior.weights
        return HopfieldState(
            write_couplings(self._signs(self._present(x, mask)), self.rule, start=start, counts=counts)
        )

    def read(
        self,
        state: HopfieldState,
        cue: Tensor,
        *,
        observed: Tensor | None = None,
        steps: int = 1,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        check_size("steps", steps)
        current = self._filled(cue, observed)
        self._check("read", current)
        self._check_state("read", state, HopfieldState, (self.size, self.size))
        recalled = current
        for _ in range(steps):
            units = settle(state.weights, self._signs(current), self.num_sweeps)
            recalled = ((units + 1) / 2).unflatten(-1, self.image_shape)
            current = recalled if observed is None else torch.where(observed, cue, recalled)
        return recalled

    def prior_state(self, batch_shape: tuple[int, ...] = ()) -> HopfieldState:
        return HopfieldState(torch.zeros(*batch_shape, self.size, self.size))

    def _signs(self, x: Tensor) -> Tensor:
        """Shapes: (*B, T, *X) -> (*B, T, D) of -1 and 1"""
        return torch.where(x.flatten(x.ndim - len(self.image_shape)) > 0.5, 1.0, -1.0).to(x.dtype)


class ModernHopfieldModel(RecallModel):
    """All patterns are kept; recall moves to their mean under softmax(beta <pattern, cue>), pixels as 2 x - 1.

    Its memory grows with the episode: it is an upper mark, not a rival at equal size.
    """

    def __init__(self, image_shape: tuple[int, ...], beta: float = 1.0) -> None:
        super().__init__(image_shape)
        self.beta = beta

    def write(
        self,
        x: Tensor,
        *,
        prior: ItemState | None = None,
        mask: Tensor | None = None,
        weights: Tensor | None = None,
        num_steps: int | None = None,
        generator: torch.Generator | None = None,
    ) -> ItemState:
        return _stored(self, x, prior, mask, weights)

    def read(
        self,
        state: ItemState,
        cue: Tensor,
        *,
        observed: Tensor | None = None,
        steps: int = 1,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        check_size("steps", steps)
        return _read_patterns(self, state, cue, observed, steps, self.beta)


class SlotMemory(RecallModel):
    """Keeps the images that fit into a number of floats, a random subset of the episode, and recalls the nearest.

    capacity  floats; None keeps everything
    """

    def __init__(self, image_shape: tuple[int, ...], capacity: int | None = None) -> None:
        super().__init__(image_shape)
        self.num_slots = None if capacity is None else capacity // math.prod(image_shape)
        if self.num_slots is not None and self.num_slots < 1:
            raise ValueError(
                f"capacity: expected room for an image of {math.prod(image_shape)} numbers, got {capacity}"
            )

    def write(
        self,
        x: Tensor,
        *,
        prior: ItemState | None = None,
        mask: Tensor | None = None,
        weights: Tensor | None = None,
        num_steps: int | None = None,
        generator: torch.Generator | None = None,
    ) -> ItemState:
        """Which images stay is drawn."""
        state = _stored(self, x, prior, mask, weights)
        if self.num_slots is None or state.num_slots <= self.num_slots:
            return state
        keys = torch.rand(state.items.shape[:-1], device=x.device, generator=generator)
        if state.counts is not None:  # what is there goes before what is not
            keys = torch.where(state.counts > 0, keys, 2.0)
        kept = keys.argsort(-1)[..., : self.num_slots]
        items = state.items.gather(-2, kept[..., None].expand(*kept.shape, state.items.shape[-1]))
        return _unkeyed(items, None if state.counts is None else state.counts.gather(-1, kept))

    def read(
        self,
        state: ItemState,
        cue: Tensor,
        *,
        observed: Tensor | None = None,
        steps: int = 1,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        check_size("steps", steps)
        return _read_patterns(self, state, cue, observed, steps, math.inf)


class CopyModel(ModernHopfieldModel):
    """Remembers nothing: what is read is the cue."""

    def read(
        self,
        state: ItemState,
        cue: Tensor,
        *,
        observed: Tensor | None = None,
        steps: int = 1,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        return self._filled(cue, observed)

    def memory_floats(self, state: State) -> int:
        return 0


def _stored(
    model: RecallModel, x: Tensor, prior: ItemState | None, mask: Tensor | None, weights: Tensor | None
) -> ItemState:
    """The items, after those of `prior`. Shapes: x (*B, T, *X)"""
    model._check("write", x, mask)
    counts = model._counts("write", x, mask, weights)
    new = _unkeyed(model._present(x, mask).flatten(x.ndim - len(model.image_shape)), counts).compact()
    if prior is None:
        return new
    model._check_state("write: prior", prior, ItemState, (-1, math.prod(model.image_shape)))
    return prior.append(new)


def _unkeyed(items: Tensor, counts: Tensor | None) -> ItemState:
    """Items that are compared as they are, and need no keys."""
    return ItemState(items, items[..., :0], counts)


def _read_patterns(
    model: RecallModel, state: ItemState, cue: Tensor, observed: Tensor | None, steps: int, beta: float
) -> Tensor:
    """Means of stored patterns under softmax(beta <.,.>); the nearest one where beta is infinite."""
    size = math.prod(model.image_shape)
    current = model._filled(cue, observed)
    model._check("read", current)
    model._check_state("read", state, ItemState, (-1, size))
    known = 2 * state.items - 1
    if state.counts is not None:
        known = known * (state.counts > 0)[..., None]
    recalled = current
    for _ in range(steps):
        flat = 2 * current.flatten(current.ndim - len(model.image_shape)) - 1
        if beta == math.inf:
            far = torch.cdist(flat, known)
            if state.counts is not None:
                far = torch.where(state.counts[..., None, :] > 0, far, math.inf)
            place = far.argmin(-1)[..., None].expand(*flat.shape[:-1], size)
            found = known.expand(*flat.shape[:-2], *known.shape[-2:]).gather(-2, place)
        else:
            found = retrieve(known, flat, beta)
        recalled = ((found + 1) / 2).unflatten(-1, model.image_shape)
        current = recalled if observed is None else torch.where(observed, cue, recalled)
    return recalled
