"""What was found, kept as soon as it is there: answers of each cell, and a results file for each data set."""

from __future__ import annotations

import itertools
import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mnemon.core.lock import sole_process
from mnemon.core.state import atomic_path
from mnemon.evaluation import results
from mnemon.evaluation.benchmark.protocol import differing, fingerprint, kinds
from mnemon.evaluation.likelihood import student
from mnemon.evaluation.page_section import grouped_by
from mnemon.evaluation.questions import BY_NAME, QUESTIONS, read_note

ANSWERS = "answers.json"
PICTURE = "picture"
"""Kept among the parts: that it was drawn, or that it failed."""
COSTS = "costs"
UNDISTURBED = (COSTS, "training")
"""Parts that are asked while nothing else runs. What they measure does not depend on the values of weights, so that a
model as its training begins will do."""
ROUNDS = 3
"""How often costs are measured, a while apart: a machine has better and worse moments, and one of them tells nothing of
the others."""


@dataclass(frozen=True)
class Cell:
    """One model on one data set with one seed."""

    data: str
    kind: str
    seed: int

    def __str__(self) -> str:
        return f"{self.kind} on {self.data}, seed {self.seed}"

    def folder(self, runs: Path) -> Path:
        return runs / self.data / self.kind / f"seed{self.seed}"


@dataclass
class Answers:
    """The answers of a cell so far, part by part, and what its training came to."""

    path: Path
    fingerprint: str | None
    training: dict[str, Any] | None
    parts: dict[str, list[dict[str, Any]]]
    took: dict[str, float] = field(default_factory=dict)
    """Seconds of the updates and of every part."""
    settings: dict[str, Any] | None = None
    """What they belong to; files of an earlier version have its fingerprint only."""
    rounds: list[list[dict[str, Any]]] = field(default_factory=list)
    """Costs as they were found each time, until they were often enough."""
    images: dict[str, str] | None = None
    """Fingerprints of the images it was trained on and asked about; files of an earlier version do not say."""

    @classmethod
    def open(
        cls, folder: Path, settings: dict[str, Any] | None = None, images: dict[str, str] | None = None
    ) -> Answers:
        """What a cell's folder holds; refused where it belongs to other settings or images than those at hand."""
        path = folder / ANSWERS
        if not path.is_file():
            fresh = None if settings is None else fingerprint(settings)
            return cls(path, fresh, None, {}, settings=settings, images=images)
        try:
            found = cls(path, **json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError) as error:
            told = f"{path}: expected the answers of a cell, got something else ({error}); delete its folder {folder}"
            raise ValueError(told) from error
        if settings is not None and (other := found.other_settings(settings)):
            raise ValueError(
                f"{folder}: answers of other settings than those asked for ({'; '.join(other[:3])}); delete it, or use "
                "other --runs"
            )
        if images is not None and found.images is None and not found.parts and found.training is None:
            found.images = images  # nothing of it was found with others
        if images is not None and found.images not in (None, images):
            raise ValueError(
                f"{folder}: answers of other images than those at hand, or of the same in another order; bring those "
                "back, delete it, or use other --runs"
            )
        return found

    def other_settings(self, settings: Mapping[str, Any]) -> list[str]:
        """In what they differ from those asked for."""
        if self.settings is not None:
            return differing(settings, self.settings)
        return [] if self.fingerprint in (None, fingerprint(settings)) else ["their fingerprint is another"]

    def save(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        values = {name: value for name, value in vars(self).items() if name != "path"}
        with atomic_path(self.path) as temporary:
            Path(temporary).write_text(json.dumps(values) + "\n", encoding="utf-8")

    def keep(self, part: str, records: list[dict[str, Any]]) -> None:
        self.parts[part] = records
        self.save()

    def keep_round(self, records: list[dict[str, Any]]) -> None:
        """Costs as they were found once more; after the last time they are the part's. What was found on another device
        before does not count."""
        notes = [record["note"] for record in records]
        self.rounds = [before for before in self.rounds if [record["note"] for record in before] == notes]
        self.rounds.append(records)
        if len(self.rounds) == ROUNDS:
            self.parts[COSTS] = [_over_rounds(group) for group in zip(*self.rounds, strict=True)]
            self.rounds = []
        self.save()

    @property
    def records(self) -> list[dict[str, Any]]:
        return [record for name, records in self.parts.items() if name != PICTURE for record in records]

    @property
    def seconds(self) -> float:
        return sum(self.took.values())

    @property
    def failed(self) -> list[str]:
        """Parts of which something broke, and the picture where it did."""
        return [name for name, records in self.parts.items() if any(_outcome(r) == "failed" for r in records)]

    def forget_failures(self) -> None:
        """And the picture with them, but where times alone failed: those need no weights, and a picture would have
        deleted ones trained again."""
        failed = self.failed
        for name in failed if set(failed) <= set(UNDISTURBED) else (*failed, PICTURE):
            self.parts.pop(name, None)
        self.save()


def stored_cells(runs: Path, data: str) -> list[Cell]:
    """Those that have answers."""
    found = sorted((runs / data).glob(f"*/seed*/{ANSWERS}"))
    names = [(path.parent.parent.name, path.parent.name.removeprefix("seed")) for path in found]
    return [Cell(data, kind, int(seed)) for kind, seed in names if seed.isdecimal()]


def holds_several_image_sets(runs: Path, data: str) -> bool:
    """Whether the cells of a data set were not all trained on, and asked about, the same images in the same order."""
    found = (Answers.open(cell.folder(runs)).images for cell in stored_cells(runs, data))
    return len({tuple(images.items()) for images in found if images is not None}) > 1


def gather(runs: Path, data: str) -> list[dict[str, Any]]:
    """All records of a data set in a folder of runs, seeds together, in the order of models and questions."""
    found: list[dict[str, Any]] = []
    for cell in stored_cells(runs, data):
        found += Answers.open(cell.folder(runs)).records
    return in_order(summarise(found))


def in_order(records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """As models and questions are; models that are not known at the moment come last."""
    questions, known = [question.name for question in QUESTIONS], kinds()

    def place(record: Mapping[str, Any]) -> tuple[int, str, int]:
        model, question, _ = _asked(record)
        return known.index(model) if model in known else len(known), model, questions.index(question)

    return sorted(records, key=place)


def write_results(path: Path, records: Sequence[dict[str, Any]]) -> set[str]:
    """One record on a line: there are many. Where the file has more numbers of a model's answer to a question, seeds
    counted, than these are, it keeps them, and all that it has of models that these are not of: who makes some numbers
    again, or is stopped halfway, loses no others.
    Returns the models of which these are some and the file keeps some."""
    with sole_process(path.parent, "--out", wait=True):  # the file is read and written
        return _write_results(path, records)


def _write_results(path: Path, records: Sequence[dict[str, Any]]) -> set[str]:
    stored = stored_results(path)
    check_updates(path, stored, {record["updates"] for record in records})
    new, old = (grouped_by(some, _asked) for some in (records, stored))
    again = {model for model, *_ in new}
    kept = {
        asked: found
        for asked, found in old.items()
        if asked[1] in BY_NAME and (asked[0] not in again or _numbers(found) > _numbers(new.get(asked, [])))
    }
    written = in_order(itertools.chain.from_iterable((new | kept).values()))
    lines = ",\n".join(map(json.dumps, written))
    with atomic_path(path) as temporary:
        Path(temporary).write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    return {model for model, *_ in kept} & again


def check_updates(path: Path, stored: Iterable[Mapping[str, Any]], updates: set[int | None]) -> None:
    """Refuse a results file whose models had another number of updates."""
    new, old = updates - {None}, {record.get("updates") for record in stored} - {None}
    if new and old and new != old:
        raise ValueError(
            f"{path}: expected numbers of {_list(old)} updates, as it holds, got {_list(new)}; give these an --out of "
            "their own"
        )


def _list(numbers: Iterable[int | None]) -> str:
    return " and ".join(f"{number:,}" for number in sorted(filter(None, numbers)))


def _asked(record: Mapping[str, Any]) -> tuple[str, str, str]:
    """Who was asked what, and on which device, where that is told: times of one do not stand for those of another."""
    note = read_note(record["note"])
    return str(record["model"]), note.question, note.settings.get("device", "")


def _numbers(records: Iterable[Mapping[str, Any]]) -> int:
    """How many there are, each seed for itself."""
    return sum(record["num_seeds"] or 1 for record in records if record["value"] is not None)


def stored_results(path: Path) -> list[dict[str, Any]]:
    """What a results file holds, none where there is no file; refused where it holds something else."""
    if not path.is_file():
        return []
    try:
        found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: expected results, got what is no JSON ({error}); move it away") from error
    if not (isinstance(found, list) and all(isinstance(record, dict) and "model" in record for record in found)):
        raise ValueError(f"{path}: expected results, a list of records, got something else; move it away")
    return found


def summarise(records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """One record for each number: the mean over seeds with its interval over seeds, or, of one seed, what it is.

    Where some seeds have a number and others failed, those with a number count.
    """
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    measured = set()
    for record in records:
        note = read_note(record["note"])
        settings = tuple(note.settings.items())
        number = (record["model"], note.question, settings, record["episode_length"] if settings else None)
        key = (*number, note.outcome, *(record[name] for name in ("metric", "bound", "scored", "episode_length")))
        groups.setdefault(key, []).append(record)
        if note.outcome == "measured":
            measured |= {number, (*number[:2], (), None)}
    return [_mean(group) for key, group in groups.items() if key[4] != "failed" or key[:4] not in measured]


def _mean(group: list[dict[str, Any]]) -> dict[str, Any]:
    first, number = group[0], len(group)
    if number == 1 or first["value"] is None:
        return dict(first)
    seeds = "".join(f" --seed {record['seed']}" for record in group)
    command = str(first["command"]).replace(f" --seed {first['seed']}", seeds)
    commits = [str(record["commit"]) for record in group if record["commit"]]
    return results.result(**{
        **first, **_averaged(group), "num_seeds": number, "seed": None, "command": command,
        "commit": ", ".join(dict.fromkeys(commits)) or None,
    })  # fmt: skip


def _over_rounds(group: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of one number; what was the same in each round, as bytes are, is left as it is."""
    values = {record["value"] for record in group}
    return group[0] if len(values) == 1 else {**group[0], **_averaged(group)}


def _averaged(group: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Mean and Student's interval of values."""
    values = [float(record["value"]) for record in group]
    error = statistics.stdev(values) / math.sqrt(len(group))
    return {"value": statistics.fmean(values), "interval": float(f"{student(len(group)) * error:.4g}")}


def _outcome(record: Mapping[str, Any]) -> str:
    return read_note(record["note"]).outcome
