"""Images of known factors (digit and background, digit and angle), and episodes that hold some of them constant."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from mnemon.core.patterns import Constant, constant_patterns
from mnemon.core.random import stream
from mnemon.data.episodes import EpisodeBatches, check_sizes, whole_batches
from mnemon.data.images import ImageSet

FACTORS = 6
"""The random stream of this file."""
NUM_ANGLES = 8
"""Thesis, 6.4.2."""
COPIES = 2
"""Angles that each image is shown at."""


@dataclass(frozen=True)
class FactorEpisodes:
    """Episodes whose images have the same value of the constant factors, and any values of the others.

    Which factors are constant is drawn for each episode, `shares` telling how often each pattern comes. The first image
    is drawn from all, which gives the values of the constant factors; the others from those that share them, so that an
    image may come twice.
    """

    episode_length: int
    batch_size: int
    constant: Constant = "one"
    shares: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        check_sizes(self, "episode_length", "batch_size")
        if self.episode_length < 2:
            raise ValueError(
                "episode_length: expected at least 2 items, got 1; in a data set of one item everything is constant"
            )

    def num_batches(self, data: ImageSet) -> int:
        return whole_batches(data, self.batch_size, self.episode_length)

    def epoch(self, data: ImageSet, *, seed: int, epoch: int) -> EpisodeBatches:
        factors = check_factors(data, "FactorEpisodes")
        batches = self.num_batches(data)
        number = batches * self.batch_size
        generator = stream(seed, epoch, FACTORS)
        table = constant_patterns(factors.shape[1], self.constant)
        chosen = torch.multinomial(self._shares(len(table)), number, replacement=True, generator=generator)
        first = torch.randint(len(factors), (number,), generator=generator)
        places = torch.rand(number, self.episode_length - 1, dtype=torch.float64, generator=generator)
        others = torch.empty(number, self.episode_length - 1, dtype=torch.int64)
        for at, pattern in enumerate(table):
            mine = chosen == at
            others[mine] = _alike(factors[:, pattern], first[mine], places[mine])
        index = torch.cat((first[:, None], others), 1)
        shape = (batches, self.batch_size)
        return EpisodeBatches(index.view(*shape, -1), constant=table[chosen].view(*shape, -1))

    def _shares(self, number: int) -> Tensor:
        if not self.shares:
            return torch.ones(number)
        if len(self.shares) != number or min(self.shares) < 0 or sum(self.shares) <= 0:
            raise ValueError(
                f"data.constant_shares: expected {number} shares of at least 0, one for each pattern of constant "
                f"factors, got {self.shares}"
            )
        return torch.tensor(self.shares)


def check_factors(data: ImageSet, where: str) -> Tensor:
    """The factors of a set that has them."""
    if data.factors is None:
        raise ValueError(
            f"{where}: expected images of known factors, but {data.name} has none; take black_white_mnist, "
            "rotated_mnist or glyph_factors"
        )
    return data.factors.cpu()


def _alike(factors: Tensor, first: Tensor, places: Tensor) -> Tensor:
    """Images with the same factors as the first of each episode. Shapes: (N, f), (E), (E, n) -> (E, n)"""
    kind = factors.unique(dim=0, return_inverse=True)[1] if factors.shape[1] else torch.zeros(len(factors)).long()
    counts = kind.bincount()
    order, starts = kind.argsort(stable=True), counts.cumsum(0) - counts
    mine = kind[first, None]
    return order[starts[mine] + (places * counts[mine]).long()]


def black_and_white(data: ImageSet) -> ImageSet:
    """Every image twice: as it is, and with ink and background exchanged. Factors: class, background; groups: the two
    of one image. Thesis, 6.4.1"""
    labels = _labels(data, "black_and_white")
    factors = torch.stack((labels.repeat(2), torch.arange(2).repeat_interleave(len(data))), 1)
    return ImageSet(
        torch.cat((data.images, 255 - data.images)), labels.repeat(2), f"black_white_{data.name}", data.split,
        factors=factors, factor_names=("digit", "background"), groups=torch.arange(len(data)).repeat(2),
    )  # fmt: skip


def rotated(data: ImageSet, num_angles: int = NUM_ANGLES, copies: int = COPIES, seed: int = 0) -> ImageSet:
    """Every image at `copies` different ones of evenly spaced angles. Factors: class, angle; groups: the copies of one
    image. Thesis, 6.4.2"""
    labels = _labels(data, "rotated")
    generator = stream(seed, FACTORS, len(data))
    angles = torch.rand(len(data), num_angles, generator=generator).argsort(1)[:, :copies]
    turned = [rotate(data.images, angles[:, at] * (2 * math.pi / num_angles)) for at in range(copies)]
    factors = torch.stack((labels.repeat(copies), angles.T.flatten()), 1)
    return ImageSet(
        torch.cat(turned), labels.repeat(copies), f"rotated_{data.name}", data.split, factors=factors,
        factor_names=("digit", "angle"), groups=torch.arange(len(data)).repeat(copies),
    )  # fmt: skip


def rotate(images: Tensor, angles: Tensor, chunk: int = 4096) -> Tensor:
    """Turned anticlockwise about the middle, bilinearly; what comes in from outside is 0.

    Shapes: uint8 (N, C, H, W), angles in radians (N) -> (N, C, H, W)
    """
    cos, sin, zero = angles.cos(), angles.sin(), torch.zeros_like(angles)
    maps = torch.stack((torch.stack((cos, -sin, zero), -1), torch.stack((sin, cos, zero), -1)), -2).float()
    turned = []
    for part, some in zip(images.split(chunk), maps.split(chunk), strict=True):
        grid = functional.affine_grid(some, list(part.shape), align_corners=False)
        moved = functional.grid_sample(part.float(), grid, align_corners=False)
        turned.append(moved.round().clamp(0, 255).to(torch.uint8))
    return torch.cat(turned)


def with_quarter_turns(data: ImageSet) -> ImageSet:
    """Every class four times: as it is, and turned by 90, 180 and 270 degrees, as classes of their own."""
    labels = _labels(data, "with_quarter_turns")
    if data.image_shape[1] != data.image_shape[2]:
        raise ValueError(f"with_quarter_turns: expected square images, got {data.image_shape}; crop them first")
    number = int(labels.max()) + 1
    images = torch.cat([data.images.rot90(turns, (-2, -1)) for turns in range(4)])
    return dataclasses.replace(
        data, images=images, labels=torch.cat([labels + turns * number for turns in range(4)]), groups=None
    )


def split_classes(data: ImageSet, sizes: Sequence[int], seed: int = 0) -> list[ImageSet]:
    """Parts with so many classes each, drawn at random but always alike, and numbered from 0."""
    labels = _labels(data, "split_classes")
    classes = labels.unique()
    if sum(sizes) > len(classes):
        raise ValueError(f"split_classes: expected {sum(sizes)} classes, got {len(classes)} in {data.name}")
    order = classes[torch.randperm(len(classes), generator=stream(seed, FACTORS, len(classes)))]
    parts = []
    for some in order[: sum(sizes)].split(list(sizes)):
        part = data.of_classes(some)
        assert part.labels is not None
        parts.append(dataclasses.replace(part, labels=part.labels.unique(return_inverse=True)[1]))
    return parts


def _labels(data: ImageSet, where: str) -> Tensor:
    if data.labels is None:
        raise ValueError(f"{where}: expected labelled images, but {data.name} has no labels")
    return data.labels
