"""Does a memory pay? Every model beside its floor: the one without a memory that has the same nets."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from mnemon.evaluation.leaderboard import Column, find_column, number_text, where_text
from mnemon.evaluation.page_section import Section
from mnemon.evaluation.questions import Question
from mnemon.registry import entries

ASKED = (
    ("joint", None),
    ("joint_classes", None),
    ("conditional", None),
    ("same_class", None),
    ("recall", ("corruption", "salt_and_pepper")),
    ("recall", ("corruption", "half")),
)
"""What a model without a memory answers as well, each at one choice of its settings or at its headline."""
TITLE = "Does a memory pay?"
RULE = (
    "Every model with a memory beside its floor: the model without one that has the same decoder and, but for the "
    "layers that give the code, the same encoder. What is left between the two is the memory, and what a model has of "
    "its own. Better or worse: their intervals do not overlap; else level. The table counts data sets, as better / "
    "level / worse; n/a: no answer. Models whose nets no other has without a memory are not here."
)
PER_DATA = (
    "How much better than its floor a model is, more than 0 for better: nats a frame for bounds, squared error a pixel "
    "for recall. ± the sum of both 95% intervals; within it the two are level. ▲ better, ▼ worse."
)
MARKS = {"better": " ▲", "level": "", "worse": " ▼"}
MISSING = "n/a"

Outcome = Literal["better", "level", "worse"]
OUTCOMES: tuple[Outcome, ...] = ("better", "level", "worse")
Gains = Mapping[tuple[int, str], Mapping[str, "Gain"]]
"""By column (its place in `ASKED`, and its head) and by model."""


@dataclass(frozen=True)
class Gain:
    """How much better a model answers a question than its floor, and how far their intervals reach together; infinite
    where one of them is of one episode."""

    question: Question
    value: float
    reach: float
    outcome: Outcome

    @property
    def text(self) -> str:
        sign = "+" if self.value > 0 else ""
        reach = self.reach if math.isfinite(self.reach) else None
        return sign + number_text(self.value, self.question.unit, interval=reach) + MARKS[self.outcome]


def known_floors() -> dict[str, str]:
    """The model without a memory that has the same nets, of every model that has such a one."""
    return {model: entry.floor for model, entry in entries().items() if entry.floor}


def is_floor_of_some(model: str, models: Collection[str]) -> bool:
    """Whether some of the models are shown beside this one."""
    floors = known_floors()
    return any(floors.get(other) == model for other in models)


def gain(column: Column, model: str, floor: str) -> Gain | None:
    """None where either has no answer."""
    if not {model, floor} <= column.scores.keys():
        return None
    own, other = column.scores[model], column.scores[floor]
    if own.value is None or other.value is None:
        return None
    value = (own.value - other.value) * (1 if column.question.higher_is_better else -1)
    outcome: Outcome = "level" if column.may_equal(own, other) else "better" if value > 0 else "worse"
    return Gain(column.question, value, own.reach + other.reach, outcome)


def gain_sections(tables: Mapping[str, Sequence[Column]], floors: Mapping[str, str]) -> tuple[Section, list[Section]]:
    """A table that counts over data sets, empty where no model was measured beside its floor, and one for each of them.

    tables  the columns of each data set
    floors  of models, by name
    """
    found = {data: gains for data, table in tables.items() if (gains := _gains(table, floors))}
    every = sorted({column for gains in found.values() for column in gains})
    counts = {head: _counts([gains.get((place, head), {}) for gains in found.values()]) for place, head in every}
    nobody = [head for head, count in counts.items() if not any(one["better"] for one in count.values())]
    verdict = f" No memory is better than its floor by: {'; '.join(nobody)}." if nobody else ""
    told = {head: {model: _text(one) for model, one in count.items()} for head, count in counts.items()}
    by_data = []
    for data, gains in found.items():
        texts = {head: {model: one.text for model, one in column.items()} for (_, head), column in gains.items()}
        by_data.append(_section(data, PER_DATA, texts, floors))
    return _section(TITLE, RULE + verdict, told, floors), by_data


def _gains(table: Sequence[Column], floors: Mapping[str, str]) -> Gains:
    gains = {}
    for place, (question, where) in enumerate(ASKED):
        column = find_column(table, question, where)
        if column is None:
            continue
        mine = {model: gain(column, model, floors[model]) for model in column.scores if model in floors}
        if told := {model: one for model, one in mine.items() if one is not None}:
            at = f" ({where_text(column)})" if where_text(column) else ""
            gains[place, column.question.title + at] = told
    return gains


def _counts(columns: Sequence[Mapping[str, Gain]]) -> dict[str, Counter[Outcome]]:
    """By model: on how many data sets it is better, level and worse."""
    models = dict.fromkeys(model for column in columns for model in column)
    return {model: Counter(column[model].outcome for column in columns if model in column) for model in models}


def _text(count: Counter[Outcome]) -> str:
    return " / ".join(str(count[outcome]) for outcome in OUTCOMES)


def _section(title: str, note: str, told: Mapping[str, Mapping[str, str]], floors: Mapping[str, str]) -> Section:
    models = [model for model in floors if any(model in column for column in told.values())]
    rows = [
        [f"`{model}`", f"`{floors[model]}`", *(column.get(model, MISSING) for column in told.values())]
        for model in models
    ]
    return Section(title, note, ("model", "its floor", *told), rows)
