"""What the models without a likelihood share: they recall, and refuse whatever needs a density of images."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, ClassVar, NoReturn

import torch
from torch import Tensor

from mnemon.core.checks import check_images, check_observed, check_size, common_batch, holds
from mnemon.core.protocol import MemoryModel
from mnemon.core.state import State
from mnemon.memories.frames import Frames


class RecallModel(MemoryModel):
    """A memory that is written and read, of images in [0, 1]. A subclass says how, and what its states are."""

    state_kind: ClassVar[type[State]]

    def __init__(self, image_shape: tuple[int, ...]) -> None:
        super().__init__()
        self._image_shape = tuple(image_shape)

    @property
    def image_shape(self) -> tuple[int, ...]:
        return self._image_shape

    def memory_floats(self, state: State) -> int:
        """Numbers that one episode's memory needs."""
        return sum(tensor.numel() for tensor in state.tensors().values()) // max(1, math.prod(state.batch_shape))

    @property
    @abstractmethod
    def _sizes(self) -> tuple[int, ...]:
        """What the first tensor of a state ends in; -1 stands for any."""

    def write(
        self,
        x: Tensor,
        *,
        prior: Any = None,
        mask: Tensor | None = None,
        weights: Tensor | None = None,
        num_steps: int | None = None,
        generator: torch.Generator | None = None,
    ) -> Any:
        """Write patterns into a fresh memory, or into that of `prior`, which stays as it was. Masked ones may hold
        anything."""
        if num_steps is not None:
            check_size("num_steps", num_steps)
        self._check_images("write", x)
        counts = self._counts("write", x, mask, weights)
        x = self._present(x, mask)
        self._check_range("write", x)
        if prior is not None:
            self._check_state("write: prior", prior, x)
        return self._write(x, prior, counts, num_steps, generator)

    @abstractmethod
    def _write(
        self,
        x: Tensor,
        prior: Any,
        counts: Tensor | None,
        num_steps: int | None,
        generator: torch.Generator | None,
    ) -> Any:
        """What is checked already. counts: how often each item is written; None: once each. Shapes: x (*B, T, *X)"""

    def read(
        self,
        state: Any,
        cue: Tensor,
        *,
        observed: Tensor | None = None,
        steps: int = 1,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """`steps` reads, each from where the last one ended; unobserved pixels start from 0, as erased ones do in
        training. Nothing is drawn. Shapes: (*B, Q, *X) -> (*B, Q, *X)"""
        check_size("steps", steps)
        self._check_images("read", cue)
        if observed is not None:
            check_observed("read", observed, cue.shape)
        recalled = current = cue if observed is None else torch.where(observed, cue, 0.0)
        self._check("read", current, state)
        for _ in range(steps):
            recalled = self._recall(state, current)
            current = recalled if observed is None else torch.where(observed, cue, recalled)
        return recalled

    @abstractmethod
    def _recall(self, state: Any, x: Tensor) -> Tensor:
        """One read of what is checked already. Shapes: (*B, Q, *X) -> (*B, Q, *X)"""

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

    def _check(self, where: str, x: Tensor, state: Any) -> None:
        """Images of this model's shape, as floats in [0, 1], and a state of this model's."""
        self._check_images(where, x)
        self._check_range(where, x)
        self._check_state(where, state, x)

    def _check_images(self, where: str, x: Tensor) -> None:
        """Of this model's shape and precision."""
        check_images(where, x, self.image_shape)
        own = next((parameter.dtype for parameter in self.parameters()), None)
        known = (torch.float32, torch.float64) if own is None else (own,)
        if x.dtype not in known:
            wanted = " or ".join(map(str, known))
            raise ValueError(f"{where}: expected images of {wanted}, got {x.dtype}; convert with x.to({known[0]})")

    def _check_range(self, where: str, x: Tensor) -> None:
        if not holds((x >= 0) & (x <= 1)):
            if not holds(x.isfinite()):
                raise ValueError(f"{where}: expected finite values in [0, 1], got NaN or infinity; look at the images")
            raise ValueError(
                f"{where}: expected values in [0, 1], got {float(x.min()):g} to {float(x.max()):g}; this memory's "
                "recall stays in that interval, so scale the images to it"
            )

    def _check_state(self, where: str, state: Any, x: Tensor) -> None:
        """A state of this model's, that images can be written into or read from."""
        kind, sizes = self.state_kind, self._sizes
        tensor = next(iter(state.tensors().values())) if isinstance(state, kind) else None
        ending = () if tensor is None else tuple(tensor.shape[tensor.ndim - len(sizes) :])
        if len(ending) != len(sizes) or any(want not in (-1, got) for want, got in zip(sizes, ending, strict=True)):
            got = type(state).__name__ if tensor is None else tuple(tensor.shape)
            wanted = ", ".join("any" if size < 0 else str(size) for size in sizes)
            raise ValueError(f"{where}: expected a {kind.__name__} (*B, {wanted}), got {got}; other models' do not fit")
        assert tensor is not None
        if tensor.dtype != x.dtype:
            raise ValueError(f"{where}: expected a memory of {x.dtype} as the images, got {tensor.dtype}; use state.to")
        self._batch(where, state, x)

    def _batch(self, where: str, state: Any, x: Tensor) -> torch.Size:
        """*B of memories and images together."""
        return common_batch(where, state.batch_shape, x.shape[: x.ndim - len(self.image_shape) - 1])

    def _flat(self, x: Tensor) -> Tensor:
        """Shapes: (*B, T, *X) -> (*B, T, D)"""
        return x.flatten(x.ndim - len(self.image_shape))

    def _present(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Absent images as 0: they may hold anything, also NaN."""
        return x if mask is None else torch.where(mask.bool()[(..., *(None,) * len(self.image_shape))], x, 0.0)

    def _counts(self, where: str, x: Tensor, mask: Tensor | None, weights: Tensor | None) -> Tensor | None:
        """How often each item is written, after checks of what says so; None: once each. Shapes: -> (*B, T)"""
        if mask is None and weights is None and x.numel():
            return None
        item = torch.zeros((*x.shape[: x.ndim - len(self.image_shape)], 1), dtype=x.dtype, device=x.device)
        return Frames.gather(where, item, 1, mask, weights).counts
