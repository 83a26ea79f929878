"""What every memory is asked by `mnemon bench memory`: the questions, how their numbers read, and where they apply.

A record of the benchmark names its question and its settings at the head of `note`, as "recall: corruption=half,
level=1, reads=3"; `read_note` takes it apart again. A question that a model cannot be asked has a record whose
value is null and whose note says why ("joint: does not apply: ..."), one that broke has "joint: failed: ...".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, cast

EXPERIMENT = "memory-benchmark"
"""The `experiment` of every record."""

Need = Literal["likelihood", "posterior", "labels", "class_episodes", "resizing", "training", "sampling", "gpu"]
WHY_NOT: dict[Need, str] = {
    "likelihood": "{model} has no likelihood: it recalls images, and gives no density of them",
    "posterior": "the memory of {model} is computed from the episode and has no posterior of its own, so that only a "
    "bound given the memory is defined",
    "labels": "{data} has no labels, or fewer than four classes",
    "class_episodes": "training on {data} has episodes of any images, and the bounds of those say it all",
    "resizing": "the memory of {model} has one size, that of its trained weights or of the images",
    "training": "{model} is not trained",
    "sampling": "{model} has nothing to generate from",
    "gpu": "measured on a GPU only",
}
"""What a question needs, and what is said where it is missing."""


@dataclass(frozen=True)
class Question:
    """One question. `asks` is a plain sentence; `settings` are the names in a note that its numbers are told apart by,
    beside `episode_length` and `memory_floats` of the record; `headline` picks one number for a table of all models,
    `at` says in words which one where each model has its own. Not `ranked`: more or less of it is neither better nor
    worse by itself."""

    name: str
    title: str
    group: str
    metric: str
    unit: str
    higher_is_better: bool
    asks: str
    scored: str | None = None
    bound: str | None = None
    settings: tuple[str, ...] = ()
    headline: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[Need, ...] = ()
    at: str = ""
    ranked: bool = True


BOUND: dict[str, Any] = {"metric": "bound", "unit": "nats/frame", "higher_is_better": True}
ERROR: dict[str, Any] = {"metric": "mse_recalled", "unit": "per pixel", "higher_is_better": False, "scored": "written"}
HALF = "with about half of its memory"
COST: dict[str, Any] = {"group": "cost", "higher_is_better": False}
ON_DEVICE: tuple[str, ...] = ("device",)
"""Settings of what depends on the machine: numbers of two machines do not stand in one column."""

QUESTIONS: tuple[Question, ...] = (
    Question(
        "joint", "Joint bound", "likelihood", **BOUND, scored="written", bound="joint",
        asks="How likely is a frame of an episode of any images, the memory that is written for it paid for? A nat "
        "more is 2.7 times as likely; grey levels have densities, which may be above 1.",
        needs=("likelihood", "posterior"),
    ),
    Question(
        "conditional", "Bound of written frames", "likelihood", **BOUND, scored="written", bound="conditional",
        asks="How well are the written frames explained once the memory is there (which is not paid for)?",
        needs=("likelihood",),
    ),
    Question(
        "joint_classes", "Joint bound, of a few classes", "likelihood", **BOUND, scored="written", bound="joint",
        asks="How likely is a frame, the memory paid for, where an episode has several frames of each of a few "
        "classes, as those of the training?",
        needs=("class_episodes", "likelihood", "posterior"),
    ),
    Question(
        "conditional_classes", "Bound of written frames, of a few classes", "likelihood", **BOUND, scored="written",
        bound="conditional", needs=("class_episodes", "likelihood"),
        asks="How well are the written frames of such an episode explained once the memory is there?",
    ),
    Question(
        "same_class", "Bound of new frames of written classes", "likelihood", **BOUND, scored="same_class",
        bound="conditional", needs=("likelihood", "labels"),
        asks="How well does the memory explain frames that were not written, of the classes that were?",
    ),
    Question(
        "unseen", "Bound of unwritten frames of any class", "likelihood", **BOUND, scored="unseen", bound="conditional",
        asks="How well does the memory explain frames it has seen nothing like: of classes that were not written, or, "
        "of data without labels, any frames that were not?",
        needs=("likelihood",),
    ),
    Question(
        "recall", "Recall of damaged frames", "recall", **ERROR, settings=("corruption", "level", "reads"),
        headline={"corruption": "salt_and_pepper", "level": "0.1", "reads": "3"},
        asks="A written frame is damaged and read through the memory one to ten times: what error is left?",
    ),
    Question(
        "capacity_recall", "Recall against the length of the episode", "capacity", **ERROR,
        settings=("corruption", "level", "reads"), headline={"episode_length": "256"},
        asks="With a memory of the same size (one that grows is marked +), how does the error of recall grow with the "
        "number of written frames?",
    ),
    Question(
        "capacity_bound", "Bound against the length of the episode", "capacity", **BOUND, scored="written",
        bound="conditional", headline={"episode_length": "256"}, needs=("likelihood",),
        asks="With a memory of the same size (one that grows is marked +), how does the bound of written frames fall "
        "with their number?",
    ),
    Question(
        "resized_recall", "Recall against the size of the memory", "capacity", **ERROR,
        settings=("size", "corruption", "level", "reads"), needs=("resizing",), at=HALF,
        asks="The same weights and episodes with a smaller or larger memory: what error of recall, of frames that a "
        "smaller memory did not keep, too?",
    ),
    Question(
        "resized_bound", "Bound against the size of the memory", "capacity", **BOUND, scored="written",
        bound="conditional", settings=("size",), needs=("resizing", "likelihood"), at=HALF,
        asks="The same weights and episodes with a smaller or larger memory: what bound, of frames that a smaller "
        "memory did not keep, too?",
    ),
    Question(
        "distractors", "Cost of other classes in memory", "classes", "short_of_optimal", "nats/frame", False,
        scored="same_class", settings=("classes", "examples"), headline={"classes": "8"},
        asks="When other classes are added to the memory, how many nats does a new frame lose beyond the log of their "
        "number? Less than 0: it lost less than that, or even gained, as where the four frames of its own class made a "
        "poor memory. Not ranked: who has no use for a memory has nothing to lose.",
        needs=("likelihood", "labels"), ranked=False,
    ),
    Question(
        "novelty_written", "Telling written frames from new classes", "classes", "auroc", "auroc", True,
        scored="written", settings=("score",), needs=("labels",),
        asks="Does a frame's score tell the written frames from frames of classes that were not written? Chance: 0.5.",
    ),
    Question(
        "novelty_same_class", "Telling written classes from new ones", "classes", "auroc", "auroc", True,
        scored="same_class", settings=("score",), needs=("labels",),
        asks="Does a frame's score tell new frames of the written classes from frames of other classes? Chance: 0.5.",
    ),
    Question(
        "fewshot", "Few-shot classification", "classes", "accuracy", "share", True, scored="same_class",
        settings=("ways", "shots", "by"), headline={"ways": "5", "shots": "1"}, needs=("labels",),
        asks="Which share of new frames is given to its own class, from one or five examples of each, without further "
        "training? Chance: 0.2 with five classes, 0.05 with 20.",
    ),
    Question(
        "sample_fidelity", "Samples that show a written class", "samples", "judged_fidelity", "share", True,
        scored="written", settings=("judge",), needs=("sampling", "labels"),
        asks="Which share of what is generated does an independent classifier take for one of the written classes? "
        "Chance: their share of all classes of the test images.",
    ),
    Question(
        "sample_diversity", "Written classes among the samples", "samples", "judged_diversity", "share", True,
        scored="written", settings=("judge",), needs=("sampling", "labels"),
        asks="Which share of the written classes does the classifier find among as many samples as frames?",
    ),
    Question(
        "sample_nearest", "Distance of samples to the episode", "samples", "nearest_written", "per pixel", False,
        scored="written", needs=("sampling",), ranked=False,
        asks="How far is a sample from the nearest written frame? Far: not like the episode; 0: a copy. Not ranked: "
        "neither is what a memory is for.",
    ),
    Question(
        "sample_coverage", "Frames that samples are near to", "samples", "coverage", "share", True, scored="written",
        needs=("sampling",),
        asks="Which share of the written frames is the nearest one of some sample, of as many samples as frames?",
    ),
    Question(
        "write_latency", "Time to write an episode", metric="write_latency", unit="ms", **COST, settings=ON_DEVICE,
        asks="How long does it take to write one episode?",
    ),
    Question(
        "read_latency", "Time to read a frame", metric="read_latency", unit="ms", **COST, settings=ON_DEVICE,
        asks="How long does it take to read one frame once?",
    ),
    Question(
        "write_rate", "Frames written in a second", "cost", "write_rate", "frames/s", True, settings=ON_DEVICE,
        asks="How many frames are written in a second, many episodes at a time?",
    ),
    Question(
        "read_rate", "Frames read in a second", "cost", "read_rate", "frames/s", True, settings=ON_DEVICE,
        asks="How many frames are read in a second, many episodes at a time?",
    ),
    Question(
        "peak_memory", "Working memory", metric="peak_memory", unit="MB", **COST, settings=ON_DEVICE, needs=("gpu",),
        asks="How much memory of the device do writing and reading that many episodes take at the most?",
    ),
    Question(
        "state_bytes", "Size of a written memory", metric="state_bytes", unit="bytes", **COST,
        asks="How many bytes is the memory of one episode?",
    ),
    Question(
        "train_step", "Time of a training step", metric="train_step", unit="ms", **COST, settings=ON_DEVICE,
        needs=("training",),
        asks="How long does one update of the weights take?",
    ),
)  # fmt: skip
BY_NAME = {question.name: question for question in QUESTIONS}
GROUPS = tuple(dict.fromkeys(question.group for question in QUESTIONS))


Outcome = Literal["measured", "does not apply", "failed"]


class Note(NamedTuple):
    """What a record's note says: the question, its settings as words, and what stands in place of a value."""

    question: str
    settings: dict[str, str]
    outcome: Outcome = "measured"
    reason: str | None = None


def write_note(question: str, **settings: Any) -> str:
    told = ", ".join(f"{key}={f'{value:g}' if isinstance(value, float) else value}" for key, value in settings.items())
    return f"{question}: {told}" if told else question


def empty_note(question: str, outcome: Literal["does not apply", "failed"], reason: str, **settings: Any) -> str:
    """Of one number where there are settings, else of the whole question."""
    return f"{write_note(question, **settings)}: {outcome}: {reason}"


def read_note(note: str) -> Note:
    """The other way round. "recall: corruption=half, level=1, reads=3" """
    name, _, rest = note.partition(": ")
    without = re.match(r"(?:(\w+=.*?): )?(does not apply|failed): (.*)", rest, re.DOTALL)
    told, outcome, reason = without.groups() if without else (rest, "measured", None)
    settings = dict(re.findall(r"(\w+)=([^,]*)", told or ""))
    return Note(name, settings, cast(Outcome, outcome), reason)


def question_of(record: Mapping[str, Any]) -> str:
    """The same, where the question alone is wanted."""
    return str(record["note"]).partition(": ")[0]


def benchmark_records(records: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The records of the benchmark among others, those of all seeds together where there are several seeds. Those of
    the quick form only where there are no others: the two are not to be compared. Questions of other versions are left
    out.

    A file holds one record of all seeds (num_seeds above 1, seed null, the interval over seeds) for every number, or,
    where one seed was run, that of the seed (num_seeds 1, the interval over episodes).
    """
    every = [record for record in records if record.get("experiment") == EXPERIMENT and question_of(record) in BY_NAME]
    return [record for record in every if not is_quick(record)] or every


def is_quick(record: Mapping[str, Any]) -> bool:
    """Whether a number comes from `mnemon bench memory --quick`."""
    return "--quick" in str(record["command"]).split()


QUICK = (
    "These are numbers of the quick form, `mnemon bench memory --quick`: small nets and a few dozen updates. They show "
    "that everything runs. Which model is ahead here says nothing about trained ones."
)
"""What is said wherever such numbers are shown."""


def why_not(question: Question, has: Callable[[Need], bool], *, model: str, data: str) -> str | None:
    """Why a model cannot be asked on these data; None where it can."""
    lacking = next((need for need in question.needs if not has(need)), None)
    return None if lacking is None else WHY_NOT[lacking].format(model=model, data=data)
