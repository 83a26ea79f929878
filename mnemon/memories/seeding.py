"""Where inference starts: items picked as first locations, without gradient, from code means."""

from __future__ import annotations

import torch
from torch import Tensor

from mnemon.memories.frames import Frames

MAX_SEEDING_ITEMS = 16_384
"""Larger episodes are seeded from a random subset of this many items, so that seeding stays cheap."""


def pick_kmeans(frames: Frames, num_seeds: int, generator: torch.Generator | None) -> Tensor:
    """k-means++: each next seed is an item drawn with chance proportional to its squared distance to the seeds.

    Shapes: codes (*B, T, C) -> (*B, H, C)
    """
    points, counts = _candidates(frames, generator)
    noise = _uniform((*points.shape[:-2], num_seeds), points, generator)
    return _kmeans(points, counts, noise)


def pick_random(frames: Frames, num_seeds: int, generator: torch.Generator | None) -> Tensor:
    """Distinct items drawn at random; over again from the first where there are fewer items than seeds.

    Shapes: codes (*B, T, C) -> (*B, K, C)
    """
    points, counts = _candidates(frames, generator)
    present = counts > 0
    keys = torch.where(present, _uniform(counts.shape, points, generator), 2.0)
    order = keys.argsort(-1)
    turn = torch.arange(num_seeds, device=points.device) % present.sum(-1, keepdim=True)
    return _take(points, order.gather(-1, turn))


def _kmeans(points: Tensor, counts: Tensor, noise: Tensor) -> Tensor:
    seeds: list[Tensor] = []
    nearest: Tensor | None = None
    for h in range(noise.shape[-1]):
        chance = counts if nearest is None else counts * nearest
        # all items stand on seeds already: any item is as good as another
        chance = torch.where(chance.sum(-1, keepdim=True) > 0, chance, counts)
        seed = _take(points, draw_index(chance, noise[..., h : h + 1]))
        distance = (points - seed).square().sum(-1)
        nearest = distance if nearest is None else torch.minimum(nearest, distance)
        seeds.append(seed)
    return torch.cat(seeds, dim=-2)


def draw_index(chance: Tensor, noise: Tensor) -> Tensor:
    """Indices with the given unnormalised chances, by inverting their running sum (float64: it is long)."""
    running = chance.double().cumsum(-1)
    index = torch.searchsorted(running, noise.double() * running[..., -1:], right=True)
    return index.clamp(max=chance.shape[-1] - 1)


def _candidates(frames: Frames, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    points = frames.mean.detach()
    counts = frames.counts
    if frames.num_items > MAX_SEEDING_ITEMS:
        shape = (*frames.batch_shape, MAX_SEEDING_ITEMS)
        noise = _uniform(shape, points, generator)
        if counts is None:
            index = (noise.double() * frames.num_items).long().clamp(max=frames.num_items - 1)
        else:
            index = draw_index(counts, noise)
        # items were drawn by their counts already
        return _take(points, index), torch.ones(shape, dtype=points.dtype, device=points.device)
    if counts is None:
        counts = torch.ones(points.shape[:-1], dtype=points.dtype, device=points.device)
    return points, counts


def _take(points: Tensor, index: Tensor) -> Tensor:
    """Shapes: points (*B, T, C), index (*B, n) -> (*B, n, C)"""
    return points.gather(-2, index[..., None].expand(*index.shape, points.shape[-1]))


def _uniform(shape: tuple[int, ...], like: Tensor, generator: torch.Generator | None) -> Tensor:
    return torch.rand(shape, dtype=like.dtype, device=like.device, generator=generator)
