"""What the models with a codec share: reading by steps, importance-weighted bounds, input checks."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from mnemon import objectives
from mnemon.core.checks import check_size
from mnemon.core.protocol import Bound, MemoryModel
from mnemon.distributions.gaussian import LOG_2PI
from mnemon.nets.codec import Codec


class CodecModel(MemoryModel):
    """A memory model over the codes of a codec. A subclass says what its memory makes of a code."""

    def __init__(self, codec: Codec) -> None:
        super().__init__()
        self.codec = codec

    @abstractmethod
    def _recall_codes(self, state: Any, cue: Tensor, generator: torch.Generator | None) -> Tensor:
        """Codes that the memory recalls from images. Shapes: (*B, Q, *X) -> (*B, Q, C)"""

    @abstractmethod
    def _blank(self, state: Any) -> Tensor:
        """What unobserved pixels start from: the image of the memory's mean code. Shapes: -> (*B, *X)"""

    @abstractmethod
    def _log_weight(self, state: Any, x: Tensor, generator: torch.Generator | None) -> Tensor:
        """One draw of log p(x, latents | memory) / q(latents). Shapes: (*B, Q, *X) -> (*B, Q)"""

    def _present(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Masked images may hold anything, also NaN, which would spread through the gradient: blank them."""
        return x if mask is None else torch.where(mask.reshape(mask.shape + (1,) * len(self.codec.image_shape)), x, 0.0)

    def read(
        self,
        state: Any,
        cue: Tensor,
        *,
        observed: Tensor | None = None,
        steps: int = 1,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        check_size("steps", steps)
        self.codec.check("read", cue)
        current = cue
        if observed is not None:
            blank = self._blank(state)
            current = torch.where(observed, cue, blank.unsqueeze(blank.ndim - len(self.codec.image_shape)))
        recalled = current
        for _ in range(steps):
            recalled = self.codec.image(self._recall_codes(state, current, generator), generator)
            current = recalled if observed is None else torch.where(observed, cue, recalled)
        return recalled

    def log_weights(
        self, state: Any, x: Tensor, *, num_samples: int = 1, generator: torch.Generator | None = None
    ) -> Tensor:
        check_size("num_samples", num_samples)
        self.codec.check("log_weights", x)
        return torch.stack([self._log_weight(state, x, generator) for _ in range(num_samples)])

    def log_likelihood(
        self, state: Any, x: Tensor, *, num_samples: int = 1, generator: torch.Generator | None = None
    ) -> Bound:
        return objectives.bound(self.log_weights(state, x, num_samples=num_samples, generator=generator))


def log_normal(z: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """log N(z; mean, diag(variance)). Shapes: (*B, C), the others broadcast to it -> (*B)"""
    return -0.5 * ((z - mean).square() / variance + variance.log() + LOG_2PI).expand(z.shape).sum(-1)
