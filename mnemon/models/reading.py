"""Reading a memory again and again: each picture is the cue for the next. VBM, G.2."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mnemon.core.checks import check_size
from mnemon.core.protocol import MemoryModel
from mnemon.models.codec_model import CodecModel

BLOCK = 1024
"""Images whose distances to an episode are held at a time."""


@torch.no_grad()
def iterate(
    model: MemoryModel,
    state: Any,
    n: int,
    steps: int,
    *,
    generator: torch.Generator | None = None,
    mean_images: bool = True,
) -> Tensor:
    """Generate n pictures, then read each of them `steps` times through the memory, drawing all latents.

    mean_images  pictures, and so the next cues, are the mean images of drawn codes (Differs from paper: it draws
                 the pixels too, as False does)

    Shapes: -> (*B, n, steps + 1, *X), the generated picture first. VBM, G.2.
    """
    if not isinstance(model, CodecModel):
        raise ValueError(f"iterate: expected a model with a codec, got a {type(model).__name__}")
    check_size("n", n)
    check_size("steps", steps)
    if generator is None:  # reading draws only when it is given one
        device = next(model.parameters()).device
        generator = torch.Generator(device).manual_seed(int(torch.randint(2**62, ())))
    pictures = [model.sample(state, n, sample_pixels=not mean_images, generator=generator)]
    for _ in range(steps):
        pictures.append(model.read(state, pictures[-1], sample_pixels=not mean_images, generator=generator))
    return torch.stack(pictures, dim=pictures[0].ndim - len(model.codec.image_shape))


@torch.no_grad()
def nearest(images: Tensor, episode: Tensor, *, image_ndim: int = 3) -> Tensor:
    """Index of the episode's image with the least squared error to each image.

    Shapes: (*B, n, *X), (*B, T, *X) -> (*B, n); batch dimensions broadcast
    """
    shape = images.shape[images.ndim - image_ndim :]
    if min(images.ndim, episode.ndim) <= image_ndim or episode.shape[episode.ndim - image_ndim :] != shape:
        raise ValueError(
            f"nearest: expected images (*B, n, *X) and an episode (*B, T, *X) of one image shape *X with "
            f"{image_ndim} dimensions, got {tuple(images.shape)} and {tuple(episode.shape)}"
        )
    wide = torch.promote_types(images.dtype, torch.float32)
    flat, known = (x.flatten(-image_ndim).to(wide) for x in (images, episode))
    # by differences: products would lose the digits that tell near images apart
    exact = "donot_use_mm_for_euclid_dist"
    return torch.cat([torch.cdist(part, known, compute_mode=exact).argmin(-1) for part in flat.split(BLOCK, -2)], -1)
