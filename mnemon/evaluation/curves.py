"""The benchmark's numbers along one setting: recall against reads, damage and episode length, bounds against size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mnemon.evaluation.leaderboard import OWN_CHOICE, settings_text
from mnemon.evaluation.questions import BY_NAME, Note, Question, benchmark_records, read_note
from mnemon.small_multiples import Point

OF_RECORD = ("episode_length", "memory_floats")
"""What a curve may go along that stands in the record itself."""


@dataclass(frozen=True)
class Along:
    """A question, the setting that its curves go along, and what that is called. logarithmic: the setting; orders: the
    answers are of either sign and orders of magnitude apart."""

    question: str
    setting: str
    label: str
    logarithmic: bool = False
    orders: bool = False


ALONG = (
    Along("recall", "reads", "number of reads"),
    Along("recall", "level", "how much is damaged"),
    Along("capacity_recall", "episode_length", "frames written", True),
    Along("capacity_bound", "episode_length", "frames written", True),
    Along("resized_recall", "memory_floats", "floats of the memory", True),
    Along("resized_bound", "memory_floats", "floats of the memory", True),
    Along("distractors", "classes", "classes in memory", True, orders=True),
    Along("fewshot", "shots", "examples of each class"),
)


@dataclass(frozen=True, eq=False)
class Figure:
    """Curves of all models along one setting, with the others fixed."""

    along: Along
    question: Question
    fixed: str
    lines: dict[str, list[Point]]


def figures(records: Iterable[Mapping[str, Any]], data: str) -> list[Figure]:
    """Every figure that these data have at least two points for. Where other settings vary too, one for each kind of
    damage or number of classes, at the choice that comes nearest to the question's headline."""
    asked = [(record, read_note(record["note"])) for record in benchmark_records(records) if record["data"] == data]
    found = []
    for along in ALONG:
        question = BY_NAME[along.question]
        mine = [(r, n) for r, n in asked if n.question == question.name and r["value"] is not None]
        for fixed, lines in _families(along, question, mine).items():
            if max((len(points) for points in lines.values()), default=0) > 1:
                found.append(Figure(along, question, settings_text(fixed), lines))
    return found


Fixed = tuple[tuple[str, str], ...]


def _families(
    along: Along, question: Question, asked: list[tuple[Mapping[str, Any], Note]]
) -> dict[Fixed, dict[str, list[Point]]]:
    """Lines by what is fixed; one family for each kind (corruption, or nothing)."""
    families: dict[Fixed, dict[str, dict[float, Point]]] = {}
    for record, note in asked:
        at = record[along.setting] if along.setting in OF_RECORD else note.settings.get(along.setting)
        if at is None:
            continue
        names = [name for name in question.settings if name not in (along.setting, *OWN_CHOICE)]
        fixed = tuple((name, note.settings.get(name, "")) for name in names)
        point = Point(float(at), float(record["value"]), float(record["interval"] or 0.0))
        families.setdefault(fixed, {}).setdefault(record["model"], {}).setdefault(point.x, point)
    kinds: dict[Fixed, list[Fixed]] = {}
    for fixed in families:
        kinds.setdefault(tuple(pair for pair in fixed if pair[0] == "corruption"), []).append(fixed)
    chosen = [max(some, key=lambda fixed: _preference(question, fixed, families[fixed])) for some in kinds.values()]
    return {
        fixed: {model: [points[x] for x in sorted(points)] for model, points in families[fixed].items()}
        for fixed in chosen
    }


def _preference(question: Question, fixed: Fixed, lines: Mapping[str, Mapping[float, Point]]) -> tuple[int, int]:
    """How many settings are those of the headline, and how much was measured."""
    told = dict(fixed)
    agree = sum(told.get(name) == value for name, value in question.headline.items())
    return agree, sum(len(points) for points in lines.values())
