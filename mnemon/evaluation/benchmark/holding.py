"""What a memory holds: bounds of written and of other frames, recall of damaged ones, and both against its size."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from mnemon.core.protocol import MemoryModel
from mnemon.evaluation.benchmark.subject import Subject, stores_items
from mnemon.evaluation.experiments import sizes_of_classes
from mnemon.evaluation.likelihood import Estimate, TestSet, episode_bounds, scored_groups
from mnemon.evaluation.memory_use import twin_bounds
from mnemon.evaluation.recall import recall_errors
from mnemon.memories.tree import MAX_SEQUENCES
from mnemon.models import MemoryVAE
from mnemon.models.codec_model import CodecModel
from mnemon.models.hopfield import SlotMemory

Records = Iterator[dict[str, Any]]
FRAMES_AT_ONCE = 1024
"""Frames of all episodes of a batch."""
READS = 3
"""Reads that a recall is measured after where the number of reads is not the question."""


@dataclass(frozen=True)
class Setting:
    """Where recall and bound are measured: images, length of an episode, and what note and record say of it."""

    test: TestSet
    length: int
    told: Mapping[str, Any]
    sizes: Mapping[str, Any]


def bounds(subject: Subject, asked: set[str]) -> Records:
    """Joint bound, and conditional bound of written frames; of models that encode frames together, encoded so."""
    found = episode_bounds(subject.model, subject.tests.some, episode_length=subject.length)
    for question in ("joint", "conditional"):
        if question in asked:
            yield subject.record(question, found[question], num_samples=1)


def groups(subject: Subject, asked: set[str]) -> Records:
    """Conditional bound of frames that were not written: of the same classes, of others, or of any."""
    sizes, samples = sizes_of_classes(subject.tests.every.data), subject.sizes.samples
    if sizes is None:
        model = subject.model
        assert isinstance(model, CodecModel)
        twins = twin_bounds(
            model, subject.tests.some, length=subject.length, num_episodes=subject.sizes.episodes, num_samples=samples
        )
        yield subject.record("unseen", Estimate.of(twins["twin", "alone"].mean(-1)), num_samples=samples)
        return
    sizes["num_episodes"] = subject.sizes.episodes
    found = scored_groups(subject.model, subject.tests.every, num_samples=samples, **sizes)
    length = sizes["num_classes"] * sizes["per_class"]
    floats = subject.floats(length)
    for question in ("same_class", "unseen"):
        if question in asked:
            estimate = Estimate.of(found[question].mean(-1))
            yield subject.record(question, estimate, num_samples=samples, episode_length=length, memory_floats=floats)


def recall(subject: Subject, asked: set[str]) -> Records:
    """Error of every corruption and level after 1 to 10 reads."""
    for name, levels in subject.sizes.corruptions.items():
        for level in levels:
            found = _recall_errors(subject, subject.tests.some, subject.length, name, level, max(subject.sizes.reads))
            for reads in subject.sizes.reads:
                settings = {"corruption": name, "level": level, "reads": reads}
                yield subject.record("recall", found[reads - 1], settings)


def capacity(subject: Subject, asked: set[str]) -> Records:
    """Recall and bound against the length of the episode."""
    for length in subject.sizes.lengths:
        if length > len(subject.tests.every.data):
            continue
        short = [subject.too_short(question, length) for question in sorted(asked)]
        if any(short):
            yield from filter(None, short)
            continue
        sizes = {"episode_length": length, "memory_floats": subject.floats(length)}
        at = Setting(subject.tests.at_least(length), length, {}, sizes)
        if "capacity_recall" in asked:
            yield _recall(subject, "capacity_recall", at)
        if "capacity_bound" in asked:
            yield from _bounds(subject, "capacity_bound", at)


def resized(subject: Subject, asked: set[str]) -> Records:
    """Recall and bound against the size of the memory: clusters, slots, or stored items."""
    for size, model, written in _other_sizes(subject):
        other = replace(subject, model=model)
        floats = other.floats(mask=None if written is None else written[:1])
        at = Setting(subject.tests.some, subject.length, {"size": size}, {"memory_floats": floats})
        if "resized_recall" in asked:
            yield _recall(other, "resized_recall", at, **({} if written is None else {"mask": written}))
        if "resized_bound" in asked:
            yield from _bounds(other, "resized_bound", at, **({} if written is None else {"write_mask": written}))


def _other_sizes(subject: Subject) -> Iterator[tuple[str, MemoryModel, torch.Tensor | None]]:
    """A name for each size, the model of that size, and which frames of a batch it writes (None: all)."""
    model, sizes = subject.model, subject.sizes
    if isinstance(model, MemoryVAE):
        name = "num_clusters" if hasattr(model.memory, "num_clusters") else "num_slots"
        for number in sizes.clusters if name == "num_clusters" else sizes.slots:
            if number ** getattr(model.memory, "num_segments", 1) > MAX_SEQUENCES:
                continue
            with _memory_of(model, **{name: number}):
                yield f"{number} {name.removeprefix('num_')}", model, None
    elif isinstance(model, SlotMemory):
        pixels = torch.Size(model.image_shape).numel()
        for number in sizes.kept:
            yield f"{number} items", SlotMemory(model.image_shape, number * pixels), None
    elif stores_items(model):
        for number in sizes.kept:
            if number <= subject.length:
                kept = torch.arange(subject.length, device=subject.device) < number
                yield f"{number} items", model, kept.expand(_batch(subject.length), -1)


@contextlib.contextmanager
def _memory_of(model: MemoryVAE, **sizes: int) -> Iterator[None]:
    """The same weights with another memory, for a while."""
    memory: Any = model.memory
    try:
        model.memory = memory.replace(**sizes)
        yield
    finally:
        model.memory = memory


def _batch(length: int) -> int:
    return max(1, min(16, FRAMES_AT_ONCE // length))


def _recall_errors(
    subject: Subject, test: TestSet, length: int, name: str, level: float, reads: int, **write: Any
) -> tuple[Estimate, ...]:
    batch = min(_batch(length), subject.sizes.recall_episodes)
    if "mask" in write:
        write["mask"] = write["mask"][:batch]
    batches = -(-subject.sizes.recall_episodes // batch)
    found = recall_errors(
        subject.model, test, name, level, episode_length=length, batch_size=batch, num_batches=batches, reads=reads,
        write=write,
    )  # fmt: skip
    return found.reads


def _recall(subject: Subject, question: str, at: Setting, **write: Any) -> dict[str, Any]:
    name, levels = next(iter(subject.sizes.corruptions.items()))
    found = _recall_errors(subject, at.test, at.length, name, levels[0], READS, **write)
    settings = {**at.told, "corruption": name, "level": levels[0], "reads": READS}
    return subject.record(question, found[-1], settings, **at.sizes)


def _bounds(subject: Subject, question: str, at: Setting, **write: Any) -> Records:
    """Conditional, and joint where there is one."""
    found = episode_bounds(subject.model, at.test, episode_length=at.length, batch_size=_batch(at.length), **write)
    for kind in ("conditional", "joint"):
        if kind in found:
            yield subject.record(question, found[kind], at.told, bound=kind, num_samples=1, **at.sizes)
