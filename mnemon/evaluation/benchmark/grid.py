"""The grid: which cells there are, how far they are, what they cost, and working them off."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from mnemon.core.lock import sole_process
from mnemon.evaluation.benchmark.cell import (
    RUN,
    STEPS,
    Work,
    begun_otherwise,
    free_memory,
    is_trained,
    left_for_quiet,
    prune,
    run_cell,
)
from mnemon.evaluation.benchmark.material import Place, judge_of
from mnemon.evaluation.benchmark.protocol import UNTRAINED, Protocol
from mnemon.evaluation.benchmark.protocol import kinds as all_kinds
from mnemon.evaluation.benchmark.store import (
    ROUNDS,
    UNDISTURBED,
    Answers,
    Cell,
    check_updates,
    gather,
    holds_several_image_sets,
    stored_cells,
    stored_results,
    write_results,
)
from mnemon.evaluation.benchmark.workers import Job, work_off
from mnemon.training.config import nearest
from mnemon.training.progress import OutOfTime

Say = Callable[[str], None]
QUIET = 0.1
"""The last part of the time is for what is measured while nothing else runs."""


@dataclass(frozen=True)
class Status:
    """How far a cell is. took: seconds of its updates and parts so far; left: what is still to come on a data-centre
    GPU, estimated, updates and all else apart."""

    cell: Cell
    state: Literal["done", "failed", "begun", "waiting", "of other settings"]
    failed: tuple[str, ...]
    took: dict[str, float]
    left_updates: float
    left_else: float

    @property
    def left(self) -> float:
        return self.left_updates + self.left_else


def plan(
    protocol: Protocol,
    data: Sequence[str] = (),
    kinds: Sequence[str] = (),
    seeds: Sequence[int] = (),
) -> list[Cell]:
    """The cells that are asked for, all when nothing is named, first seeds first."""
    for name in data:
        if name not in protocol.sets:
            raise ValueError(f"--data: {name!r} is not in {protocol.name}{nearest(name, protocol.sets)}")
    known = all_kinds()
    for kind in kinds:
        if kind not in known:
            raise ValueError(f"--model: unknown model {kind!r}{nearest(kind, known)}")
    chosen = [name for name in protocol.sets if not data or name in data]
    cells = [
        Cell(name, kind, seed)
        for name in chosen
        for kind in known
        for seed in _seeds(protocol, name, kind, seeds)
        if not kinds or kind in kinds
    ]
    if not cells:
        first = ", ".join(f"{name}: {protocol.seeds(name)[0]}" for name in chosen)
        raise ValueError(
            f"--seed: memories that are not trained are the same with every seed, and asked with the first ({first}); "
            f"got {', '.join(map(str, seeds))}"
        )
    return sorted(cells, key=lambda cell: (cell.seed, chosen.index(cell.data)))


def _seeds(protocol: Protocol, data: str, kind: str, chosen: Sequence[int]) -> Sequence[int]:
    """What is not trained is the same with every seed, and is asked once."""
    seeds = protocol.seeds(data)
    return (
        [seed for seed in seeds[:1] if not chosen or seed in chosen]
        if kind in UNTRAINED
        else list(dict.fromkeys(chosen)) or seeds
    )


def status(cell: Cell, protocol: Protocol, runs: Path) -> Status:
    answers = Answers.open(cell.folder(runs))
    missing = [step for step in STEPS if step not in answers.parts]
    if not missing:
        return Status(cell, "failed" if answers.failed else "done", tuple(answers.failed), answers.took, 0.0, 0.0)
    begun = answers.path.is_file() or (cell.folder(runs) / RUN).is_dir()
    updates, others = protocol.estimated_seconds(cell.kind)
    if answers.training is not None:
        others *= len(missing) / len(STEPS)
    if is_trained(cell, answers, runs) or set(missing) <= {*UNDISTURBED}:  # times need no weights
        updates = 0.0
    return Status(cell, "begun" if begun else "waiting", tuple(answers.failed), answers.took, updates, others)


def checked_status(cell: Cell, protocol: Protocol, runs: Path) -> Status:
    """The same, but what is there of other settings is called so."""
    found = status(cell, protocol, runs)
    other = found.state != "waiting" and is_of_other_settings(cell, protocol, runs)
    return replace(found, state="of other settings", left_updates=0.0, left_else=0.0) if other else found


def run_grid(
    cells: Iterable[Cell],
    protocol: Protocol,
    place: Place,
    *,
    until: float | None = None,
    retry: bool = False,
    say: Say = lambda text: None,
) -> bool:
    """Work off the cells; True when all are done, False when the time was over before. Results files are written after
    every cell, and in the end once more: with times, and where an earlier run was killed before it did. Another process
    that works on the same runs is refused: each would overwrite what the other found."""
    cells = list(cells)
    with sole_process(place.runs, "--runs"):
        waiting = _waiting(cells, protocol, place, retry)
        if place.prune:
            for cell in cells:
                prune(cell, Answers.open(cell.folder(place.runs)), place.runs)
        if place.workers == 1:
            done = _one_by_one([found.cell for found in waiting], protocol, place, until, say)
        else:
            done = _side_by_side([found.cell for found in queued(waiting)], protocol, place, until, say)
        for data in dict.fromkeys(cell.data for cell in cells if stored_cells(place.runs, cell.data)):
            path = results_path(data, protocol, place)
            if stays := write_data(data, protocol, place):
                say(f"{path} has more numbers of {', '.join(sorted(stays))} than {place.runs}, and keeps them")
            if holds_several_image_sets(place.runs, data):
                say(f"{path} is of several sets of images: not all cells had the same ones, or the same order of them")
    return done


def queued(waiting: Iterable[Status]) -> list[Status]:
    """What is begun first, so that little is begun at a time; then seed by seed, so that a grid that is stopped has
    every model once before it has some of them again; then the longest, so that none is left over at the end."""
    return sorted(waiting, key=lambda found: (found.state != "begun", found.cell.seed, -found.left))


def _waiting(cells: Sequence[Cell], protocol: Protocol, place: Place, retry: bool) -> list[Status]:
    """Those that are not done yet, or that failed and are to be taken up again."""
    waiting = []
    for data in dict.fromkeys(cell.data for cell in cells):
        check_answers(data, protocol, place)
        path = results_path(data, protocol, place)
        check_updates(path, stored_results(path), {protocol.updates})  # before anything is trained
    for cell in cells:
        if retry:
            answers = Answers.open(cell.folder(place.runs))
            if answers.failed:
                answers.forget_failures()
        found = status(cell, protocol, place.runs)
        if found.state == "begun" and is_of_other_settings(cell, protocol, place.runs):
            Work.open(cell, protocol, place)  # refused before others are worked on
        if found.state in ("begun", "waiting"):
            waiting.append(found)
    return waiting


def check_answers(data: str, protocol: Protocol, place: Place) -> None:
    """Refuse answers of other settings, also those of cells that are done, or not asked for now: the results file of
    the data set holds all that are in the folder."""
    known = all_kinds()
    for cell in stored_cells(place.runs, data):
        if cell.kind not in known:
            raise ValueError(
                f"{cell.folder(place.runs)}: answers of a model that is not known; delete it, or use other --runs"
            )
        if is_of_other_settings(cell, protocol, place.runs):
            Work.open(cell, protocol, place)  # which knows better where the images are not of the catalogue's size


def is_of_other_settings(cell: Cell, protocol: Protocol, runs: Path) -> bool:
    """Whether a cell's answers are, or its training, if images are of the size that the catalogue says. No image is
    read."""
    config = protocol.config_by_catalogue(cell.data, cell.kind, seed=cell.seed)
    answers = Answers.open(cell.folder(runs))
    return bool(answers.other_settings(protocol.settings(config)) or begun_otherwise(answers, config))


def _one_by_one(cells: Sequence[Cell], protocol: Protocol, place: Place, until: float | None, say: Say) -> bool:
    """In this process; what is timed comes after the others, as it does beside them."""
    others = [cell for cell in cells if not _wants_quiet(cell, place)]
    for number, cell in enumerate(others, 1):
        try:
            run_cell(cell, protocol, place, until, leave=left_for_quiet(cell, protocol))
        except OutOfTime:
            say(f"{cell}: the time is over; {len(others) - number + 1} cells left")
            write_data(cell.data, protocol, place)
            return False
        say(f"{number}/{len(others)} {cell}: {_told(cell, place)}")
        write_data(cell.data, protocol, place)
    alone = _to_time(cells, place, say)
    for cell in ROUNDS * alone:
        try:
            run_cell(cell, protocol, place, until, rounds=1)
        except OutOfTime:
            say(f"{cell}: the time is over before all times are taken")
            return False
    _tell_failures(alone, place, say)
    return True


def _side_by_side(cells: Sequence[Cell], protocol: Protocol, place: Place, until: float | None, say: Say) -> bool:
    """Several processes on one device; what is timed comes after them, in one process, when the device is quiet."""
    for data in dict.fromkeys(cell.data for cell in cells if not _wants_quiet(cell, place)):
        judge_of(data, protocol, place)  # once, not in every process
    free_memory(place.device)
    stop = None if until is None else until - QUIET * max(0.0, until - time.monotonic())
    in_time = True
    beside = [Job(cell, stop) for cell in cells if not _wants_quiet(cell, place)]
    for number, (cell, done) in enumerate(work_off(beside, protocol, place, place.workers), 1):
        in_time = in_time and done
        say(f"{number}/{len(beside)} {cell}: {_told(cell, place) if done else 'the time is over'}")
        write_data(cell.data, protocol, place)
    alone = _to_time(cells, place, say)
    for _, done in work_off([Job(cell, until, quiet=True) for cell in ROUNDS * alone], protocol, place, 1):
        in_time = in_time and done  # and nothing is written meanwhile: the next cell is already timed
    _tell_failures(alone, place, say)
    return in_time


def _to_time(cells: Iterable[Cell], place: Place, say: Say) -> list[Cell]:
    """The cells of which nothing but times is left to ask."""
    alone = [cell for cell in cells if _wants_quiet(cell, place)]
    if alone:
        say(f"times of {len(alone)} cell{'s' * (len(alone) > 1)}, one by one")
    return alone


def _tell_failures(cells: Iterable[Cell], place: Place, say: Say) -> None:
    for cell in cells:
        if Answers.open(cell.folder(place.runs)).failed:
            say(f"{cell}: {_told(cell, place)}")


def _wants_quiet(cell: Cell, place: Place) -> bool:
    """Whether all is asked but what is asked while nothing else runs."""
    missing = {step for step in STEPS if step not in Answers.open(cell.folder(place.runs)).parts}
    return bool(missing) and missing <= {*UNDISTURBED}


def results_path(data: str, protocol: Protocol, place: Place) -> Path:
    return place.out / f"memory_{data}{'_quick' if protocol.name == 'memory-quick' else ''}.json"


def write_data(data: str, protocol: Protocol, place: Place) -> set[str]:
    """Returns the models whose results stay as they are, because the file has more numbers of them than the runs."""
    return write_results(results_path(data, protocol, place), gather(place.runs, data))


def _told(cell: Cell, place: Place) -> str:
    answers = Answers.open(cell.folder(place.runs))
    numbers = sum(record["value"] is not None for record in answers.records)
    failed = f", failed: {', '.join(answers.failed)}" if answers.failed else ""
    return f"{numbers} numbers in {answers.seconds:.0f} s{failed}"
