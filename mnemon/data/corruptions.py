"""Damage to images: five kinds of noise, and two of missing parts.

Images are floats in [0, 1], shaped (*, C, H, W) with any leading dimensions, on any device, and stay in [0, 1].
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Generator, Tensor

from mnemon.core.checks import check_size, truth

Side = Literal["left", "right", "top", "bottom"]
SIDES: tuple[Side, ...] = get_args(Side)


def salt_and_pepper(x: Tensor, level: float, generator: Generator | None = None) -> Tensor:
    """Each pixel is replaced with probability `level`, by 0 or 1 with equal chance, in all channels together."""
    _check("salt_and_pepper", x, level)
    if level > 1:
        raise ValueError(f"salt_and_pepper: expected a probability as level, got {level}")
    draw = torch.rand((*x.shape[:-3], 1, *x.shape[-2:]), device=x.device, generator=generator)
    return x.where(draw >= level, (draw >= level / 2).to(x.dtype))


def flip(x: Tensor, level: float, generator: Generator | None = None) -> Tensor:
    """Each value is turned round, 1 - x, with probability `level`, by itself: of bits, that many are wrong."""
    _check("flip", x, level)
    if level > 1:
        raise ValueError(f"flip: expected a probability as level, got {level}")
    return x.where(torch.rand(x.shape, device=x.device, generator=generator) >= level, 1 - x)


def gaussian(x: Tensor, level: float, generator: Generator | None = None) -> Tensor:
    """x + level * e with standard normal e: `level` is the standard deviation."""
    _check("gaussian", x, level)
    return (x + level * _normal(x, generator)).clamp(0, 1)


def speckle(x: Tensor, level: float, generator: Generator | None = None) -> Tensor:
    """x + x * level * e with standard normal e: noise in proportion to brightness."""
    _check("speckle", x, level)
    return (x + x * level * _normal(x, generator)).clamp(0, 1)


def poisson(x: Tensor, level: float, generator: Generator | None = None) -> Tensor:
    """Counted light: Poisson(x / level) * level, so a white pixel counts 1 / level photons on average.

    The mean is x and the variance level * x; a level of 0 is no noise.
    """
    _check("poisson", x, level)
    return (torch.poisson(x / level, generator=generator) * level).clamp(0, 1) if level > 0 else x.clone()


def block(x: Tensor, size: int, generator: Generator | None = None) -> tuple[Tensor, Tensor]:
    """A square of `size` pixels is erased to 0, at a random place in each image.

    Also returns what is still observed. Shapes: (*, C, H, W) -> (*, C, H, W), bool (*, 1, H, W)
    """
    _check("block", x, size)
    check_size("block: size", size)
    height, width = x.shape[-2:]
    if size > min(height, width):
        raise ValueError(
            f"block: expected a size of at most {min(height, width)} in {height} x {width} images, got {size}"
        )
    inside = [_span(x, length, size, generator) for length in (height, width)]
    observed = ~(inside[0].unsqueeze(-1) & inside[1].unsqueeze(-2)).unsqueeze(-3)
    return x * observed, observed


def half(x: Tensor, side: Side) -> tuple[Tensor, Tensor]:
    """The left, right, top or bottom half is erased to 0 (of an odd length, the smaller half).

    Also returns what is still observed. Shapes: (*, C, H, W) -> (*, C, H, W), bool (1, H, W)
    """
    _check("half", x, 0)
    if side not in SIDES:
        raise ValueError(f"half: expected the side to erase, one of {', '.join(SIDES)}, got {side!r}")
    observed = torch.ones((1, *x.shape[-2:]), dtype=torch.bool, device=x.device)
    line = observed.mT if side in ("left", "right") else observed  # a view, so this changes `observed`
    erased = line.shape[-2] // 2
    if side in ("left", "top"):
        line[:, :erased] = False
    else:
        line[:, line.shape[-2] - erased :] = False
    return x * observed, observed


def corrupt(name: str, x: Tensor, level: float, generator: Generator | None = None) -> tuple[Tensor, Tensor | None]:
    """Apply a corruption by name; returns the damaged images and what is observed (None for noise: everything is).

    `level` is the noise's own; the size in pixels for "block"; for "half" 0 left, 1 right, 2 top, 3 bottom.
    """
    if name not in CORRUPTIONS:
        near = difflib.get_close_matches(str(name), CORRUPTIONS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"corrupt: expected one of {', '.join(sorted(CORRUPTIONS))}, got {name!r}{hint}")
    return CORRUPTIONS[name](x, level, generator)


Corruption = Callable[[Tensor, float, Generator | None], tuple[Tensor, Tensor | None]]


def _noise(function: Callable[[Tensor, float, Generator | None], Tensor]) -> Corruption:
    def apply(x: Tensor, level: float, generator: Generator | None = None) -> tuple[Tensor, Tensor | None]:
        return function(x, level, generator), None

    return apply


def _block(x: Tensor, level: float, generator: Generator | None = None) -> tuple[Tensor, Tensor | None]:
    return block(x, int(level) if level == math.floor(level) else level, generator)  # type: ignore[arg-type]


def _half(x: Tensor, level: float, generator: Generator | None = None) -> tuple[Tensor, Tensor | None]:
    if level not in range(len(SIDES)):
        raise ValueError(f"half: expected level 0 (left), 1 (right), 2 (top) or 3 (bottom), got {level}")
    return half(x, SIDES[int(level)])


CORRUPTIONS: dict[str, Corruption] = {
    "salt_and_pepper": _noise(salt_and_pepper),
    "flip": _noise(flip),
    "speckle": _noise(speckle),
    "poisson": _noise(poisson),
    "gaussian": _noise(gaussian),
    "block": _block,
    "half": _half,
}


def _normal(x: Tensor, generator: Generator | None) -> Tensor:
    return torch.randn(x.shape, dtype=x.dtype, device=x.device, generator=generator)


def _span(x: Tensor, length: int, size: int, generator: Generator | None) -> Tensor:
    """True on `size` neighbours at a random place, one draw per image. Shapes: -> (*, length)"""
    first = torch.randint(length - size + 1, (*x.shape[:-3], 1), device=x.device, generator=generator)
    place = torch.arange(length, device=x.device)
    return (place >= first) & (place < first + size)


def _check(where: str, x: Tensor, level: float) -> None:
    if not isinstance(x, Tensor) or not x.dtype.is_floating_point or x.ndim < 3:
        got = f"{x.dtype} {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(f"{where}: expected float images (*, C, H, W) in [0, 1], got {got}; preprocess them first")
    if truth((x >= 0) & (x <= 1)) is False:
        raise ValueError(
            f"{where}: expected images in [0, 1], got {x.min():g} to {x.max():g}; divide 8-bit pixels by 255"
        )
    if not 0 <= level < math.inf:
        raise ValueError(f"{where}: expected a finite level of at least 0, got {level}")
