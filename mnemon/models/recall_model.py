"""What the models without a likelihood share: they recall, and refuse whatever needs a density of images."""

from __future__ import annotations

import math
from typing import Any, NoReturn

import torch
from torch import Tensor

from mnemon.core.checks import check_size, holds
from mnemon.core.protocol import MemoryModel
from mnemon.core.state import State
from mnemon.memories.frames import Frames


class RecallModel(MemoryModel):
    """A memory that is written and read, of images in [0, 1]. A subclass says how."""

    def __init__(self, image_shape: tuple[int, ...]) -> None:
        super().__init__()
        self._image_shape = tuple(image_shape)

    @property
    def image_shape(self) -> tuple[int, ...]:
        return self._image_shape

    def memory_floats(self, state: State) -> int:
        """Numbers that one episode's memory needs."""
        return state.nbytes // (4 * max(1, math.prod(state.batch_shape)))

    def sample(self, state: Any, n: int = 1, *, generator: torch.Generator | None = None) -> Tensor:
        """What is recalled from uniform noise: mostly stored patterns, and mixtures of them. Not draws from a
        density, which this model has not. Shapes: -> (*B, n, *X)"""
        check_size("n", n)
        like = next(iter(state.tensors().values()))
        shape = (*state.batch_shape, n, *self.image_shape)
        return self.read(state, torch.rand(shape, dtype=like.dtype, device=like.device, generator=generator))

    def log_weights(
        self, state: Any, x: Tensor, *, num_samples: int = 1, generator: torch.Generator | None = None
    ) -> NoReturn:
        self._refuse("log_weights")

    def log_likelihood(
        self, state: Any, x: Tensor, *, num_samples: int = 1, generator: torch.Generator | None = None
    ) -> NoReturn:
        self._refuse("log_likelihood")

    def terms(
        self,
        x: Tensor,
        *,
        mask: Tensor | None = None,
        write_mask: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> NoReturn:
        self._refuse("terms")

    def _refuse(self, what: str) -> NoReturn:
        instead = "compare images of one memory by energy(state, x)" if hasattr(self, "energy") else "recall with read"
        raise ValueError(
            f"{what}: {type(self).__name__} has no likelihood; {instead}, or take a model with a codec for bounds"
        )

    def _check(self, where: str, x: Tensor, mask: Tensor | None = None) -> None:
        """Images of this model's shape, as floats in [0, 1]; masked ones may hold anything."""
        shape = ", ".join(map(str, self.image_shape))
        rank = len(self.image_shape)
        if x.ndim <= rank or tuple(x.shape[-rank:]) != self.image_shape:
            remedy = "add an item dimension" if tuple(x.shape) == self.image_shape else "resize the images to this size"
            raise ValueError(f"{where}: expected x (*B, T, {shape}), got {tuple(x.shape)}; {remedy}")
        if not x.is_floating_point():
            raise ValueError(f"{where}: expected images as floats in [0, 1], got {x.dtype}; divide by 255")
        x = self._present(x, mask)
        if not holds((x >= 0) & (x <= 1)):
            raise ValueError(
                f"{where}: expected values in [0, 1], got {float(x.min()):g} to {float(x.max()):g}; this memory's "
                "recall stays in that interval, so scale the images to it"
            )

    def _check_state(self, where: str, state: Any, kind: type[State], sizes: tuple[int, ...]) -> None:
        """A state of one class whose first tensor ends in the given sizes; -1 stands for any."""
        tensor = next(iter(state.tensors().values())) if isinstance(state, kind) else None
        ending = () if tensor is None else tuple(tensor.shape[tensor.ndim - len(sizes) :])
        if len(ending) != len(sizes) or any(want not in (-1, got) for want, got in zip(sizes, ending, strict=True)):
            got = type(state).__name__ if tensor is None else tuple(tensor.shape)
            wanted = ", ".join("any" if size < 0 else str(size) for size in sizes)
            raise ValueError(f"{where}: expected a {kind.__name__} (*B, {wanted}), got {got}; other models' do not fit")

    def _present(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Absent images as 0: they may hold anything, also NaN."""
        return x if mask is None else torch.where(mask.reshape(*mask.shape, *(1,) * len(self.image_shape)), x, 0.0)

    def _counts(self, where: str, x: Tensor, mask: Tensor | None, weights: Tensor | None) -> Tensor | None:
        """How often each item is written, after checks of what says so; None: once each. Shapes: -> (*B, T)"""
        if mask is None and weights is None and x.numel():
            return None
        item = torch.zeros((*x.shape[: x.ndim - len(self.image_shape)], 1), dtype=x.dtype, device=x.device)
        return Frames.gather(where, item, 1, mask, weights).counts

    def _filled(self, cue: Tensor, observed: Tensor | None) -> Tensor:
        """Cues to begin with: unobserved pixels are 0, as the corruptions leave erased ones."""
        return cue if observed is None else torch.where(observed, cue, 0.0)
