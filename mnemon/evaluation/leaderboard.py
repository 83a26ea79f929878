"""Who answers a question best: the benchmark's records as tables of models by questions, with ties told from wins."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from mnemon.evaluation.page_section import grouped_by
from mnemon.evaluation.questions import BY_NAME, QUESTIONS, Note, Question, benchmark_records, question_of, read_note

OWN_CHOICE = ("by", "score", "size")
"""Settings in which each model has a way of its own; they do not tell two columns apart."""
GROWTH = "capacity_recall"
"""The question that shows a memory at several lengths of the episode."""
USUAL = "recall"
"""The question that shows a memory at its usual size."""
SPREAD = {"recall": ("corruption",), "fewshot": ("ways", "shots")}
"""Settings that a table has a column for each choice of."""
DIGITS = {"nats/frame": 1, "per pixel": 4, "auroc": 3, "share": 3}
"""Decimals by unit; other units are shown by three significant figures."""

Settings = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Score:
    """What a model answered, or why it did not. `record` is None where it was never asked."""

    model: str
    record: Mapping[str, Any] | None
    note: Note

    @property
    def value(self) -> float | None:
        value = None if self.record is None else self.record["value"]
        return None if value is None or not math.isfinite(value) else float(value)

    @property
    def interval(self) -> float:
        """Half of the 95% interval; 0 where none was measured."""
        return 0.0 if self.record is None else float(self.record["interval"] or 0.0)

    @property
    def reach(self) -> float:
        """How far from the value the truth may be. Where one episode alone was measured nobody knows; what was counted
        is certain."""
        counted = BY_NAME[self.note.question].group == "cost"
        return self.interval if counted or self.record is None or self.record["interval"] is not None else math.inf

    @property
    def why_not(self) -> str:
        """What stands in place of a value."""
        if self.note.reason is not None:
            return self.note.reason if self.note.outcome == "does not apply" else f"failed: {self.note.reason}"
        return "not measured yet" if self.record is None else "not a finite number"

    @property
    def common_reason(self) -> str:
        """The same without the model's name, so that one note does for all models it holds of."""
        return re.sub(rf"(?<![\w-]){re.escape(self.model)}(?![\w-])", "this model", self.why_not)


@dataclass(frozen=True)
class Column:
    """One question on one data set: a score of every model, and at which settings.

    growing     models whose memory is the larger the more is written, on some data set
    fixed_size  those whose memory was seen at several lengths, and did not grow; of the others nobody knows yet
    """

    question: Question
    data: str
    settings: Settings
    scores: Mapping[str, Score]
    growing: frozenset[str] = frozenset()
    fixed_size: frozenset[str] = frozenset()

    @property
    def ranked(self) -> list[Score]:
        """Those with a value, best first; none where no value is better than another."""
        answered = [score for score in self.scores.values() if score.value is not None and self.question.ranked]
        return sorted(answered, key=lambda score: score.value or 0.0, reverse=self.question.higher_is_better)

    @property
    def best(self) -> list[Score]:
        """The best one, and those next to it whose intervals overlap with its own, so that they may be as good. Of
        what ranks below one that is surely behind, a wide interval says no more than that it is wide."""
        ranked = self.ranked
        # how good a score of one episode is nobody knows: it may be as good as any, and tells nobody from behind it
        first = next((score for score in ranked if math.isfinite(score.reach)), None)
        return ranked if first is None else list(itertools.takewhile(lambda one: self.may_equal(one, first), ranked))

    def may_equal(self, left: Score, right: Score) -> bool:
        """Whether two intervals have a point in common, or both values read the same."""
        assert left.value is not None
        assert right.value is not None
        shown = [number_text(value, self.question.unit) for value in (left.value, right.value)]
        return abs(left.value - right.value) <= left.reach + right.reach or shown[0] == shown[1]

    @property
    def runner_up(self) -> Score | None:
        """The best of those that are surely behind."""
        return next(iter(self.ranked[len(self.best) :]), None)

    def only(self, keep: Callable[[str], bool]) -> Column:
        """The same question with some of the models."""
        return replace(self, scores={model: score for model, score in self.scores.items() if keep(model)})


def data_sets(records: Iterable[Mapping[str, Any]]) -> list[str]:
    """The data sets of the benchmark, in the order of the records."""
    return list(dict.fromkeys(record["data"] for record in benchmark_records(records)))


def columns(records: Iterable[Mapping[str, Any]], data: str) -> list[Column]:
    """The columns of every question that some model was asked on these data, the one at its headline first."""
    every = benchmark_records(records)
    asked = [(record, read_note(record["note"])) for record in every if record["data"] == data]
    models = list(dict.fromkeys(record["model"] for record, _ in asked))
    growing, fixed_size = _by_growth(every)
    usual = {
        record["model"]: record["memory_floats"]
        for record, note in asked
        if note.question == USUAL and record["value"] is not None and record["memory_floats"]
    }
    found = []
    for question in QUESTIONS:
        mine = [(record, note) for record, note in asked if note.question == question.name]
        for settings in _headlines(question, mine) if mine else ():
            scores = _scores(question, mine, settings, usual)
            elsewhere = {record["model"] for record, _ in mine}
            filled = {model: scores.get(model) or _unscored(model, question, elsewhere) for model in models}
            found.append(Column(question, data, settings, filled, growing, fixed_size))
    return found


def find_column(table: Iterable[Column], question: str, where: tuple[str, str] | None = None) -> Column | None:
    """The column of a question at one choice of its settings, or, where none is named, at its headline."""
    mine = (column for column in table if column.question.name == question)
    return next((column for column in mine if where is None or where in column.settings), None)


def answered(table: Sequence[Column]) -> tuple[list[Column], list[str]]:
    """The columns that some model has an answer to; of the others what was asked, and why most models have none."""
    kept = [column for column in table if any(score.value is not None for score in column.scores.values())]
    missing: dict[str, list[str]] = {}
    for column in table:
        if column not in kept:
            ((reason, _),) = Counter(score.common_reason for score in column.scores.values()).most_common(1)
            missing.setdefault(reason, []).append(column.question.title)
    return kept, [f"{'; '.join(titles)}: {reason}" for reason, titles in missing.items()]


def _scores(
    question: Question,
    asked: Sequence[tuple[Mapping[str, Any], Note]],
    settings: Settings,
    usual: Mapping[str, int],
) -> dict[str, Score]:
    """One score for each model: what was measured at these settings, or else what says why nothing was. Of several
    sizes of its memory the one that is nearest to half of the usual, or of the largest where that is not known; of
    smaller ones only."""
    measured = [(r, n) for r, n in asked if n.outcome == "measured" and settings_of(question, r, n) == settings]
    if "size" in question.settings:
        sizes = grouped_by(measured, lambda pair: str(pair[0]["model"]))
        largest = {model: max(r["memory_floats"] or 1 for r, _ in pairs) for model, pairs in sizes.items()}
        whole = {**largest, **usual}
        measured = [(r, n) for r, n in measured if (r["memory_floats"] or 0) < whole[r["model"]]]
        measured.sort(key=lambda pair: _from_half(pair[0]["memory_floats"], whole[pair[0]["model"]]))
    without = [(r, n) for r, n in asked if n.outcome != "measured"]
    of_this = [(r, n) for r, n in without if n.settings and settings_of(question, r, n) == settings]
    scores: dict[str, Score] = {}
    for record, note in (*measured, *of_this, *((r, n) for r, n in without if not n.settings)):
        scores.setdefault(record["model"], Score(record["model"], record, note))
    return scores


def _unscored(model: str, question: Question, elsewhere: Collection[str]) -> Score:
    """A model that has no answer here, or only under other settings, as on another device."""
    other = "with memories as large or larger only" if "size" in question.settings else "at other settings only"
    reason = f"measured {other}" if model in elsewhere else None
    return Score(model, None, Note(question.name, {}, "does not apply" if reason else "measured", reason))


def _from_half(floats: int | None, usual: int) -> float:
    return abs(math.log(2 * (floats or 1) / usual))


def _by_growth(records: Iterable[Mapping[str, Any]]) -> tuple[frozenset[str], frozenset[str]]:
    """Models whose memory grows with the episode, on whichever data set, and those whose does not: whether the longest
    episode makes a larger memory than the one before."""
    sizes: dict[tuple[str, str], dict[int, int]] = {}
    for record in records:
        if question_of(record) == GROWTH and record["value"] is not None:
            of_model = sizes.setdefault((record["model"], record["data"]), {})
            of_model[record["episode_length"]] = record["memory_floats"] or 0
    known: dict[str, list[bool]] = {}
    for (model, _), floats in sizes.items():
        if len(floats) > 1:
            *_, second, longest = sorted(floats)
            known.setdefault(model, []).append(floats[longest] > floats[second])
    growing = frozenset(model for model, grew in known.items() if any(grew))
    return growing, frozenset(known) - growing


def settings_of(question: Question, record: Mapping[str, Any], note: Note) -> Settings:
    """What tells the numbers of a question apart, as words."""
    told = [(name, note.settings.get(name, "")) for name in question.settings if name not in OWN_CHOICE]
    lengths = [("episode_length", str(record["episode_length"]))] if "episode_length" in question.headline else []
    return (*told, *lengths)


def _headlines(question: Question, asked: Sequence[tuple[Mapping[str, Any], Note]]) -> list[Settings]:
    """The settings of a table's columns: nearest to those the question names, then those that most models have."""
    found = Counter(settings_of(question, record, note) for record, note in asked if note.outcome == "measured")

    def preference(settings: Settings) -> tuple[int, int]:
        told = dict(settings)
        return sum(told.get(key) == value for key, value in question.headline.items()), found[settings]

    kinds: dict[Settings, list[Settings]] = {}
    for settings in found:
        spread = SPREAD.get(question.name, ())
        kinds.setdefault(tuple(pair for pair in settings if pair[0] in spread), []).append(settings)
    chosen = [max(reversed(some), key=preference) for some in kinds.values()]
    return sorted(chosen, key=preference, reverse=True) if chosen else [()]


def settings_text(settings: Settings) -> str:
    """Settings as people say them: "salt and pepper 0.1, 3 reads"."""
    told = {key: value.replace("_", " ") for key, value in settings if value}
    words = []
    if "corruption" in told:
        words.append(_damage_text(told.pop("corruption"), told.pop("level", None)))
    for key, phrase in PHRASES.items():
        if key in told:
            value = told.pop(key)
            words.append(phrase.format(value, "" if value == "1" else "s"))
    return ", ".join([*words, *(f"{key} {value}" for key, value in told.items())])


SIDES = {"0": "left", "1": "right", "2": "top", "3": "bottom"}
"""By the level of the corruption "half"."""


def _damage_text(corruption: str, level: str | None) -> str:
    if level is None:
        return corruption
    if corruption == "half":
        return f"{SIDES.get(level, level)} half erased"
    return f"block of {level} pixels erased" if corruption == "block" else f"{corruption} {level}"


def where_text(column: Column) -> str:
    """At which settings a column stands."""
    return ", ".join(text for text in (settings_text(column.settings), column.question.at) if text)


def memory_text(columns: Sequence[Column], model: str) -> str:
    """Floats of a model's memory, in the first column that tells; + where it grows. A large one is no fair rival of a
    small one."""
    records = [record for column in columns if (record := column.scores[model].record) is not None]
    floats = next((record["memory_floats"] for record in records if record["memory_floats"] is not None), None)
    return "" if floats is None else f"{floats:,}{'+' * (model in columns[0].growing)}"


PHRASES = {
    "reads": "{} read{}",
    "episode_length": "{} frames written",
    "classes": "{} classes",
    "examples": "{} example{} of each",
    "ways": "{} classes",
    "shots": "{} example{} of each",
    "device": "on {}",
    "judge": "by a classifier that names a share of {} of real frames rightly",
}


def number_text(value: float, unit: str | None, *, interval: float | None = None) -> str:
    """A value and its interval as the unit asks for, with as many decimals; what was counted has none."""
    shown = [value] if interval is None or interval == 0 else [value, interval]
    if 0 < abs(value) < 0.001 and unit not in DIGITS:
        return " ± ".join(f"{part:.1e}" for part in shown)
    counted = shown == [round(value)]
    digits = DIGITS.get(unit or "", 0 if counted else max(0, 2 - math.floor(math.log10(abs(value) or 1))))
    return " ± ".join(f"{part:,.{digits}f}" for part in shown)


def way_text(question: Question) -> str:
    """Which way is better, if either is."""
    if not question.ranked:
        return "not ranked"
    return "higher is better" if question.higher_is_better else "lower is better"


def unit_text(question: Question) -> str:
    """The unit in words; empty where the number needs none."""
    if question.unit == "auroc":
        return "AUROC"
    if question.unit in (question.metric, "share"):
        return ""
    return f"squared error {question.unit}" if question.metric.startswith("mse") else question.unit


def score_text(score: Score, question: Question) -> str:
    """A score with its interval, and the way that the model has of its own."""
    assert score.value is not None
    return number_text(score.value, question.unit, interval=score.interval)


def own_choice(score: Score) -> str:
    """Which of its ways a model was asked by, as "by address" or "16 slots"; empty where it has one only."""
    told = {name: text.replace("_", " ") for name, text in score.note.settings.items() if name in OWN_CHOICE}
    return ", ".join(text if name == "size" else f"by {text}" for name, text in told.items())


Standing = Literal["best", "tied", "behind", "none"]


def standing(column: Column, model: str) -> Standing:
    """best: alone; tied: among those that cannot be told from the best."""
    best = [score.model for score in column.best]
    if model in best:
        return "best" if len(best) == 1 else "tied"
    return "none" if column.scores[model].value is None else "behind"
