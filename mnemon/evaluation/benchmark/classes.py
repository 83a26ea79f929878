"""What a memory knows of the classes that were written: distractors, novelty, few-shot classification."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from mnemon.core.protocol import MemoryModel
from mnemon.evaluation.benchmark.holding import Records
from mnemon.evaluation.benchmark.subject import Subject, empty_record, most_frames
from mnemon.evaluation.experiments import sizes_of_classes
from mnemon.evaluation.fewshot import class_log_scores, fewshot_accuracy, scorers_of
from mnemon.evaluation.fewshot_bounds import class_bounds, fitting, short_of_optimal
from mnemon.evaluation.likelihood import Estimate, scored_groups
from mnemon.evaluation.novelty import auroc, has_prior, memory_bound, memory_gain
from mnemon.models.codec_model import CodecModel
from mnemon.models.energy import EnergyModel

EXAMPLES = 4
"""Of each class in a memory with distractors, as in VMA, figure 5A."""
Score = Callable[[MemoryModel, Any, Tensor, torch.Generator], Tensor]


def distractors(subject: Subject, asked: set[str]) -> Records:
    """What is lost as classes are added, beyond the log of their number."""
    sizes, test = subject.sizes, subject.tests.every
    classes, examples = fitting(test.data, sizes.distractors, range(1, EXAMPLES + 1))
    found = class_bounds(
        subject.model, test, classes=classes, examples=examples[-1:], num_samples=sizes.samples,
        num_episodes=max(2, sizes.episodes // 2),
    )  # fmt: skip
    for cell, estimate in short_of_optimal(found).items():
        if cell.classes > 1:
            length = cell.classes * cell.examples
            yield subject.record(
                "distractors", estimate, {"classes": cell.classes, "examples": cell.examples},
                num_samples=sizes.samples, episode_length=length, memory_floats=subject.floats(length),
            )  # fmt: skip


def novelty(subject: Subject, asked: set[str]) -> Records:
    """AUROC of written frames, and of others of their classes, against frames of unseen classes."""
    sizes = sizes_of_classes(subject.tests.every.data)
    if sizes is None:
        raise ValueError(f"novelty: expected four classes at least, got {subject.tests.every.data.num_classes}")
    length = sizes["num_classes"] * sizes["per_class"]
    sizes |= {"num_episodes": subject.sizes.episodes, "block": most_frames(subject.model) // length}
    name, score = novelty_score(subject.model)
    found = scored_groups(subject.model, subject.tests.every, score=score, **sizes)
    floats = subject.floats(length)
    for known in ("written", "same_class"):
        values = [auroc(a, b) for a, b in zip(found[known], found["unseen"], strict=True)]
        yield subject.record(
            f"novelty_{known}", Estimate.of(torch.tensor(values)), {"score": name}, episode_length=length,
            memory_floats=floats,
        )  # fmt: skip


def novelty_score(model: MemoryModel) -> tuple[str, Score]:
    """How familiar a frame is: by what the memory adds to its likelihood, by how far it lowers its energy, or by how it
    is read."""
    if isinstance(model, CodecModel):
        return ("gain of the bound", memory_gain) if has_prior(model) else ("bound", memory_bound)
    if isinstance(model, EnergyModel):
        return "fall of the energy", _energy_fall
    return "error of reading", _minus_error


def fewshot(subject: Subject, asked: set[str]) -> Records:
    """Accuracy of classification from a few examples of each class."""
    sizes, test = subject.sizes, subject.tests.every
    by, score = _class_scorer(subject)
    fit = [
        (ways, shots) for ways, shots in sizes.fewshot if fitting(test.data, (ways,), (shots,)) == ((ways,), (shots,))
    ]
    if not fit:
        reason = f"{subject.data} has too few classes, or images of them"
        yield empty_record("fewshot", "does not apply", reason, subject.common)
    for ways, shots in fit:
        if (short := subject.too_short("fewshot", shots, ways)) is not None:
            yield short
            continue
        found = fewshot_accuracy(score, test, ways=ways, shots=shots, num_episodes=sizes.fewshot_queries // ways)
        yield subject.record(
            "fewshot", found, {"ways": ways, "shots": shots, "by": by}, episode_length=ways * shots,
            memory_floats=ways * subject.floats(shots),
        )  # fmt: skip


def _class_scorer(subject: Subject) -> tuple[str, Any]:
    """The model's own scorer; of one without a likelihood, how well a query is read from the memory of each class."""
    model = subject.model
    if not isinstance(model, CodecModel):
        return "error of reading", partial(reading_scores, model)
    own, samples = scorers_of(model)[0], subject.sizes.fewshot_samples

    def score(support: Tensor, queries: Tensor, generator: torch.Generator) -> Tensor:
        return class_log_scores(model, support, queries, scorer=own, num_samples=samples, generator=generator)

    return own, score


def reading_scores(model: MemoryModel, support: Tensor, queries: Tensor, generator: torch.Generator) -> Tensor:
    """Minus the error of a query that is read from the memory of each class.

    Shapes: support (B, W, S, C, H, V), queries (B, Q, C, H, V) -> (B, Q, W)
    """
    found = []
    at_once = max(1, most_frames(model) // (support.shape[1] * queries.shape[1]))
    for examples, asked in zip(support.split(at_once), queries.split(at_once), strict=True):
        state = model.write(examples, generator=generator)
        every = asked.unsqueeze(1).expand(*examples.shape[:2], *asked.shape[1:])
        found.append(_minus_error(model, state, every, generator).mT)
    return torch.cat(found)


def _minus_error(model: MemoryModel, state: Any, x: Tensor, generator: torch.Generator) -> Tensor:
    """Shapes: (*B, Q, C, H, W) -> (*B, Q)"""
    return -(model.read(state, x) - x).square().flatten(-3).mean(-1)


def _energy_fall(model: MemoryModel, state: Any, x: Tensor, generator: torch.Generator) -> Tensor:
    """From the memory with nothing written, as `memory_gain`: some frames have a low energy whatever was written.

    Shapes: (*B, Q, C, H, W) -> (*B, Q)
    """
    assert isinstance(model, EnergyModel)
    return model.energy(model.prior_state(x.shape[:-4]), x) - model.energy(state, x)
