"""Bounds on test episodes: joint and conditional of what was written, conditional of what was not."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from scipy.special import stdtrit
from torch import Tensor

from mnemon import objectives
from mnemon.core.protocol import MemoryModel
from mnemon.core.random import stream
from mnemon.data.episodes import EpisodeSampler, IidEpisodes, novelty_episodes
from mnemon.data.images import ImageSet
from mnemon.data.preprocess import Preprocessing
from mnemon.training.objective import per_frame_of_each

BOUNDS, WRITES, PRIOR = 11, 12, 18
"""Random streams of the evaluation."""
DRAWS = 16
"""Codes that are drawn at a time for every image that nets are given at a time: a model that decodes them in pieces
need not encode the image and open its memory for each."""


def student(number: int) -> float:
    """Half of a 95% interval of a mean of so many numbers, in standard errors: 12.7 of two, 2.8 of five, 1.96 of many.

    NaN of one."""
    return float(stdtrit(number - 1, 0.975))


@dataclass(frozen=True)
class Estimate:
    """A mean over episodes (what shares a memory is one) with the half width of its 95% interval, by Student."""

    value: float
    interval: float
    count: int

    @classmethod
    def of(cls, values: Tensor) -> Estimate:
        values = values.double().flatten()
        spread = float(values.std()) if len(values) > 1 else math.nan
        return cls(float(values.mean()), student(len(values)) * spread / math.sqrt(len(values)), len(values))


@dataclass(frozen=True, eq=False)
class TestSet:
    """Test images, prepared once, and how to draw them as floats on a device."""

    data: ImageSet
    preprocessing: Preprocessing
    device: torch.device

    __test__ = False  # not a test class

    @classmethod
    def of(cls, data: ImageSet, preprocessing: Preprocessing, device: torch.device | str = "cpu") -> TestSet:
        return cls(preprocessing.fix(data, train=False).to(device), preprocessing, torch.device(device))

    def unlabelled(self) -> TestSet:
        """The same images without their classes."""
        return replace(self, data=replace(self.data, labels=None))

    def draw(self, index: Tensor, generator: torch.Generator) -> Tensor:
        """Shapes: (*B, T) -> (*B, T, *X)"""
        return self.preprocessing(self.data.images[index.to(self.device)], generator)

    def batches(
        self, episode_length: int, batch_size: int, seed: int, sampler: EpisodeSampler | None = None
    ) -> Iterator[tuple[Tensor, torch.Generator]]:
        """Every image once, in random episodes, or the first epoch of a sampler; incomplete batches are dropped."""
        batch_size = max(1, min(batch_size, len(self.data) // episode_length))
        sampler = IidEpisodes(episode_length, batch_size) if sampler is None else sampler
        index = sampler.epoch(self.data, seed=seed, epoch=0).index
        for i, part in enumerate(index):
            generator = stream(seed, BOUNDS, i, device=str(self.device))
            yield self.draw(part, generator), generator


def frames_at_once(device: torch.device) -> int:
    """Images that nets are given at a time: as many as keep the device busy, and its memory free."""
    return 2048 if device.type == "cpu" else 8192


def importance_bound(
    model: MemoryModel, state: Any, x: Tensor, *, num_samples: int, generator: torch.Generator | None = None
) -> Tensor:
    """Importance-weighted bound on log p(x | memory) by any number of samples, drawn as many at once as memory allows.

    Shapes: (*B, Q, C, H, W) -> (*B, Q)
    """
    at_once = max(1, DRAWS * frames_at_once(x.device) // math.prod(x.shape[:-3]))
    sizes = [min(at_once, num_samples - start) for start in range(0, num_samples, at_once)]
    drawn = [model.log_weights(state, x, num_samples=size, generator=generator) for size in sizes]
    return objectives.importance_weighted(torch.cat(drawn))


@torch.no_grad()
def episode_bounds(
    model: MemoryModel,
    test: TestSet,
    *,
    episode_length: int,
    batch_size: int = 16,
    num_batches: int | None = None,
    seed: int = 0,
    sampler: EpisodeSampler | None = None,
    **write: Any,
) -> dict[str, Estimate]:
    """Joint and conditional bound and their terms, nats per frame, over all test images (or so many batches of them) in
    i.i.d. episodes, or in those of a sampler.

    Without "joint" and "memory_kl" for a memory that has no posterior of its own.
    """
    found: dict[str, list[Tensor]] = {}
    for x, generator in itertools.islice(test.batches(episode_length, batch_size, seed, sampler), num_batches):
        terms = model.terms(x, generator=generator, **write)
        parts = per_frame_of_each(terms)
        if terms.memory_kl is None:
            del parts["memory_kl"]
        else:
            parts["joint"] = parts["conditional"] - parts["memory_kl"] - parts["choice_kl"]
        for name, values in parts.items():
            found.setdefault(name, []).append(values.cpu())
    return {name: Estimate.of(torch.cat(values)) for name, values in found.items()}


@torch.no_grad()
def written_bound(
    model: MemoryModel, test: TestSet, *, episode_length: int, num_samples: int, batch_size: int = 16, seed: int = 0
) -> Estimate:
    """Importance-weighted bound on log p(x | memory) of written frames, over all test images in i.i.d. episodes."""
    values = []
    for x, generator in test.batches(episode_length, batch_size, seed):
        state = model.write(x, generator=generator)
        bound = importance_bound(model, state, x, num_samples=num_samples, generator=generator)
        values.append(bound.mean(-1).cpu())
    return Estimate.of(torch.cat(values))


@torch.no_grad()
def prior_bounds(
    model: MemoryModel, test: TestSet, *, num_images: int, num_samples: int, seed: int = 0, block: int = 256
) -> Tensor:
    """Importance-weighted bound on log p(x) of test images, drawn at random, with nothing written.

    Of a VAE, of a learned memory, or of a memory's prior. Shapes: -> (num_images), or as many as there are
    """
    order = torch.randperm(len(test.data), generator=stream(seed, PRIOR))[:num_images]
    state = model.prior_state()
    values = []
    for start, part in enumerate(order.split(block)):
        generator = stream(seed, PRIOR, start, device=str(test.device))
        x = test.draw(part, generator)
        values.append(importance_bound(model, state, x, num_samples=num_samples, generator=generator).cpu())
    return torch.cat(values)


@torch.no_grad()
def scored_groups(
    model: MemoryModel,
    test: TestSet,
    *,
    num_classes: int = 8,
    per_class: int = 8,
    num_episodes: int = 64,
    num_samples: int = 1,
    seed: int = 0,
    score: Callable[[MemoryModel, Any, Tensor, torch.Generator], Tensor] | None = None,
    block: int = 8,
    groups: Sequence[str] = ("written", "same_class", "unseen"),
) -> dict[str, Tensor]:
    """Scores of written frames, unwritten frames of their classes, and frames of unseen classes.

    The score is the bound on log p(x | memory) unless another is given. Shapes: -> (num_episodes, frames) each
    """
    episodes = novelty_episodes(
        test.data, num_classes=num_classes, per_class=per_class, num_episodes=num_episodes, seed=seed
    )
    found: dict[str, list[Tensor]] = {name: [] for name in groups}
    for start in range(0, num_episodes, block):
        generator = stream(seed, WRITES, start, device=str(test.device))
        part = slice(start, start + block)
        written = test.draw(episodes.written[part], generator)
        state = model.write(written, generator=generator)
        frames = {
            "written": written,
            "same_class": test.draw(episodes.same_class[part], generator),
            "unseen": test.draw(episodes.unseen[part], generator),
        }
        for name in groups:
            if score is None:
                value = model.log_likelihood(state, frames[name], num_samples=num_samples, generator=generator).value
            else:
                value = score(model, state, frames[name], generator)
            found[name].append(value.cpu())
    return {name: torch.cat(values) for name, values in found.items()}
