"""What cells have in common: where they are worked on, images, test sets, and a judge of samples for each data set.

A process reads and prepares each of them once, however many cells it works on.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from pathlib import Path

from mnemon.data import catalog
from mnemon.data.images import ImageSet
from mnemon.data.preprocess import Preprocessing
from mnemon.evaluation.benchmark.protocol import Protocol
from mnemon.evaluation.benchmark.samples import Judge
from mnemon.evaluation.benchmark.store import Cell
from mnemon.evaluation.benchmark.subject import Tests
from mnemon.training.config import Config, DataConfig
from mnemon.training.data import TrainingData, preprocessing_of
from mnemon.training.setup import fix_workspace

KEPT = 16
"""Sets of images that a process holds: those of all data sets of the benchmark."""


@dataclass(frozen=True)
class Place:
    """Where cells are worked on."""

    runs: Path
    out: Path
    root: Path | None
    device: str
    workers: int = 1
    prune: bool = False
    """Delete the weights of a cell that is done."""

    def __post_init__(self) -> None:
        if self.runs.resolve() == self.out.resolve():
            raise ValueError(
                f"--runs and --out: expected two folders, got {self.out} for both; give either another one"
            )
        if self.device.partition(":")[2] not in ("", "0"):
            raise ValueError(
                f"--device: expected cpu, cuda or auto, got {self.device}: trainings take the first GPU; choose "
                "another one by the variable CUDA_VISIBLE_DEVICES"
            )
        if self.accelerator == "cuda":  # judges, and memories that are not trained, may come before a training
            fix_workspace()

    @property
    def accelerator(self) -> str:
        """As trainings call the device."""
        return self.device.partition(":")[0]


def training_data(cell: Cell, protocol: Protocol, place: Place) -> tuple[TrainingData, Config]:
    """The images of a cell's training, and its configuration."""
    config = protocol.config(cell.data, cell.kind, seed=cell.seed)
    data = _prepared(config.data, protocol.train_images, place.root)
    return data, dataclasses.replace(config, model=dataclasses.replace(config.model, image_shape=data.image_shape))


def test_images(data: str, protocol: Protocol, place: Place) -> Tests:
    """The test images of a data set on the place's device; those of an unlabelled one have no classes."""
    config = protocol.config(data, "vae", seed=0).data
    return _tests(config.name, place.root, preprocessing_of(config), place.device, protocol.sizes.test_images)


def named_images(data: str, protocol: Protocol, place: Place) -> ImageSet:
    """The test images as they were read, on no device: what is said of a cell must not need one that failed."""
    return _read(protocol.config(data, "vae", seed=0).data.name, "test", place.root)


def fingerprints(data: str, protocol: Protocol, place: Place) -> dict[str, str]:
    """Of the images as they were read: which they are, and in which order."""
    name = protocol.config(data, "vae", seed=0).data.name
    return {split: _read(name, split, place.root).fingerprint for split in ("train", "test")}


def judge_of(data: str, protocol: Protocol, place: Place) -> Judge | None:
    """The judge of a data set, trained when it is first asked for, then read from its file; None without labels. It
    stands with the results, since what is judged by another cannot be compared with them."""
    path = place.out / "memory" / data / "judge.safetensors"
    return Judge.cached(path, test_images(data, protocol, place).every, num_steps=protocol.sizes.judge_steps)


@functools.lru_cache(maxsize=KEPT)
def _read(name: str, split: str, root: Path | None) -> ImageSet:
    return catalog.load(name, split, root=root)


@functools.lru_cache(maxsize=KEPT)
def _prepared(config: DataConfig, limit: int | None, root: Path | None) -> TrainingData:
    """Split off and binarised; a quick protocol takes the first images only."""
    images = _read(config.name, "train", root)
    if limit is not None:
        images = images.subset(range(min(limit, len(images))))
    return TrainingData.of(config, images)


@functools.lru_cache(maxsize=KEPT)
def _tests(name: str, root: Path | None, preprocessing: Preprocessing, device: str, number: int) -> Tests:
    return Tests.of(_read(name, "test", root), preprocessing, device, number)
