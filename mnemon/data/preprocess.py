"""From stored uint8 pixels to what a likelihood takes: binarised, dequantised, or just scaled to [0, 1]."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from mnemon.core.random import stream
from mnemon.data.images import ImageSet

Binarise = Literal["none", "static", "dynamic", "fixed"]
CHUNK = 4096
"""Images per draw of `fix`: part of what a seed means, so not to be changed."""


@dataclass(frozen=True)
class Preprocessing:
    """How pixels become numbers.

    binarise:   "none"; "static" (a pixel above `threshold` is 1); "dynamic" (a pixel is 1 with probability
                x / 255, drawn anew each time in training, once for test data); "fixed" (such a draw, once, for all)
    dequantise: pixels become (x + u) / 256 with u uniform in [0, 1), for a density on [0, 1)

    Used in two steps: `data = fix(data)` once, then `batch = preprocessing(data.images[index])` per batch.
    """

    binarise: Binarise = "none"
    threshold: int = 127
    dequantise: bool = False

    def __post_init__(self) -> None:
        if self.binarise not in get_args(Binarise):
            raise ValueError(f"binarise: expected one of {', '.join(get_args(Binarise))}, got {self.binarise!r}")
        if not 0 <= self.threshold <= 254:
            raise ValueError(f"threshold: expected a pixel level from 0 to 254, got {self.threshold}")
        if self.dequantise and self.binarise != "none":
            raise ValueError(
                f"dequantise: expected binarise='none' with it, got {self.binarise!r}; binary pixels have a Bernoulli "
                "likelihood and need no added noise"
            )

    def fix(self, data: ImageSet, *, train: bool, seed: int = 0) -> ImageSet:
        """The part done once: binary data become 0 and 255; dynamic training data and plain data stay as they are.

        Draws come from the CPU, whatever device the images are on.
        """
        if self.binarise == "static":
            return dataclasses.replace(data, images=(data.images > self.threshold).to(torch.uint8) * 255)
        if self.binarise == "fixed" or (self.binarise == "dynamic" and not train):
            generator = stream(seed, *data.split.encode())
            chunks = [_draw(chunk.cpu(), generator).to(torch.uint8) * 255 for chunk in data.images.split(CHUNK)]
            return dataclasses.replace(data, images=torch.cat(chunks).to(data.images.device))
        return data

    def __call__(self, images: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """The part done per batch: uint8 to float32 in [0, 1]; vectors stay as they are.

        Pixels of 0 and 255 become exactly 0 and 1 under every binarisation, so fixed data stay fixed. "fixed"
        itself only scales: give it what `fix` returned. Shapes: (*, C, H, W) -> (*, C, H, W)
        """
        vectors = images.dtype == torch.float32 and images.shape[-2:] == (1, 1)
        if vectors and self.binarise == "none" and not self.dequantise:
            return images  # vectors: their numbers are what they are
        if images.dtype != torch.uint8:
            raise ValueError(f"preprocessing: expected uint8 images, got {images.dtype}; give it the stored pixels")
        if self.binarise == "static":
            return (images > self.threshold).float()
        if self.binarise == "dynamic":
            return _draw(images, generator).float()
        if self.dequantise:
            # 16 bits of u: x + u is then exact in float32, so that no pixel is rounded into the next level or to 1
            noise = (_uniform(images.shape, images.device, generator) * 65536).floor() / 65536
            return (images + noise) / 256
        return images.float() / 255


def _draw(images: Tensor, generator: torch.Generator | None) -> Tensor:
    """True with probability x / 255."""
    return _uniform(images.shape, images.device, generator) < images.float() / 255


def _uniform(shape: Sequence[int], device: torch.device, generator: torch.Generator | None) -> Tensor:
    return torch.rand(shape, device=device, generator=generator)
