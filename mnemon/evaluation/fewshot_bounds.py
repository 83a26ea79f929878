"""Few-shot generation in numbers: how likely are unwritten images of the classes in memory?

Everything is measured on the same drawn classes and images: what differs between two cells of a table is the memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from mnemon.core.protocol import MemoryModel
from mnemon.core.random import stream
from mnemon.data.images import ImageSet
from mnemon.evaluation.cells import Cell
from mnemon.evaluation.fewshot import fewshot_episodes
from mnemon.evaluation.likelihood import Estimate, TestSet, frames_at_once, importance_bound

CLASS_COUNTS = (1, 2, 4, 16)
EXAMPLES = (1, 2, 3, 4, 5, 10, 19)
"""Classes in memory and examples of each: the cells of VMA, table 1."""
DISTRACTORS = (1, 2, 4, 8, 16, 48, 144)
"""Classes in memory of VMA, figure 5A; all divide 144, the number of its test classes."""
KL_TERMS = ("reconstruction", "code_kl", "address_kl")
BOUNDS, BREAKDOWN = 16, 17


def fitting(
    data: ImageSet, classes: Sequence[int], examples: Sequence[int], scored: int = 1
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Those numbers of classes and of examples that the data have images for; none without labels.

    A number of examples fits when half of the classes have so many images and `scored` more.
    """
    if data.labels is None:
        return (), ()
    sizes = data.labels.unique(return_counts=True)[1]
    kept = tuple(number for number in examples if number + scored <= int(sizes.median()))
    enough = int((sizes >= max(kept, default=0) + scored).sum())
    return tuple(number for number in classes if number <= enough), kept


@torch.no_grad()
def class_bounds(
    model: MemoryModel,
    test: TestSet,
    *,
    classes: Sequence[int],
    examples: Sequence[int],
    num_episodes: int = 64,
    num_samples: int = 1,
    scored: int = 1,
    seed: int = 0,
) -> dict[Cell, Tensor]:
    """Bound on log p(x | memory) of unwritten images of the classes in memory, for every cell of a table.

    An episode has as many classes as the largest memory. For a smaller one its classes are dealt to as many memories
    as they fill, so that every cell scores the same images (less those of classes that are left over), `scored` of
    each class. Shapes: -> (num_episodes, classes dealt) each, the mean over a class's scored images
    """
    most, longest = max(classes), max(examples)
    drawn = fewshot_episodes(test.data, ways=most, shots=longest, queries=scored, num_episodes=num_episodes, seed=seed)
    found = {}
    for number in classes:
        memories = most // number
        support, queries = (
            part[:, : memories * number].unflatten(1, (memories, number)).flatten(0, 1) for part in drawn
        )
        for count in examples:
            values = []
            for written, asked, generator in _blocks(test, support[..., :count], queries, seed, BOUNDS):
                state = model.write(written, generator=generator)
                bound = importance_bound(model, state, asked, num_samples=num_samples, generator=generator)
                values.append(bound.cpu())
            by_class = torch.cat(values).unflatten(-1, (number, scored)).mean(-1)
            found[Cell(number, count)] = by_class.unflatten(0, (num_episodes, memories)).flatten(1)
    return found


def over_memories(cell: Cell, values: Tensor) -> Estimate:
    """The mean of a cell's numbers, with its interval over memories: images that one memory explains are not
    independent. Shapes: (num_episodes, classes dealt)"""
    return Estimate.of(values.unflatten(-1, (-1, cell.classes)).mean(-1))


def short_of_optimal(bounds: Mapping[Cell, Tensor]) -> dict[Cell, Estimate]:
    """Nats that are lost to the best one can do with more classes in memory: the bound with one class, less log C.

    A memory of C disjoint classes costs a perfect model log C, the choice of the class (VMA, figure 5A). Image by image
    against the memory of its own class alone; the interval is over the memories of C classes.
    """
    found = {}
    for cell, values in bounds.items():
        alone = bounds[Cell(1, cell.examples)][:, : values.shape[1]]
        found[cell] = over_memories(cell, alone.double() - math.log(cell.classes) - values)
    return found


@torch.no_grad()
def kl_breakdown(
    model: MemoryModel,
    test: TestSet,
    *,
    num_classes: int,
    examples: Sequence[int],
    num_episodes: int = 64,
    scored: int = 1,
    seed: int = 0,
) -> dict[int, dict[str, Estimate]]:
    """The parts of the bound of unwritten images, nats per frame, for each number of examples per class in memory.

    VMA, figure 4B, but with one model for all numbers.
    """
    drawn = fewshot_episodes(
        test.data, ways=num_classes, shots=max(examples), queries=scored, num_episodes=num_episodes, seed=seed
    )
    found = {}
    for count in examples:
        parts: dict[str, list[Tensor]] = {name: [] for name in KL_TERMS}
        for written, asked, generator in _blocks(test, drawn.support[..., :count], drawn.queries, seed, BREAKDOWN):
            x = torch.cat((written, asked), dim=1)
            is_written = torch.arange(x.shape[1], device=x.device) < written.shape[1]
            terms = model.terms(x, write_mask=is_written.expand(x.shape[:2]), generator=generator)
            for name in KL_TERMS:
                parts[name].append(getattr(terms, name)[:, written.shape[1] :].mean(-1).cpu())
        found[count] = {name: Estimate.of(torch.cat(values)) for name, values in parts.items()}
    return found


def _blocks(
    test: TestSet, support: Tensor, queries: Tensor, seed: int, purpose: int
) -> Iterator[tuple[Tensor, Tensor, torch.Generator]]:
    """Memories to be written and images to be scored, some at a time.

    Shapes: support (N, C, n), queries (N, C, q) -> (b, C n, *X) and (b, C q, *X)
    """
    support, queries = support.flatten(1), queries.flatten(1)
    block = max(1, frames_at_once(test.device) // (support.shape[1] + queries.shape[1]))
    for start in range(0, len(support), block):
        part = slice(start, start + block)
        generator = stream(seed, purpose, start, device=str(test.device))
        yield test.draw(support[part], generator), test.draw(queries[part], generator), generator
