"""The questions in the parts that answer them: what is computed once is asked once, and kept as soon as it is there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mnemon.evaluation.benchmark import classes, costs, holding
from mnemon.evaluation.benchmark.holding import Records
from mnemon.evaluation.benchmark.samples import Judge, samples
from mnemon.evaluation.benchmark.subject import Subject, empty_record
from mnemon.evaluation.questions import BY_NAME, QUESTIONS, why_not

FindJudge = Callable[[], Judge | None]
"""Called where samples are judged: it may have to train the judge first."""


@dataclass(frozen=True)
class Part:
    """Questions that are answered together."""

    name: str
    questions: tuple[str, ...]
    answer: Callable[[Subject, set[str], FindJudge], Records]


def _unjudged(answer: Callable[[Subject, set[str]], Records]) -> Callable[[Subject, set[str], FindJudge], Records]:
    return lambda subject, asked, find_judge: answer(subject, asked)


def _judged(subject: Subject, asked: set[str], find_judge: FindJudge) -> Records:
    return samples(subject, asked, find_judge())


PARTS: tuple[Part, ...] = (
    Part("bounds", ("joint", "conditional"), _unjudged(holding.bounds)),
    Part("class_bounds", ("joint_classes", "conditional_classes"), _unjudged(holding.bounds_of_classes)),
    Part("groups", ("same_class", "unseen"), _unjudged(holding.groups)),
    Part("recall", ("recall",), _unjudged(holding.recall)),
    Part("capacity", ("capacity_recall", "capacity_bound"), _unjudged(holding.capacity)),
    Part("resized", ("resized_recall", "resized_bound"), _unjudged(holding.resized)),
    Part("distractors", ("distractors",), _unjudged(classes.distractors)),
    Part("novelty", ("novelty_written", "novelty_same_class"), _unjudged(classes.novelty)),
    Part("fewshot", ("fewshot",), _unjudged(classes.fewshot)),
    Part("samples", ("sample_fidelity", "sample_diversity", "sample_nearest", "sample_coverage"), _judged),
    Part(
        "costs",
        ("write_latency", "read_latency", "write_rate", "read_rate", "peak_memory", "state_bytes"),
        _unjudged(costs.costs),
    ),
    Part("training", ("train_step",), _unjudged(costs.training_step)),
)
assert sorted(name for part in PARTS for name in part.questions) == sorted(question.name for question in QUESTIONS)


def ask(part: Part, subject: Subject, find_judge: FindJudge) -> list[dict[str, Any]]:
    """The records of a part: numbers, or why there are none."""
    reasons = {
        name: why_not(BY_NAME[name], subject.has, model=subject.kind, data=subject.data) for name in part.questions
    }
    records = [
        empty_record(name, "does not apply", reason, subject.common, subject.length)
        for name, reason in reasons.items()
        if reason is not None
    ]
    asked = {name for name, reason in reasons.items() if reason is None}
    return records + (list(part.answer(subject, asked, find_judge)) if asked else [])


def unasked(part: Part, outcome: Any, reason: str, common: dict[str, Any]) -> list[dict[str, Any]]:
    """The same reason for all questions of a part."""
    return [empty_record(name, outcome, reason, common) for name in part.questions]
