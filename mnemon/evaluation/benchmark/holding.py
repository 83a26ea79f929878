"""What a memory holds: bounds of written and of other frames, recall of damaged ones, and both against its size."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from mnemon.core.protocol import MemoryModel
from mnemon.data.episodes import ClassEpisodes
from mnemon.evaluation.benchmark.subject import Subject, most_frames, stores_items
from mnemon.evaluation.experiments import sizes_of_classes
from mnemon.evaluation.likelihood import Estimate, TestSet, episode_bounds, scored_groups
from mnemon.evaluation.memory_use import twin_bounds
from mnemon.evaluation.recall import errors_of_corruptions
from mnemon.memories.tree import MAX_SEQUENCES
from mnemon.models import MemoryVAE
from mnemon.models.codec_model import CodecModel
from mnemon.models.hopfield import SlotMemory

Records = Iterator[dict[str, Any]]
Written = torch.Tensor | None
"""Which frames of an episode are written; all when None. Shapes: (T)"""
MOST_EPISODES = 256
"""Of a batch of short ones: each has a memory of its own."""
FEWEST_FRAMES = 64
"""Frames of all episodes that a recall is measured on."""
BOUND_FRAMES = 2048
"""Frames that a bound against length or size is measured on, at least."""
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


def bounds_of_classes(subject: Subject, asked: set[str]) -> Records:
    """The same of episodes of a few classes."""
    sizes, test = sizes_of_classes(subject.tests.every.data), subject.tests.every
    assert sizes is not None
    length = sizes["num_classes"] * sizes["per_class"]
    batch = min(_batch(subject, test, length), subject.sizes.episodes)
    episodes = ClassEpisodes(sizes["num_classes"], sizes["per_class"], batch, -(-subject.sizes.episodes // batch))
    found = episode_bounds(subject.model, test, episode_length=length, sampler=episodes)
    for question in sorted(asked):
        yield subject.record(
            question, found[question.removesuffix("_classes")], num_samples=1, episode_length=length,
            memory_floats=subject.floats(length),
        )  # fmt: skip


def groups(subject: Subject, asked: set[str]) -> Records:
    """Conditional bound of frames that were not written: of the same classes, of others, or of any."""
    sizes, samples = sizes_of_classes(subject.tests.every.data), subject.sizes.samples
    if sizes is None:
        model = subject.model
        assert isinstance(model, CodecModel)
        twins = twin_bounds(
            model,
            subject.tests.some.unlabelled(),
            length=subject.length,
            num_episodes=subject.sizes.episodes,
            num_samples=samples,
        )
        yield subject.record("unseen", Estimate.of(twins["twin", "alone"].mean(-1)), num_samples=samples)
        return
    length = sizes["num_classes"] * sizes["per_class"]
    sizes |= {"num_episodes": subject.sizes.episodes, "block": most_frames(subject.model) // length}
    found = scored_groups(subject.model, subject.tests.every, num_samples=samples, groups=sorted(asked), **sizes)
    floats = subject.floats(length)
    for question, values in found.items():
        estimate = Estimate.of(values.mean(-1))
        yield subject.record(question, estimate, num_samples=samples, episode_length=length, memory_floats=floats)


def recall(subject: Subject, asked: set[str]) -> Records:
    """Error of every corruption and level after 1 to 10 reads."""
    sizes = subject.sizes
    damage = [(name, level) for name, levels in sizes.corruptions.items() for level in levels]
    found = _recall_errors(subject, subject.tests.some, subject.length, damage, max(sizes.reads))
    for (name, level), errors in zip(damage, found, strict=True):
        for reads in sizes.reads:
            settings = {"corruption": name, "level": level, "reads": reads}
            yield subject.record("recall", errors[reads - 1], settings)


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
        other = subject.with_model(model)
        floats = other.floats(mask=None if written is None else written[None])
        at = Setting(subject.tests.some, subject.length, {"size": size}, {"memory_floats": floats})
        if "resized_recall" in asked:
            yield _recall(other, "resized_recall", at, written)
        if "resized_bound" in asked:
            yield from _bounds(other, "resized_bound", at, written)


def _other_sizes(subject: Subject) -> Iterator[tuple[str, MemoryModel, Written]]:
    """A name for each size, the model of that size, and what it writes."""
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
                yield f"{number} items", model, kept


@contextlib.contextmanager
def _memory_of(model: MemoryVAE, **sizes: int) -> Iterator[None]:
    """The same weights with another memory, for a while."""
    memory: Any = model.memory
    try:
        model.memory = memory.replace(**sizes)
        yield
    finally:
        model.memory = memory


def _batch(subject: Subject, test: TestSet, length: int) -> int:
    """Episodes at a time: as many as the images make, and not too many."""
    return max(1, min(MOST_EPISODES, most_frames(subject.model) // length, len(test.data) // length))


def _recall_errors(
    subject: Subject,
    test: TestSet,
    length: int,
    damage: Sequence[tuple[str, float]],
    reads: int,
    written: Written = None,
) -> list[tuple[Estimate, ...]]:
    """By corruption and number of reads. Short episodes are more, since one of a single frame says little."""
    episodes = max(subject.sizes.recall_episodes, FEWEST_FRAMES // length)
    batch = min(_batch(subject, test, length), episodes)
    write = {} if written is None else {"mask": written.expand(batch, -1)}
    found = errors_of_corruptions(
        subject.model, test, damage, episode_length=length, batch_size=batch, num_batches=-(-episodes // batch),
        reads=reads, write=write, at_once=most_frames(subject.model),
    )  # fmt: skip
    return [errors.reads for errors in found]


def _recall(subject: Subject, question: str, at: Setting, written: Written = None) -> dict[str, Any]:
    name, levels = next(iter(subject.sizes.corruptions.items()))
    (found,) = _recall_errors(subject, at.test, at.length, [(name, levels[0])], READS, written)
    settings = {**at.told, "corruption": name, "level": levels[0], "reads": READS}
    return subject.record(question, found[-1], settings, **at.sizes)


def _bounds(subject: Subject, question: str, at: Setting, written: Written = None) -> Records:
    """Conditional, and joint where there is one."""
    batch = _batch(subject, at.test, at.length)
    write: dict[str, Any] = {} if written is None else {"write_mask": written.expand(batch, -1)}
    found = episode_bounds(
        subject.model, at.test, episode_length=at.length, batch_size=batch,
        num_batches=-(-BOUND_FRAMES // (batch * at.length)), **write,
    )  # fmt: skip
    for kind in ("conditional", "joint"):
        if kind in found:
            yield subject.record(question, found[kind], at.told, bound=kind, num_samples=1, **at.sizes)
