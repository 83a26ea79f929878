"""Episodes of which not every item has both roles: some are written, some are scored."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from mnemon.core.random import stream
from mnemon.data.episodes import ClassEpisodes, EpisodeBatches, IidEpisodes, check_sizes, draw_distinct, whole_batches
from mnemon.data.images import ImageSet

TARGETS = 5
"""The random stream of this file."""


@dataclass(frozen=True)
class TargetEpisodes:
    """Few-shot episodes: of every class `shots` images are written and `targets` others are scored. VMA, 4.2

    Items stand class after class, the written ones of a class first.
    """

    num_classes: int
    shots: int
    targets: int
    batch_size: int
    batches_per_epoch: int | None = None

    def __post_init__(self) -> None:
        check_sizes(self, "num_classes", "shots", "targets")

    @property
    def _classes(self) -> ClassEpisodes:
        return ClassEpisodes(self.num_classes, self.shots + self.targets, self.batch_size, self.batches_per_epoch)

    @property
    def episode_length(self) -> int:
        return self._classes.episode_length

    def num_batches(self, data: ImageSet) -> int:
        return self._classes.num_batches(data)

    def epoch(self, data: ImageSet, *, seed: int, epoch: int) -> EpisodeBatches:
        index = self._classes.epoch(data, seed=seed, epoch=epoch).index
        places = torch.arange(self.episode_length).view(self.num_classes, -1)
        written, scored = (
            part.flatten().expand(*index.shape[:2], -1) for part in (places[:, : self.shots], places[:, self.shots :])
        )
        return EpisodeBatches(index, None, written, scored)


@dataclass(frozen=True)
class RecallEpisodes:
    """Any images together, as in `IidEpisodes`: all are written, `targets` different ones of them scored. VMA, 4.1"""

    episode_length: int
    targets: int
    batch_size: int

    def __post_init__(self) -> None:
        check_sizes(self, "episode_length", "targets", "batch_size")
        if self.targets > self.episode_length:
            raise ValueError(
                f"targets: expected at most the episode's {self.episode_length} items, got {self.targets}; they are "
                "drawn from what is written"
            )

    def num_batches(self, data: ImageSet) -> int:
        return whole_batches(data, self.batch_size, self.episode_length)

    def epoch(self, data: ImageSet, *, seed: int, epoch: int) -> EpisodeBatches:
        index = IidEpisodes(self.episode_length, self.batch_size).epoch(data, seed=seed, epoch=epoch).index
        sizes = torch.full(index.shape[:2], self.episode_length)
        scored = draw_distinct(sizes, self.targets, stream(seed, epoch, TARGETS))
        return EpisodeBatches(index, None, None, scored)
