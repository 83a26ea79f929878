"""Which memory for which job, in plain words: every winner, tie and warning is read off the numbers by one `RULE`."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mnemon.evaluation import gains
from mnemon.evaluation.leaderboard import Column, Score, find_column, score_text, unit_text, where_text
from mnemon.registry import entries

RULE = (
    "The sentences are read off the tables below by one rule. A model leads on a data set if its interval does not "
    "overlap with the next one's; else it cannot be told from those that follow it, up to the first whose interval "
    "does not overlap. Who leads, or cannot be told from who does, is among the best, but for those whose interval "
    "reaches past the middle of the field (the median of five models or more): a wide interval "
    "makes no winner. A model is named for a job if no other is among the best on more data "
    "sets. Where a cost is judged, models without a memory are left out. Where a data set has one training of each "
    "model, intervals are over test episodes, and a lead is one of that training."
)
A_FIELD = 5
"""From so many models on they have a middle."""
SHORT_NOTE = (
    "In brackets: on how many of the data sets with a ranked answer a model is among the best. A memory that is not of "
    "fixed size keeps every frame. What the names stand for is told below, under The models."
)
NO_MEMORY = ("copy",)
"""Baselines that give back what they are shown."""


def holds_nothing(model: str) -> bool:
    """Whether a model has no memory, or one that only counts: what a memory has to do better than."""
    known = entries()
    return model in NO_MEMORY or (model in known and known[model].state_floats == "1")


@dataclass(frozen=True)
class Job:
    """Something that a memory is wanted for, and the question that tells who does it best; `where`: at one choice of
    its settings, or at its headline."""

    wish: str
    question: str
    where: tuple[str, str] | None = None
    fixed_size: bool = False
    """Whether memories that grow with the episode are left out."""
    caution: str = ""
    """What to bear in mind."""


JOBS = (
    Job("Clean up damaged copies of images that were stored", "recall",
        caution="This is of one kind of damage: who takes it off may leave others, as the tables tell."),
    Job("Fill in the missing half of an image that was stored", "recall", ("corruption", "half")),
    Job("Hold many images in a memory that does not grow", "capacity_recall", fixed_size=True),
    Job("Explain any images, their memory paid for", "joint"),
    Job("Explain images of a few classes, their memory paid for", "joint_classes"),
    Job("Explain the stored images once the memory is there", "conditional"),
    Job("Explain new images of the stored classes", "same_class"),
    Job("Notice that an image is of a class that was not stored", "novelty_same_class"),
    Job("Recognise an image that was stored", "novelty_written"),
    Job("Name the class of an image from one example of each", "fewshot"),
    Job("Generate images that show the stored classes", "sample_fidelity",
        caution="A memory that keeps frames, `slots` the few that fit, gives back copies of them: see the distance of "
        "samples to the episode."),
    Job("Generate images of all that was stored, not of a few", "sample_coverage"),
    Job("Write quickly", "write_latency"),
    Job("Keep the memory small", "state_bytes",
        caution="Most sizes are the choice of the protocol, some 3,072 floats, and could be others."),
    Job("Train quickly", "train_step"),
)  # fmt: skip


@dataclass(frozen=True)
class Advice:
    """What the numbers say about a job: whom they name of all memories and of those of fixed size, one sentence over
    all data sets, and one for each."""

    job: Job
    named: str
    named_of_fixed_size: str
    verdict: str
    details: tuple[str, ...]


SUMMARY = ("job", "of all memories", "of those of fixed size")
"""The heads of a table of advice."""


def summary(advice: Sequence[Advice]) -> list[list[str]]:
    """A row for each job."""
    return [[one.job.wish, one.named, one.named_of_fixed_size] for one in advice]


def advise(tables: Sequence[Sequence[Column]], holds_nothing: Callable[[str], bool]) -> list[Advice]:
    """Advice on every job whose question was answered by several models.

    tables         the columns of each data set
    holds_nothing  whether a model is one without a memory, which a memory has to beat
    """
    found = []
    for job in JOBS:
        mine = [column for table in tables if (column := find_column(table, job.question, job.where)) is not None]
        if mine and mine[0].question.group == "cost":  # nothing is cheap to keep, and no use
            mine = [column.only(lambda model: not holds_nothing(model)) for column in mine]
        if job.fixed_size:
            mine = [_of_fixed_size(column) for column in mine]
        answered = [column for column in mine if len(column.ranked) > 1]  # one answer alone is no advice
        if answered:
            found.append(_advice(job, answered, len(tables), holds_nothing))
    return found


def without_answer(advice: Sequence[Advice]) -> str:
    """A sentence on the jobs that nothing is known about yet; empty where there are none."""
    known = {one.job for one in advice}
    missing = [job.wish for job in JOBS if job not in known]
    return f"Not measured yet, or answered by one model at most: {'; '.join(missing)}." if missing else ""


def _advice(job: Job, columns: Sequence[Column], data_sets: int, holds_nothing: Callable[[str], bool]) -> Advice:
    """Where only memories that grow with the episode win, also which of the others comes first. data_sets: how many
    there are, also of those without an answer."""
    verdict, details = _verdict(columns, data_sets, holds_nothing), [_detail(column) for column in columns]
    fixed = [rest for column in columns if len((rest := _of_fixed_size(column)).ranked) > 1]
    named = _named(columns)
    if fixed and named and columns[0].growing.issuperset(named):
        verdict += (
            f" But such a memory grows with the episode. Of fixed size: {_verdict(fixed, data_sets, holds_nothing)}"
        )
        details += [f"of fixed size, {_detail(column)}" for column in fixed]
    of_all = "only asked of those of fixed size" if job.fixed_size else _pick(columns, holds_nothing)
    told = f"{verdict} {job.caution}".strip()
    return Advice(job, of_all, _pick(fixed, holds_nothing), told, tuple(details))


def _pick(columns: Sequence[Column], holds_nothing: Callable[[str], bool]) -> str:
    """The models that are named for a job, and on how many data sets they are among the best."""
    if not columns:
        return "not known yet"
    named, total = _named(columns), len(columns)
    if not named:
        return "nobody stands out"
    most = _times(named[0], columns)
    if total > 1 and most == 1:
        return "depends on the data"
    empty = [model for model in named if holds_nothing(model)]
    without = "" if not empty else "; without a memory" if empty == named else f"; {_names(empty, 3)} without a memory"
    return f"{_names(named, 3)} ({most} of {total}{without})"


def _of_fixed_size(column: Column) -> Column:
    """Without the models whose memory grows with the episode, or is not known not to."""
    return column.only(column.fixed_size.__contains__)


def _detail(column: Column) -> str:
    """One data set: who leads, and by how much; or who cannot be told apart."""
    question, best, second = column.question, column.best, column.runner_up
    where = column.data + (f" ({where_text(column)})" if where_text(column) else "")
    first = f"`{best[0].model}` {score_text(best[0], question)}"
    unit = f" {unit_text(question)}" if unit_text(question) else ""
    if len(best) > 1:
        others = " and ".join(f"`{score.model}` {score_text(score, question)}" for score in best[1:3])
        more = f" and {len(best) - 3} more" if len(best) > 3 else ""
        behind = "" if second is None else f"; then `{second.model}` {score_text(second, question)}"
        return f"{where}: {first}{unit} cannot be told from {others}{more}{behind}."
    if second is None:
        return f"{where}: {first}{unit} is the only answer."
    return f"{where}: {first}{unit}, ahead of `{second.model}` {score_text(second, question)}."


def _verdict(columns: Sequence[Column], data_sets: int, holds_nothing: Callable[[str], bool]) -> str:
    total, named = len(columns), _named(columns)
    if not named:
        return "Nobody stands out: no model can be told both from the middle of the field and from behind the first."
    most = _times(named[0], columns)
    alone = Counter(column.best[0].model for column in columns if len(column.best) == 1)
    if total > 1 and most == 1:
        verdict = "It depends on the data: no model is among the best on more than one data set."
    else:
        verdict = f"{_names(named)} {'is' if len(named) == 1 else 'are'} {_often(most, total, data_sets)}"
        wins = alone[named[0]]
        verdict += f", alone on {wins}." if len(named) == 1 and 0 < wins < most else "."
        if len(named) == 1 and wins == most and any(column.runner_up for column in columns):
            verdict = verdict.replace("among the best", "ahead of all others")
    empty = {model: _times(model, columns) for model in dict.fromkeys(_among(columns)) if holds_nothing(model)}
    if empty:
        model = max(empty, key=lambda name: empty[name])
        if empty[model] == total:
            verdict += f" `{model}` holds no memory."
            if any(gains.is_floor_of_some(model, column.scores) for column in columns):
                verdict += f" What a memory adds to the same nets is told under '{gains.TITLE}'"
        else:
            where = f"{empty[model]} of {total} data sets"
            verdict += f" On {where} a model without a memory, `{model}`, does as well as any."
    return verdict


def _among(columns: Sequence[Column]) -> list[str]:
    """Those who are among the best, once for each data set."""
    return [score.model for column in columns for score in outstanding(column)]


def outstanding(column: Column) -> list[Score]:
    """Those who cannot be told from the first, but can from the middle of the field; of what was counted also those who
    share the first place with half of the field."""
    if len(column.ranked) < A_FIELD:
        return column.best
    values = {score.model: score.value or 0.0 for score in column.ranked}
    middle, first = statistics.median(values.values()), values[column.ranked[0].model]
    way = 1 if column.question.higher_is_better else -1

    def stands_out(score: Score) -> bool:
        shares = score.reach == 0 and values[score.model] == first and column.runner_up is not None
        return shares or way * (values[score.model] - middle) > score.reach

    return [score for score in column.best if stands_out(score)]


def _times(model: str, columns: Sequence[Column]) -> int:
    """On how many data sets a model is among the best."""
    return _among(columns).count(model)


def _named(columns: Sequence[Column]) -> list[str]:
    """The models that are among the best on the most data sets."""
    among = Counter(_among(columns))
    return [model for model in among if among[model] == max(among.values())]


def _often(times: int, total: int, data_sets: int) -> str:
    if total == 1:
        return "among the best on the one data set measured"
    every = "both" if total == 2 else f"all {total}"
    asked = "" if total == data_sets else " with an answer"
    return f"among the best on {every if times == total else f'{times} of {total}'} data sets{asked}"


def _names(models: Sequence[str], most: int = 4) -> str:
    quoted = [f"`{model}`" for model in models[:most]]
    if len(models) > most:
        return f"{', '.join(quoted)} and {len(models) - most} more"
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"
