"""Episodes as index tensors: which images stand together.

Samplers keep no state. What they return is a function of the data, a seed and the number of the epoch, so a
training that stops can go on exactly where it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Generator, Tensor

from mnemon.core.checks import check_size
from mnemon.core.episode import Roles
from mnemon.core.random import stream
from mnemon.data.images import ImageSet

EPISODES, NOVELTY = 1, 2
"""Keep the streams of this file apart from others made of the same seed."""


@dataclass(frozen=True, eq=False)
class EpisodeBatches:
    """The batches of one epoch, as places in the data set, on the CPU.

    `written` and `scored` are places within the episodes, where not every item has both roles.

    Shapes: index int64 (num_batches, B, T); mask bool likewise, True = present, or None if all are. Where the mask
    is False the index repeats the episode's first item, so that it can always be used. written int64
    (num_batches, B, W), scored (num_batches, B, Q), constant bool (num_batches, B, F): the factors that are the same in
    all items of an episode
    """

    index: Tensor
    mask: Tensor | None = None
    written: Tensor | None = None
    scored: Tensor | None = None
    constant: Tensor | None = None

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, batch: int) -> tuple[Tensor, Tensor | None]:
        """One batch. Shapes: index (B, T), mask (B, T) or None"""
        return self.index[batch], None if self.mask is None else self.mask[batch]

    def roles(self, batch: int) -> Roles:
        """Which items of a batch are written, which are scored, and which factors are constant."""
        parts = (self.written, self.scored, self.constant)
        return Roles(*(None if part is None else part[batch] for part in parts))

    def first(self, number: int | None) -> EpisodeBatches:
        """The first batches; all when None."""
        parts = (None if part is None else part[:number] for part in self._parts)
        return EpisodeBatches(*parts)  # type: ignore[arg-type]

    @classmethod
    def joined(cls, passes: Sequence[EpisodeBatches]) -> EpisodeBatches:
        """The batches of several passes over the same data, one after another."""
        parts = zip(*(each._parts for each in passes), strict=True)
        return cls(*(None if part[0] is None else torch.cat(part) for part in parts))  # type: ignore[arg-type]

    @property
    def _parts(self) -> tuple[Tensor | None, ...]:
        return self.index, self.mask, self.written, self.scored, self.constant


class EpisodeSampler(Protocol):
    """What the samplers below share."""

    @property
    def batch_size(self) -> int: ...
    @property
    def episode_length(self) -> int:
        """The most items an episode has."""
        ...

    def num_batches(self, data: ImageSet) -> int:
        """How many batches every epoch has."""
        ...

    def epoch(self, data: ImageSet, *, seed: int, epoch: int) -> EpisodeBatches: ...


def check_sizes(sampler: EpisodeSampler, *names: str) -> None:
    """Refuse a sampler with sizes below 1."""
    for name in names:
        check_size(name, getattr(sampler, name))


@dataclass(frozen=True)
class IidEpisodes:
    """Any images together: the data in random order, cut into episodes. No image comes twice in an epoch.

    What does not fill a batch is left out; which images that hits changes with the epoch.
    """

    episode_length: int
    batch_size: int

    def __post_init__(self) -> None:
        check_sizes(self, "episode_length", "batch_size")

    def num_batches(self, data: ImageSet) -> int:
        return whole_batches(data, self.batch_size, self.episode_length)

    def epoch(self, data: ImageSet, *, seed: int, epoch: int) -> EpisodeBatches:
        batches = self.num_batches(data)
        order = torch.randperm(len(data), generator=stream(seed, epoch, EPISODES))
        used = order[: batches * self.batch_size * self.episode_length]
        return EpisodeBatches(used.view(batches, self.batch_size, self.episode_length))


@dataclass(frozen=True)
class GrowingEpisodes:
    """Episodes of any images as in `IidEpisodes`, of one frame at first, twice as long after every `growth` epochs.

    Batches always have batch_size * episode_length images: as many more episodes as these are shorter. A memory that
    should hold many frames before it ever held one may never be used; one is easy, and each doubling a small step.
    """

    episode_length: int
    batch_size: int
    growth: int

    def __post_init__(self) -> None:
        check_sizes(self, "episode_length", "batch_size", "growth")

    def num_batches(self, data: ImageSet) -> int:
        return whole_batches(data, self.batch_size, self.episode_length)

    def length_at(self, epoch: int) -> int:
        """The full length once doubling would pass it, or cut no whole number of episodes out of it."""
        length = 2 ** min(epoch // self.growth, 30)
        return length if length < self.episode_length and self.episode_length % length == 0 else self.episode_length

    def epoch(self, data: ImageSet, *, seed: int, epoch: int) -> EpisodeBatches:
        whole = IidEpisodes(self.episode_length, self.batch_size).epoch(data, seed=seed, epoch=epoch)
        return EpisodeBatches(whole.index.reshape(len(whole), -1, self.length_at(epoch)))


@dataclass(frozen=True)
class RaggedEpisodes:
    """Episodes of any images as in `IidEpisodes`, with lengths drawn uniformly from `min_length` to `max_length`.

    Every epoch has as many batches as episodes of the full length would make.
    """

    min_length: int
    max_length: int
    batch_size: int

    def __post_init__(self) -> None:
        check_sizes(self, "min_length", "max_length", "batch_size")
        if self.min_length > self.max_length:
            raise ValueError(f"min_length: expected at most max_length = {self.max_length}, got {self.min_length}")

    @property
    def episode_length(self) -> int:
        return self.max_length

    def num_batches(self, data: ImageSet) -> int:
        return whole_batches(data, self.batch_size, self.max_length)

    def epoch(self, data: ImageSet, *, seed: int, epoch: int) -> EpisodeBatches:
        shape = (self.num_batches(data), self.batch_size, self.max_length)
        generator = stream(seed, epoch, EPISODES)
        order = torch.randperm(len(data), generator=generator)[: shape[0] * shape[1] * shape[2]].view(shape)
        lengths = torch.randint(self.min_length, self.max_length + 1, (*shape[:2], 1), generator=generator)
        mask = torch.arange(self.max_length) < lengths
        return EpisodeBatches(torch.where(mask, order, order[..., :1]), mask)


@dataclass(frozen=True)
class ClassEpisodes:
    """Episodes of `num_classes` different classes with `per_class` different images of each, class after class.

    Classes with fewer images are left out. `batches_per_epoch=None`: as many as the images would fill.
    """

    num_classes: int
    per_class: int
    batch_size: int
    batches_per_epoch: int | None = None

    def __post_init__(self) -> None:
        check_sizes(self, "num_classes", "per_class", "batch_size")
        if self.batches_per_epoch is not None:
            check_size("batches_per_epoch", self.batches_per_epoch)

    @property
    def episode_length(self) -> int:
        return self.num_classes * self.per_class

    def num_batches(self, data: ImageSet) -> int:
        return self.batches_per_epoch or max(1, len(data) // (self.batch_size * self.episode_length))

    def epoch(self, data: ImageSet, *, seed: int, epoch: int) -> EpisodeBatches:
        batches = self.num_batches(data)
        generator = stream(seed, epoch, EPISODES)
        table = _classes_of(data, "ClassEpisodes")
        chosen = _draw_classes(table, self.num_classes, self.per_class, batches * self.batch_size, generator)
        items = table.items(chosen, draw_distinct(table.counts[chosen], self.per_class, generator))
        return EpisodeBatches(items.view(batches, self.batch_size, self.episode_length))


@dataclass(frozen=True)
class SetEpisodes:
    """Every class is a data set and makes one episode an epoch, of `episode_length` different items of it.

    Classes with fewer items are left out, and so are those that do not fill a batch.
    """

    episode_length: int
    batch_size: int

    def __post_init__(self) -> None:
        check_sizes(self, "episode_length", "batch_size")

    def num_batches(self, data: ImageSet) -> int:
        return self._batches(int((_classes_of(data, "SetEpisodes").counts >= self.episode_length).sum()))

    def _batches(self, enough: int) -> int:
        if enough < self.batch_size:
            raise ValueError(
                f"episodes: expected at least batch_size = {self.batch_size} sets of {self.episode_length} items, got "
                f"{enough}; take smaller batches or shorter episodes"
            )
        return enough // self.batch_size

    def epoch(self, data: ImageSet, *, seed: int, epoch: int) -> EpisodeBatches:
        table = _classes_of(data, "SetEpisodes")
        enough = (table.counts >= self.episode_length).nonzero().squeeze(-1)
        batches = self._batches(len(enough))
        generator = stream(seed, epoch, EPISODES)
        chosen = enough[torch.randperm(len(enough), generator=generator)[: batches * self.batch_size]]
        if bool((table.counts[chosen] == self.episode_length).all()):  # the whole set, and its order is nothing
            places = torch.arange(self.episode_length).expand(len(chosen), -1)
        else:
            places = draw_distinct(table.counts[chosen], self.episode_length, generator)
        items = table.items(chosen[:, None], places[:, None])
        return EpisodeBatches(items.view(batches, self.batch_size, self.episode_length))


class NoveltyEpisodes(NamedTuple):
    """What is written and what is scored: the written images themselves, other images of their classes, and
    images of classes that were not written.

    Shapes: written (E, n * p), same_class (E, n * q), unseen (E, n * p)
    """

    written: Tensor
    same_class: Tensor
    unseen: Tensor


def novelty_episodes(
    data: ImageSet,
    *,
    num_classes: int,
    per_class: int,
    num_episodes: int,
    seed: int,
    per_class_same: int | None = None,
) -> NoveltyEpisodes:
    """Draw episodes for novelty detection; written and same_class are class after class, unseen in any order.

    `per_class_same`: unwritten images of each written class; None takes `per_class` of them, or as many as the smallest
    class that has any left can give, so that few classes are ruled out by their size.
    """
    for name, value in (("num_classes", num_classes), ("per_class", per_class), ("num_episodes", num_episodes)):
        check_size(name, value)
    generator = stream(seed, NOVELTY)
    table = _classes_of(data, "novelty_episodes")
    if per_class_same is None:
        spare = table.counts[table.counts > per_class] - per_class
        per_class_same = min(per_class, int(spare.min())) if len(spare) else 1
    check_size("per_class_same", per_class_same)
    chosen = _draw_classes(table, num_classes, per_class + per_class_same, num_episodes, generator)
    items = table.items(chosen, draw_distinct(table.counts[chosen], per_class + per_class_same, generator))
    outside = len(data) - table.counts[chosen].sum(-1)
    if bool((outside < num_classes * per_class).any()):
        raise ValueError(
            f"novelty_episodes: expected {num_classes * per_class} images outside any {num_classes} classes, got "
            f"{int(outside.min())} ({table.counts.numel()} classes in all); write fewer classes or images"
        )
    place = draw_distinct(outside, num_classes * per_class, generator)
    for block in chosen.sort(-1).values.unbind(-1):  # places outside the written classes, to places among all
        place = place + torch.where(place >= table.starts[block, None], table.counts[block, None], 0)
    return NoveltyEpisodes(items[..., :per_class].flatten(1), items[..., per_class:].flatten(1), table.order[place])


class _Classes(NamedTuple):
    """The data sorted by class: class k has the items order[starts[k] : starts[k] + counts[k]]."""

    order: Tensor
    starts: Tensor
    counts: Tensor

    def items(self, chosen: Tensor, place: Tensor) -> Tensor:
        """Places within classes to places in the data. Shapes: chosen (E, n), place (E, n, p) -> (E, n, p)"""
        return self.order[self.starts[chosen].unsqueeze(-1) + place]


def _classes_of(data: ImageSet, where: str) -> _Classes:
    if data.labels is None:
        raise ValueError(f"{where}: expected labelled images, but {data.name} has no labels; use IidEpisodes")
    labels = data.labels.cpu()
    counts = labels.unique(return_counts=True)[1]
    return _Classes(labels.argsort(stable=True), counts.cumsum(0) - counts, counts)


def _draw_classes(table: _Classes, num_classes: int, per_class: int, rows: int, generator: Generator) -> Tensor:
    """Different classes with at least `per_class` items each. Shapes: -> (rows, num_classes)"""
    enough = (table.counts >= per_class).nonzero().squeeze(-1)
    if len(enough) < num_classes:
        raise ValueError(
            f"episodes: expected {num_classes} classes with at least {per_class} images each, got {len(enough)} "
            f"(of {len(table.counts)} classes, the largest with {int(table.counts.max())} images); take fewer classes "
            "or fewer images per class"
        )
    return enough[draw_distinct(torch.full((rows,), len(enough)), num_classes, generator)]


def draw_distinct(sizes: Tensor, number: int, generator: Generator) -> Tensor:
    """Different whole numbers below each size, in random order; every choice is equally likely.

    Floyd's algorithm for all rows at once: memory does not grow with the sizes. Shapes: (*) -> (*, number)
    """
    chosen = torch.empty(*sizes.shape, number, dtype=torch.int64)
    for step in range(number):
        last = sizes - number + step
        draw = (torch.rand(sizes.shape, dtype=torch.float64, generator=generator) * (last + 1)).long()
        taken = (chosen[..., :step] == draw.unsqueeze(-1)).any(-1)
        chosen[..., step] = torch.where(taken, last, draw)
    shuffle = torch.rand(chosen.shape, dtype=torch.float64, generator=generator).argsort(-1)
    return chosen.gather(-1, shuffle)


def whole_batches(data: ImageSet, batch_size: int, length: int) -> int:
    batches = len(data) // (batch_size * length)
    if not batches:
        raise ValueError(
            f"episodes: expected at least batch_size * length = {batch_size} * {length} = {batch_size * length} images "
            f"for one batch, got {len(data)}; take smaller batches (data.batch_size) or shorter episodes "
            "(data.episode_length)"
        )
    return batches
