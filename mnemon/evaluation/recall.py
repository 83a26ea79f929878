"""Recall: how much of a corruption does reading through the memory undo?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mnemon.core.protocol import MemoryModel
from mnemon.core.random import stream
from mnemon.data.corruptions import corrupt
from mnemon.evaluation.likelihood import Estimate, TestSet, frames_at_once

RECALL = 13
CORRUPTIONS: dict[str, tuple[str, float]] = {
    "salt and pepper, 10% of the pixels": ("salt_and_pepper", 0.1),
    "right half erased": ("half", 1),
}
"""What is measured: a corruption and its level, by the name that a record gives it."""


@dataclass(frozen=True)
class RecallErrors:
    """Mean squared error per pixel: of the corrupted image itself, and after each number of reads."""

    corrupted: Estimate
    reads: tuple[Estimate, ...]

    @property
    def best(self) -> tuple[int, Estimate]:
        """The number of reads with the smallest error, and that error."""
        best = min(range(len(self.reads)), key=lambda i: self.reads[i].value)
        return best + 1, self.reads[best]

    @property
    def removed(self) -> float:
        """Share of the corruption's error that the best read removes."""
        return 1 - self.best[1].value / self.corrupted.value


def recall_errors(model: MemoryModel, test: TestSet, name: str, level: float, **sizes: Any) -> RecallErrors:
    """`errors_of_corruptions` of a single one."""
    return errors_of_corruptions(model, test, [(name, level)], **sizes)[0]


@torch.no_grad()
def errors_of_corruptions(
    model: MemoryModel,
    test: TestSet,
    corruptions: Sequence[tuple[str, float]],
    *,
    episode_length: int,
    batch_size: int = 16,
    num_batches: int | None = 8,
    reads: int = 5,
    seed: int = 0,
    write: Mapping[str, Any] | None = None,
    at_once: int | None = None,
) -> list[RecallErrors]:
    """Write test episodes once, then for each corruption and level damage their images and read 1 to `reads` times.
    Erased pixels are read with `observed`, and observed ones are kept as they are.

    at_once  images that are read together: cues of several corruptions, since each is read on its own whatever else is
             asked; as many as the device holds when None
    """
    at_once = frames_at_once(test.device) if at_once is None else at_once
    found: list[list[Tensor]] = [[] for _ in corruptions]
    for i, (x, generator) in enumerate(test.batches(episode_length, batch_size, seed)):
        if num_batches is not None and i == num_batches:
            break
        state = model.write(x, generator=generator, **(write or {}))
        made = [
            corrupt(name, x, level, stream(seed, RECALL, i, device=str(test.device))) for name, level in corruptions
        ]
        for cues in _together(made, x, at_once):
            read = successive_reads(model, state, cues.images, cues.observed, reads)
            errors = torch.stack([_errors(images, x) for images in (cues.images, *read)], dim=1).cpu()
            for place, values in zip(cues.places, errors, strict=True):
                found[place].append(values)
    estimates = [[Estimate.of(values) for values in torch.cat(errors, -1)] for errors in found]
    return [RecallErrors(before, tuple(after)) for before, *after in estimates]


def successive_reads(model: MemoryModel, state: Any, cue: Tensor, observed: Tensor | None, reads: int) -> list[Tensor]:
    """The recall after 1, 2, ... reads, observed pixels put back. Shapes: (*B, Q, *X) -> that, `reads` times"""
    results: list[Tensor] = []
    for step in range(reads):
        # only the first read has to fill what is not observed: the others go on from what was read
        read = model.read(state, results[-1]) if step else model.read(state, cue, observed=observed)
        results.append(read if observed is None else torch.where(observed, cue, read))
    return results


class _Cues(NamedTuple):
    """Cues of some corruptions, behind one another in every episode. Shapes: (B, n T, *X)"""

    places: Sequence[int]
    images: Tensor
    observed: Tensor | None


def _together(made: Iterable[tuple[Tensor, Tensor | None]], clean: Tensor, at_once: int) -> Iterator[_Cues]:
    """Those with pixels that are not observed apart from the others, a few corruptions at a time."""
    by_kind: dict[bool, list[tuple[int, Tensor, Tensor | None]]] = {}
    for place, (cue, observed) in enumerate(made):
        by_kind.setdefault(observed is None, []).append((place, cue, observed))
    number = max(1, at_once // (clean.shape[0] * clean.shape[1]))
    for kind in by_kind.values():
        for start in range(0, len(kind), number):
            some = kind[start : start + number]
            masks = [mask.expand_as(clean) for _, _, mask in some if mask is not None]
            images = torch.cat([cue for _, cue, _ in some], dim=1)
            yield _Cues([place for place, _, _ in some], images, torch.cat(masks, dim=1) if masks else None)


def _errors(images: Tensor, clean: Tensor) -> Tensor:
    """One number for each corruption and episode. Shapes: (B, n T, *X), (B, T, *X) -> (n, B)"""
    each = images.unflatten(1, (-1, clean.shape[1])) - clean.unsqueeze(1)
    return each.square().flatten(2).mean(2).mT
