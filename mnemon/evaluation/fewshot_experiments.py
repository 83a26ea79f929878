"""Few-shot generation and classification of a trained run as result records."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from torch import Tensor

from mnemon.evaluation import fewshot_bounds
from mnemon.evaluation.cells import Cell, Table
from mnemon.evaluation.experiments import Evaluation
from mnemon.evaluation.fewshot import (
    LIKELIHOOD,
    class_log_scores,
    fewshot_accuracy,
    nearest_neighbour_scores,
    scorers_of,
)
from mnemon.evaluation.fewshot_bounds import class_bounds, fitting, kl_breakdown, over_memories, short_of_optimal
from mnemon.evaluation.likelihood import Estimate
from mnemon.evaluation.papers import paper_accuracy, paper_cell
from mnemon.models import MemoryVAE
from mnemon.models.statistician import Statistician

WAYS_AND_SHOTS = ((5, 1), (5, 5), (20, 1), (20, 5))
DISTRACTOR_EXAMPLES = 4
BREAKDOWN_CLASSES = 8
"""As in the VMA paper's figures 5A and 4B."""


def fewshot(evaluation: Evaluation) -> Iterable[dict[str, Any]]:
    """Bounds of unwritten images for small memories (VMA, table 1), with growing numbers of classes in memory
    (figure 5A), and the parts of the bound against examples per class (figure 4B)."""
    _check("fewshot", evaluation)
    evaluation = evaluation.with_options("fewshot")
    yield from bound_table(evaluation)
    yield from scaling(evaluation)
    yield from breakdown(evaluation)


def bound_table(
    evaluation: Evaluation,
    classes: Sequence[int] = fewshot_bounds.CLASS_COUNTS,
    examples: Sequence[int] = fewshot_bounds.EXAMPLES,
) -> Iterable[dict[str, Any]]:
    """The mean bound for every number of classes in memory and of examples per class."""
    classes, examples = fitting(evaluation.test.data, classes, examples)
    if not classes or not examples:
        return
    for cell, values in _bounds(evaluation, classes, examples).items():
        kind, data = evaluation.config.model.kind, evaluation.test.data.name
        yield _cell_record(evaluation, "table", cell, over_memories(cell, values), **paper_cell(kind, data, *cell))


def scaling(evaluation: Evaluation, classes: Sequence[int] = fewshot_bounds.DISTRACTORS) -> Iterable[dict[str, Any]]:
    """The bound as classes are added to memory, and what is lost to the optimal bound, that of one class less log C."""
    classes, examples = fitting(evaluation.test.data, classes, range(1, DISTRACTOR_EXAMPLES + 1))
    if not classes or not examples:
        return
    bounds = _bounds(evaluation, classes, examples[-1:])
    short = short_of_optimal(bounds)
    for cell, values in bounds.items():
        yield _cell_record(evaluation, "scaling", cell, over_memories(cell, values))
        yield _cell_record(evaluation, "scaling", cell, short[cell], metric="short_of_optimal", bound=None)


def breakdown(evaluation: Evaluation, examples: Sequence[int] = fewshot_bounds.EXAMPLES) -> Iterable[dict[str, Any]]:
    """Reconstruction and the two KL terms of unwritten images against examples per class."""
    model = evaluation.model
    if isinstance(model, MemoryVAE) and model.online_chunks is not None:
        return  # its terms write every image of an episode
    classes, examples = fitting(evaluation.test.data, range(1, BREAKDOWN_CLASSES + 1), examples)
    if not classes or not examples:
        return
    found = kl_breakdown(
        model, evaluation.test, num_classes=classes[-1], examples=examples, seed=evaluation.seed,
        num_episodes=_episodes(evaluation, classes[-1]),
    )  # fmt: skip
    for count, parts in found.items():
        for name, estimate in parts.items():
            cell = Cell(classes[-1], count)
            yield _cell_record(evaluation, "breakdown", cell, estimate, metric=name, bound=None, num_samples=1)


def classification(evaluation: Evaluation) -> Iterable[dict[str, Any]]:
    """Accuracy by every scorer of the model and by the nearest neighbour in pixels: 5 and 20 ways, 1 and 5 shots."""
    _check("classification", evaluation)
    data = evaluation.test.data
    evaluation = evaluation.with_options("classification")
    for ways, shots in WAYS_AND_SHOTS:
        if fitting(data, (ways,), (shots,)) != ((ways,), (shots,)):
            continue
        sizes = {"ways": ways, "shots": shots, "num_episodes": evaluation.num_episodes, "seed": evaluation.seed}
        told = f"{ways}-way {shots}-shot, {evaluation.num_episodes} episodes"
        common: dict[str, Any] = {
            "metric": "accuracy",
            "unit": "share",
            "scored": "same_class",
            "episode_length": ways * shots,
        }
        for scorer in scorers_of(evaluation.model):
            score = partial(_model_scores, evaluation, scorer)
            one_each = scorer == LIKELIHOOD or isinstance(evaluation.model, Statistician)
            memories = (ways, shots) if one_each else (1, ways * shots)
            floats = memories[0] * evaluation.floats(memories[1])
            paper = paper_accuracy(evaluation.config.model.kind, data.name, scorer, ways, shots)
            yield evaluation.record(
                fewshot_accuracy(score, evaluation.test, **sizes), note=f"{told}; by {scorer}", memory_floats=floats,
                num_samples=evaluation.num_samples, **common, **paper,
            )  # fmt: skip
        found = fewshot_accuracy(lambda support, queries, _: nearest_neighbour_scores(support, queries),
                                 evaluation.test, **sizes)  # fmt: skip
        pixels: dict[str, Any] = {
            "model": "pixel nearest neighbour",
            "memory_floats": ways * shots * math.prod(data.image_shape),
        }
        yield evaluation.record(found, note=f"{told}; by pixels", **common, **pixels)


def _check(part: str, evaluation: Evaluation) -> None:
    if evaluation.test.data.labels is None:
        raise ValueError(f"--part {part}: expected labelled images, but {evaluation.test.data.name} has no labels")
    if not evaluation.model.can_write:
        raise ValueError(f"--part {part}: expected a model that writes examples, got one with a learned memory")


def _model_scores(evaluation: Evaluation, scorer: str, support: Tensor, queries: Tensor, generator: Any) -> Tensor:
    return class_log_scores(
        evaluation.model, support, queries, scorer=scorer, num_samples=evaluation.num_samples, generator=generator
    )


def _bounds(evaluation: Evaluation, classes: Sequence[int], examples: Sequence[int]) -> dict[Cell, Tensor]:
    return class_bounds(
        evaluation.model, evaluation.test, classes=classes, examples=examples, seed=evaluation.seed,
        num_samples=evaluation.num_samples, num_episodes=_episodes(evaluation, max(classes)),
    )  # fmt: skip


def _episodes(evaluation: Evaluation, classes: int) -> int:
    """As many as score `num_episodes` images, one of each class; two at least, for the interval."""
    return max(2, -(-evaluation.num_episodes // classes))


def _cell_record(evaluation: Evaluation, table: Table, cell: Cell, estimate: Estimate, **more: Any) -> dict[str, Any]:
    length = cell.classes * cell.examples
    settings: dict[str, Any] = {
        "metric": "bound",
        "unit": "nats/frame",
        "bound": "conditional",
        "scored": "same_class",
        "num_samples": evaluation.num_samples,
        "episode_length": length,
        "memory_floats": evaluation.floats(length),
        "note": cell.note(table),
    }
    return evaluation.record(estimate, **{**settings, **more})
