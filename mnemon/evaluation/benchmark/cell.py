"""One cell: train a model, or go on training it, then ask it part by part. Whatever is done is kept."""

from __future__ import annotations

import dataclasses
import functools
import gc
import json
import shutil
import statistics
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from mnemon.data import catalog
from mnemon.data.images import ImageSet
from mnemon.evaluation.benchmark.parts import PARTS, ask, unasked
from mnemon.evaluation.benchmark.pictures import draw_cell
from mnemon.evaluation.benchmark.protocol import BITS_ONLY, UNTRAINED, Protocol
from mnemon.evaluation.benchmark.samples import Judge
from mnemon.evaluation.benchmark.store import Answers, Cell
from mnemon.evaluation.benchmark.subject import Subject, Tests, common_values, untrained_model
from mnemon.pretrained import load_run
from mnemon.training import checkpoint
from mnemon.training.config import Config
from mnemon.training.data import TrainingData, preprocessing_of, sampler
from mnemon.training.loop import train
from mnemon.training.progress import OutOfTime, check_time

PICTURE = "picture"
"""Kept among the parts: that it was drawn."""
STEPS = (*(part.name for part in PARTS), PICTURE)


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


def run_cell(
    cell: Cell, protocol: Protocol, place: Place, until: float | None = None, leave: Collection[str] = ()
) -> Answers:
    """Train and ask; raises `OutOfTime` where the time is over, with all that was done kept.

    leave: steps that are not to be taken now
    """
    check_time(until)
    images = load_images(cell.data, protocol, place)
    data, config = training_data(cell, protocol, images[0])
    folder = cell.folder(place.runs)
    answers = Answers.open(folder, protocol.fingerprint(config))
    waiting = [step for step in STEPS if step not in answers.parts and step not in leave]
    if not waiting:
        return answers
    command = f"mnemon bench memory --data {cell.data} --model {cell.kind} --seed {cell.seed}"
    command += " --quick" if protocol.name == "memory-quick" else ""
    updates = None if cell.kind in UNTRAINED else len_epoch(data, config) * sum(s.epochs for s in config.stages)
    common = common_values(images[1], config.data, cell.kind, cell.seed, updates, command)
    common["data"] = cell.data
    began = time.monotonic()
    try:
        if cell.kind in BITS_ONLY and config.model.likelihood != "bernoulli":
            reason = f"a Hopfield network holds bits, and {cell.data} has grey levels"
            _give_up(answers, waiting, "does not apply", reason, common)
        else:
            _train(answers, cell, config, data, place, until)
            _ask(answers, waiting, cell, protocol, config, place, common, until)
    except (OutOfTime, KeyboardInterrupt):
        raise
    except Exception as error:  # one cell's trouble is not the grid's
        _give_up(answers, waiting, "failed", _told(error), common)
    finally:
        answers.seconds += time.monotonic() - began
        if answers.path.is_file() or answers.parts:
            answers.save()
    if place.prune and set(answers.parts) == set(STEPS) and not answers.failed:
        shutil.rmtree(folder / "run", ignore_errors=True)
    return answers


@functools.lru_cache(maxsize=4)
def _load(name: str, split: str, root: Path | None) -> ImageSet:
    return catalog.load(name, split, root=root)


def load_images(data: str, protocol: Protocol, place: Place) -> tuple[ImageSet, ImageSet]:
    """Training and test images, of which a quick protocol takes a part of the first."""
    name = protocol.data_config(data).name
    train_images, test_images = (_load(name, split, place.root) for split in ("train", "test"))
    if protocol.train_images is not None:
        train_images = train_images.subset(range(min(protocol.train_images, len(train_images))))
    return train_images, test_images


def training_data(cell: Cell, protocol: Protocol, images: ImageSet) -> tuple[TrainingData, Config]:
    """The images of a cell's training, and its configuration with as many epochs as make the updates."""
    data = TrainingData.of(protocol.data_config(cell.data, cell.kind), images)
    batches = sampler(data.config).num_batches(data.train)
    config = protocol.config(cell.data, cell.kind, seed=cell.seed, batches=batches)
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, image_shape=data.image_shape))
    return dataclasses.replace(data, config=config.data), config


def len_epoch(data: TrainingData, config: Config) -> int:
    return sampler(config.data).num_batches(data.train)


def _train(answers: Answers, cell: Cell, config: Config, data: TrainingData, place: Place, until: float | None) -> None:
    """Up to the end, or to the time; a training that is done, and whose weights are there, is not looked at again."""
    folder = cell.folder(place.runs) / "run"
    if cell.kind in UNTRAINED or (answers.training is not None and (folder / checkpoint.WEIGHTS).is_file()):
        return
    accelerator = place.device.partition(":")[0]
    summary = train(config, folder, data=data, resume=True, accelerator=accelerator, quiet=True, until=until)
    answers.training = {"updates": summary.steps, "workers": place.workers, "improved": summary.improved}
    answers.training |= step_times(folder / checkpoint.METRICS, data.frames_per_batch)
    answers.save()
    (folder / checkpoint.STATE).unlink(missing_ok=True)
    if accelerator == "cuda":  # what the captured step held
        gc.collect()
        torch.cuda.empty_cache()


def step_times(path: Path, frames: int) -> dict[str, Any]:
    """Milliseconds of an update from a training's own record: the middle of its epochs, and 1.96 standard errors.

    The first epoch, in which a GPU captures the step, is left out where there are others.
    """
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    times = [1000 * frames / line["frames_per_second"] for line in lines if line["kind"] == "train"]
    times = times[1:] or times
    spread = 1.96 * statistics.stdev(times) / len(times) ** 0.5 if len(times) > 1 else float("nan")
    return {"step_ms": statistics.median(times), "interval": spread, "epochs": len(times)}


def _ask(
    answers: Answers,
    waiting: list[str],
    cell: Cell,
    protocol: Protocol,
    config: Config,
    place: Place,
    common: dict[str, Any],
    until: float | None,
) -> None:
    tests = Tests.of(
        load_images(cell.data, protocol, place)[1], preprocessing_of(config.data), place.device,
        protocol.sizes.test_images,
    )  # fmt: skip
    judge = Judge.cached(judge_path(cell.data, place), tests.every, num_steps=protocol.sizes.judge_steps)
    if cell.kind in UNTRAINED:
        model: Any = untrained_model(cell.kind, tests.every.data.image_shape, protocol.sizes.memory_floats)
        model = model.to(place.device)
    else:
        model = load_run(cell.folder(place.runs) / "run", device=place.device)[0]
    subject = Subject(
        cell.kind, model, tests, protocol.sizes, config.data.episode_length, common, answers.training or {}
    )
    for part in PARTS:
        if part.name not in waiting:
            continue
        check_time(until)
        try:
            answers.keep(part.name, ask(part, subject, judge))
        except Exception as error:
            answers.keep(part.name, unasked(part, "failed", _told(error), common))
    if PICTURE in waiting:
        if cell.seed == protocol.seeds(cell.data)[0]:
            draw_cell(subject, place.out / "memory" / cell.data / f"{cell.kind}.png")
        answers.keep(PICTURE, [])


def judge_path(data: str, place: Place) -> Path:
    return place.runs / data / "judge.safetensors"


def _give_up(answers: Answers, waiting: list[str], outcome: str, reason: str, common: dict[str, Any]) -> None:
    """Say of everything that is not answered yet why it is not."""
    for part in PARTS:
        if part.name in waiting and part.name not in answers.parts:
            answers.parts[part.name] = unasked(part, outcome, reason, common)
    if PICTURE in waiting:
        answers.parts[PICTURE] = []
    answers.save()


def _told(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
