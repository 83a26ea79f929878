"""The grid: which cells there are, how far they are, what they cost, and working them off."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from mnemon.evaluation.benchmark.cell import STEPS, Place, judge_path, load_images, run_cell
from mnemon.evaluation.benchmark.protocol import KINDS, UNTRAINED, Protocol
from mnemon.evaluation.benchmark.samples import Judge
from mnemon.evaluation.benchmark.store import Answers, Cell, gather, write_results
from mnemon.evaluation.benchmark.subject import Tests
from mnemon.training.config import nearest
from mnemon.training.data import preprocessing_of
from mnemon.training.progress import OutOfTime

Say = Callable[[str], None]
UNDISTURBED = ("costs",)
"""Steps that are taken while nothing else runs."""


@dataclass(frozen=True)
class Status:
    """How far a cell is. seconds: spent on it so far; left: what is still to come on a data-centre GPU, estimated."""

    cell: Cell
    state: Literal["done", "failed", "begun", "waiting"]
    failed: tuple[str, ...]
    seconds: float
    left: float


def plan(
    protocol: Protocol,
    data: Sequence[str] = (),
    kinds: Sequence[str] = (),
    seeds: Sequence[int] = (),
) -> list[Cell]:
    """The cells that are asked for, all when nothing is named: first seeds first, so that a part of the grid shows
    all models."""
    for name in data:
        if name not in protocol.sets:
            raise ValueError(f"--data: {name!r} is not in the benchmark{nearest(name, protocol.sets)}")
    for kind in kinds:
        if kind not in KINDS:
            raise ValueError(f"--model: unknown model {kind!r}{nearest(kind, KINDS)}")
    chosen = [name for name in protocol.sets if not data or name in data]
    cells = [
        Cell(name, kind, seed)
        for name in chosen
        for kind in KINDS
        for seed in _seeds(protocol, name, kind, seeds)
        if not kinds or kind in kinds
    ]
    return sorted(cells, key=lambda cell: (cell.seed, chosen.index(cell.data)))


def _seeds(protocol: Protocol, data: str, kind: str, chosen: Sequence[int]) -> Sequence[int]:
    """What is not trained is the same with every seed, and is asked once."""
    seeds = protocol.seeds(data)
    return [seed for seed in seeds[:1] if not chosen or seed in chosen] if kind in UNTRAINED else chosen or seeds


def status(cell: Cell, protocol: Protocol, runs: Path) -> Status:
    answers = Answers.open(cell.folder(runs))
    estimate = protocol.estimated_seconds(cell.kind)
    if set(STEPS) <= set(answers.parts):
        return Status(cell, "failed" if answers.failed else "done", tuple(answers.failed), answers.seconds, 0.0)
    begun = answers.path.is_file() or (cell.folder(runs) / "run").is_dir()
    trained = answers.training is not None
    left = float(protocol.tables["cell_seconds"]) if trained else estimate
    return Status(cell, "begun" if begun else "waiting", tuple(answers.failed), answers.seconds, left)


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
    every cell."""
    waiting = []
    for cell in cells:
        if retry:
            answers = Answers.open(cell.folder(place.runs))
            if answers.failed:
                answers.forget_failures()
        if status(cell, protocol, place.runs).state in ("begun", "waiting"):
            waiting.append(cell)
        else:
            write_missing(cell.data, protocol, place)
    if place.workers == 1:
        return _one_by_one(waiting, protocol, place, until, say)
    return _side_by_side(waiting, protocol, place, until, say)


def _one_by_one(cells: Sequence[Cell], protocol: Protocol, place: Place, until: float | None, say: Say) -> bool:
    for number, cell in enumerate(cells, 1):
        try:
            answers = run_cell(cell, protocol, place, until)
        except OutOfTime:
            say(f"{cell}: the time is over; {len(cells) - number + 1} cells left")
            write_data(cell.data, protocol, place)
            return False
        say(f"{number}/{len(cells)} {cell}: {_told(answers)}")
        write_data(cell.data, protocol, place)
    return True


def _side_by_side(cells: Sequence[Cell], protocol: Protocol, place: Place, until: float | None, say: Say) -> bool:
    """Several processes on one device; what is timed comes after them, when the device is quiet."""
    for data in dict.fromkeys(cell.data for cell in cells):  # once, not in every process
        make_judge(data, protocol, place)
    all_done = True
    with ProcessPoolExecutor(place.workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        jobs = {pool.submit(_in_process, cell, protocol, place, until): cell for cell in cells}
        for number, job in enumerate(as_completed(jobs), 1):
            cell = jobs[job]
            answers = job.result()
            all_done = all_done and answers is not None
            say(f"{number}/{len(cells)} {cell}: {'the time is over' if answers is None else _told(answers)}")
            write_data(cell.data, protocol, place)
    if not all_done:
        return False
    return _one_by_one(cells, protocol, place, until, lambda text: None)


def _in_process(cell: Cell, protocol: Protocol, place: Place, until: float | None) -> Answers | None:
    torch.set_num_threads(max(1, multiprocessing.cpu_count() // place.workers))
    try:
        return run_cell(cell, protocol, place, until, leave=UNDISTURBED)
    except OutOfTime:
        return None


def make_judge(data: str, protocol: Protocol, place: Place) -> None:
    config = protocol.data_config(data)
    tests = Tests.of(
        load_images(data, protocol, place)[1], preprocessing_of(config), place.device, protocol.sizes.test_images
    )
    Judge.cached(judge_path(data, place), tests.every, num_steps=protocol.sizes.judge_steps)


def results_path(data: str, protocol: Protocol, place: Place) -> Path:
    return place.out / f"memory_{data}{'_quick' if protocol.name == 'memory-quick' else ''}.json"


def write_data(data: str, protocol: Protocol, place: Place) -> None:
    write_results(results_path(data, protocol, place), gather(place.runs, data))


def write_missing(data: str, protocol: Protocol, place: Place) -> None:
    if not results_path(data, protocol, place).is_file():
        write_data(data, protocol, place)


def _told(answers: Answers) -> str:
    numbers = sum(record["value"] is not None for record in answers.records)
    failed = f", failed: {', '.join(answers.failed)}" if answers.failed else ""
    return f"{numbers} numbers in {answers.seconds:.0f} s{failed}"
