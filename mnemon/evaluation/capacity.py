"""Capacity: the error of recall against the number of written patterns, beside associative memories without training.

Every model is asked the same: write an episode, then read each of its items from a damaged cue. Damage and numbers
belong to the data, not to the model, so that any run can be measured on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mnemon.core.protocol import MemoryModel
from mnemon.core.random import stream
from mnemon.data.corruptions import corrupt
from mnemon.evaluation.experiments import Evaluation
from mnemon.evaluation.likelihood import Estimate, TestSet
from mnemon.models.energy import EnergyModel
from mnemon.models.hopfield import CopyModel, HopfieldModel, ModernHopfieldModel, SlotMemory
from mnemon.models.recall_model import RecallModel

CAPACITY = 21
"""The random stream of this file."""
ITEMS_AT_ONCE = 2048
"""Items of all episodes of a batch: what is held at a time does not grow with the episodes."""
LARGEST_HOPFIELD = 1024
"""Units: a network of more has over half a million couplings, and is no rival of equal size."""

SLOTS = "slots of equal floats"
UNWRITTEN = "nothing written"


@dataclass(frozen=True)
class Task:
    """What is read from what: a corruption and its level, and the lengths of episodes."""

    corruption: str
    level: float
    lengths: tuple[int, ...]

    def __str__(self) -> str:
        if self.corruption == "flip":
            return f"{self.level:.0%} of the bits flipped"
        size = f"{self.level:g}"
        return f"{size}x{size} pixels erased" if self.corruption == "block" else f"{self.corruption} {size}"


TASKS: dict[str, Task] = {
    "patterns": Task("flip", 0.1, (4, 8, 16, 24, 32, 48, 64, 96)),
    "omniglot": Task("flip", 0.15, (4, 8, 16, 32, 64, 96)),
    "cifar10": Task("block", 16, (4, 8, 16, 32, 64)),
}
"""By data set. On others, episodes of the run's own length, with the damage that it was trained against."""


@dataclass(frozen=True)
class Recall:
    """Squared error per pixel, and the share of pixels on the wrong side of 1/2; floats of one episode's memory."""

    error: Estimate
    wrong: Estimate
    memory_floats: int


def task_of(evaluation: Evaluation) -> Task:
    objective = evaluation.config.objective
    own = Task(objective.corruption, objective.level, (evaluation.length,))
    return TASKS.get(evaluation.test.data.name, own)


def capacity(evaluation: Evaluation) -> Iterable[dict[str, Any]]:
    """Error of recall of the run, of an energy also before anything is written, and of memories without training, for
    every length of episode."""
    if not evaluation.model.can_write:
        return
    evaluation, task = evaluation.with_options("capacity"), task_of(evaluation)
    for length in task.lengths:
        if length > len(evaluation.test.data):
            continue
        settings: dict[str, Any] = {
            "episode_length": length,
            "num_episodes": evaluation.num_episodes,
            "seed": evaluation.seed,
        }
        found = {evaluation.config.model.kind: measure_recall(evaluation.model, evaluation.test, task, **settings)}
        floats = next(iter(found.values())).memory_floats
        rivals = baselines(evaluation.test.data.image_shape, floats, binary=_is_binary(evaluation.test))
        if isinstance(evaluation.model, EnergyModel):
            found[UNWRITTEN] = measure_recall(evaluation.model, evaluation.test, task, **settings, written=False)
        for name, model in rivals.items():
            found[name] = measure_recall(model.to(evaluation.test.device), evaluation.test, task, **settings)
        yield from _records(evaluation, task, length, found)


def _records(evaluation: Evaluation, task: Task, length: int, found: Mapping[str, Recall]) -> Iterable[dict[str, Any]]:
    for name, recall in found.items():
        own = name == evaluation.config.model.kind
        more = {} if own else {"model": name, "updates": None}
        sizes = {"episode_length": length, "memory_floats": recall.memory_floats, "scored": "written", **more}
        note = f"capacity: {task}; one read"
        yield evaluation.record(recall.error, "mse_recalled", "per pixel", note=note, **sizes)
        yield evaluation.record(recall.wrong, "wrong_pixels", "share", note=note, **sizes)


def baselines(image_shape: tuple[int, ...], floats: int, *, binary: bool) -> dict[str, RecallModel]:
    """Memories without training: of the same number of floats (slots), of their own (Hopfield), or of any (modern
    Hopfield keeps everything; copying keeps nothing)."""
    size = torch.Size(image_shape).numel()
    found: dict[str, RecallModel] = {"copy of the cue": CopyModel(image_shape)}
    if binary and size <= LARGEST_HOPFIELD:
        found |= {"hopfield, hebb": HopfieldModel(image_shape, "hebb"), "hopfield, storkey": HopfieldModel(image_shape)}
    found["modern hopfield, all kept"] = ModernHopfieldModel(image_shape)
    if floats >= size:
        found[SLOTS] = SlotMemory(image_shape, floats)
    return found


@torch.no_grad()
def measure_recall(
    model: MemoryModel,
    test: TestSet,
    task: Task,
    *,
    episode_length: int,
    num_episodes: int,
    seed: int = 0,
    written: bool = True,
) -> Recall:
    """Write test episodes and read all their items once, from damaged cues, erased pixels being 0 in the cue.

    Different models get the same episodes and the same cues. Not `written`, an energy is read as it is before a write:
    what its nets make of a cue that they have no memory of, which is no recall but takes noise off.
    """
    errors: list[Tensor] = []
    wrong: list[Tensor] = []
    floats = 0
    for x, generator in _episodes(test, episode_length, num_episodes, seed):
        cue, _ = corrupt(task.corruption, x, task.level, generator)
        state = model.write(x, generator=generator) if written else model.prior_state((len(x),))
        read = model.read(state, cue)
        errors.append((read - x).square().flatten(1).mean(1).cpu())
        wrong.append(((read > 0.5) != (x > 0.5)).float().flatten(1).mean(1).cpu())
        floats = memory_floats(model, state, len(x))
    return Recall(Estimate.of(torch.cat(errors)), Estimate.of(torch.cat(wrong)), floats if written else 0)


def memory_floats(model: MemoryModel, state: Any, episodes: int) -> int:
    """Numbers that one of the episodes in a state takes."""
    return model.memory_floats(state) if isinstance(model, RecallModel) else state.nbytes // 4 // episodes


def _episodes(test: TestSet, length: int, number: int, seed: int) -> Iterable[tuple[Tensor, torch.Generator]]:
    """Episodes of different test images, in batches; an image may be in several of them."""
    device = str(test.device)
    batch = max(1, min(number, ITEMS_AT_ONCE // length))
    for start in range(0, number, batch):
        drawer = stream(seed, CAPACITY, length, start)
        keys = [torch.randperm(len(test.data), generator=drawer)[:length] for _ in range(min(batch, number - start))]
        generator = stream(seed, CAPACITY, length, start, device=device)
        yield test.draw(torch.stack(keys), generator), generator


def _is_binary(test: TestSet) -> bool:
    few = test.draw(torch.arange(min(16, len(test.data))), stream(0, device=str(test.device)))
    return bool(((few == 0) | (few == 1)).all())
