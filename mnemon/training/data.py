"""The images of a training: loaded, prepared once, split, and cut into episodes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from mnemon.core.checks import check_size
from mnemon.data import catalog
from mnemon.data.episodes import (
    ClassEpisodes,
    EpisodeBatches,
    EpisodeSampler,
    GrowingEpisodes,
    IidEpisodes,
    RaggedEpisodes,
    SetEpisodes,
)
from mnemon.data.factors import FactorEpisodes, with_quarter_turns
from mnemon.data.images import ImageSet
from mnemon.data.preprocess import Preprocessing
from mnemon.data.targets import RecallEpisodes, TargetEpisodes
from mnemon.training.config import DataConfig

VALIDATION_SEED = 0
"""The split and the validation episodes do not change with the training's seed: seeds stay comparable."""


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Training and validation images, and how they become batches of episodes."""

    config: DataConfig
    train: ImageSet
    held_out: ImageSet
    preprocessing: Preprocessing

    @classmethod
    def load(cls, config: DataConfig, root: Path | None = None) -> TrainingData:
        """From the catalog or a path, with a validation part split off."""
        names = (config.name, *config.extra)
        whole = [catalog.load(name, "train", root=root, image_shape=config.image_shape) for name in names]
        if not config.validation_split:
            return cls.of(config, *whole)
        held_out = [catalog.load(name, "valid", root=root, image_shape=config.image_shape) for name in names]
        preprocessing = preprocessing_of(config)
        train, valid = (
            join([preprocessing.fix(of_classes(part, config), train=first) for part in sets])
            for sets, first in ((whole, True), (held_out, False))
        )
        return cls(config, _turned(train, config), valid, preprocessing)

    @classmethod
    def of(cls, config: DataConfig, *sets: ImageSet) -> TrainingData:
        preprocessing = preprocessing_of(config)
        whole = join([preprocessing.fix(of_classes(part, config), train=True) for part in sets])
        train, held_out = split_validation(whole, config)
        return cls(config, _turned(train, config), held_out, preprocessing)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        return self.train.image_shape

    @property
    def fingerprint(self) -> str:
        """Which images these are, and which of them are held out."""
        return f"{self.train.fingerprint}-{self.held_out.fingerprint}"

    @property
    def frames_per_batch(self) -> int:
        return self.config.batch_size * self.config.duplicate * self.config.episode_length

    def epoch(self, seed: int, epoch: int) -> EpisodeBatches:
        """One pass over the images, or so many batches of several passes."""
        number = self.config.batches_per_epoch
        if number is None:
            return sampler(self.config).epoch(self.train, seed=seed, epoch=epoch)
        check_size("data.batches_per_epoch", number)
        passes = -(-number // sampler(self.config).num_batches(self.train))
        # episodes grow by epochs, not by passes
        one = sampler(replace(self.config, growth=self.config.growth * passes))
        made = [one.epoch(self.train, seed=seed, epoch=epoch * passes + at) for at in range(passes)]
        return EpisodeBatches.joined(made).first(number)

    def grown(self, seed: int) -> EpisodeBatches:
        """Training episodes as they are in the end, whatever the epoch: what batch statistics are averaged over."""
        return sampler(grown(self.config)).epoch(self.train, seed=seed, epoch=0)

    def validation(self, limit: int | None = None) -> EpisodeBatches:
        """The same episodes every time; in smaller batches where the held-out images do not fill one."""
        fitting = len(self.held_out) // self.config.episode_length
        if fitting < 1:
            raise ValueError(
                f"data.validation: {len(self.held_out)} images are held out, too few for an episode of "
                f"{self.config.episode_length}; hold out more, or take shorter episodes"
            )
        config = replace(grown(self.config), batch_size=min(self.config.batch_size, fitting))
        return sampler(config).epoch(self.held_out, seed=VALIDATION_SEED, epoch=0).first(limit)

    def check(self) -> None:
        """Raise where there are too few images for a batch of episodes, or for validation."""
        self.epoch(0, 0)
        self.validation()

    def place(self, device: torch.device) -> Tensor:
        return _place(self.train.images, device, self.config.on_device)

    def place_validation(self, device: torch.device) -> Tensor:
        return _place(self.held_out.images, device, False)


def grown(config: DataConfig) -> DataConfig:
    """Episodes as they are in the end."""
    return replace(config, episodes="iid") if config.episodes == "growing" else config


def preprocessing_of(config: DataConfig) -> Preprocessing:
    return Preprocessing(config.binarise, config.threshold, config.dequantise)


def of_classes(data: ImageSet, config: DataConfig) -> ImageSet:
    """The classes that the configuration names; all when it names none."""
    return data if config.classes is None else data.of_classes(config.classes)


def sampler(config: DataConfig) -> EpisodeSampler:
    targets = config.targets or 1
    if config.episodes == "recall":
        return RecallEpisodes(config.episode_length, targets, config.batch_size)
    if config.episodes == "iid":
        return IidEpisodes(config.episode_length, config.batch_size)
    if config.episodes == "growing":
        return GrowingEpisodes(config.episode_length, config.batch_size, config.growth)
    if config.episodes == "ragged":
        return RaggedEpisodes(config.min_length, config.episode_length, config.batch_size)
    if config.episodes == "sets":
        return SetEpisodes(config.episode_length, config.batch_size)
    if config.episodes == "factors":
        return FactorEpisodes(config.episode_length, config.batch_size, config.constant, config.constant_shares)
    if config.episode_length % config.num_classes:
        raise ValueError(
            f"data.num_classes: expected a divisor of episode_length {config.episode_length}, got {config.num_classes}"
        )
    per_class = config.episode_length // config.num_classes
    if config.episodes == "classes":
        return ClassEpisodes(config.num_classes, per_class, config.batch_size)
    if targets >= per_class:
        raise ValueError(
            f"data.targets: expected fewer than the {per_class} images of a class (episode_length / num_classes), got "
            f"{targets}; the others are written"
        )
    return TargetEpisodes(config.num_classes, per_class - targets, targets, config.batch_size)


def split_validation(whole: ImageSet, config: DataConfig) -> tuple[ImageSet, ImageSet]:
    """Random images; whole classes when episodes are made of classes, so that validation meets new ones; whole groups
    where these are asked for."""
    if config.validation_groups is not None:
        return whole.split_off_groups(config.validation_groups, seed=VALIDATION_SEED)
    if not 0 < config.validation < 1:
        raise ValueError(f"data.validation: expected a fraction between 0 and 1, got {config.validation}")
    if config.episodes not in ("classes", "few_shot", "sets"):
        return whole.split_off(config.validation, seed=VALIDATION_SEED)
    if whole.labels is None:
        raise ValueError("data.episodes: episodes of classes need labels, and these images have none; use iid")
    classes = whole.labels.unique()
    order = torch.randperm(len(classes), generator=torch.Generator().manual_seed(VALIDATION_SEED))
    held_out = classes[order[: max(1, round(config.validation * len(classes)))]]
    part = torch.isin(whole.labels, held_out)
    return whole.subset((~part).nonzero()[:, 0]), whole.subset(part.nonzero()[:, 0])


def _turned(train: ImageSet, config: DataConfig) -> ImageSet:
    return with_quarter_turns(train) if config.quarter_turns else train


def join(sets: list[ImageSet]) -> ImageSet:
    """Several data sets as one; their classes and groups stay apart."""
    first = sets[0]
    if len(sets) == 1:
        return first
    for other in sets[1:]:
        if other.image_shape != first.image_shape:
            raise ValueError(
                f"data.extra: expected images of shape {first.image_shape} as in {first.name}, "
                f"got {other.image_shape} in {other.name}"
            )
    labels, groups = _numbered([s.labels for s in sets]), _numbered([s.groups for s in sets])
    name = first.name if labels is None else "+".join(s.name for s in sets)
    return ImageSet(torch.cat([s.images for s in sets]), labels, name, first.split, groups)


def _numbered(parts: list[Tensor | None]) -> Tensor | None:
    """The numbers of each part after those of the ones before; None if a part has none."""
    numbers: list[Tensor] = []
    start = 0
    for part in parts:
        if part is None:
            return None
        numbers.append(part + start)
        start += int(part.max()) + 1
    return torch.cat(numbers)


def _place(images: Tensor, device: torch.device, wanted: bool) -> Tensor:
    """On the GPU when that is wanted and they take less than half of its free memory."""
    if device.type != "cuda" or not wanted:
        return images
    free, _ = torch.cuda.mem_get_info(device)
    return images.to(device) if images.nbytes < free / 2 else images.pin_memory()
