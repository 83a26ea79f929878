"""Processes that work on cells beside one another, on one device.

A process lives on from cell to cell, and keeps what takes long to come by: imports, the device's context, images. The
cells are dealt out by one process, which the others send no more than a word to: what they find is in files. So a
process that dies takes nothing with it but its own cell, and another one takes its place.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Literal, NamedTuple

import torch

from mnemon.core.allocation import keep_freed_memory
from mnemon.evaluation.benchmark.cell import Work, free_memory, left_for_quiet, run_cell
from mnemon.evaluation.benchmark.material import Place
from mnemon.evaluation.benchmark.protocol import Protocol
from mnemon.evaluation.benchmark.store import Answers, Cell
from mnemon.training.progress import OutOfTime, is_over

NAME = "mnemon-bench"
PATIENCE = 10.0
"""Seconds that a process has to end in."""
SHARE = 0.25
"""Of the processes that work on the same model at a time, where there is other work."""
SPAWN = multiprocessing.get_context("spawn")  # a forked process cannot use a GPU that its parent has used

Word = Literal["asked", "out of time"]


class Job(NamedTuple):
    """A cell, when to stop, and whether to ask also, for one round, what is asked in quiet only."""

    cell: Cell
    until: float | None
    quiet: bool = False


class Worker:
    """A process, and the cell that it works on."""

    def __init__(self, number: int, protocol: Protocol, place: Place) -> None:
        self.channel, theirs = SPAWN.Pipe()
        name, settings = f"{NAME}-{number}", (theirs, protocol, place)
        self.process = SPAWN.Process(target=_work, args=settings, name=name, daemon=True)
        self.process.start()
        theirs.close()  # so that the channel ends when the process does

    def give(self, job: Job) -> None:
        self.job = job
        with contextlib.suppress(BrokenPipeError):  # it died while it had nothing to do, which `word` will tell
            self.channel.send(job)

    def word(self) -> Word | Exception | None:
        """What it says of its cell; None: it died."""
        try:
            told: Word | Exception = self.channel.recv()
        except (EOFError, ConnectionResetError):
            return None
        return told

    def dismiss(self) -> None:
        """Ask it to end, by a signal on which no file is left half written."""
        if self.process.is_alive():
            self.process.terminate()

    def wait_for_end(self) -> None:
        self.process.join(PATIENCE)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.channel.close()


def work_off(jobs: Iterable[Job], protocol: Protocol, place: Place, number: int) -> Iterator[tuple[Cell, bool]]:
    """Cells as they come to an end, in the order in which they do; False: the time was over before.

    One that breaks, or whose process dies, has answers that say so. After that its process is replaced: a device that
    failed once, or memory that ran out, may not be the same again.
    """
    queue, busy, ending = list(jobs), dict[Connection, Worker](), list[Worker]()
    numbers = itertools.count(1)
    try:
        while queue or busy:
            if queue and is_over(queue[0].until):  # no process has to be asked
                yield queue.pop(0).cell, False
                continue
            while queue and len(busy) < number:
                _give(_next(queue, busy, number), Worker(next(numbers), protocol, place), busy)
            for channel in wait(list(busy)):
                assert isinstance(channel, Connection)
                worker = busy.pop(channel)
                cell, word = worker.job.cell, worker.word()
                if isinstance(word, Exception):  # not of the cell: settings or data that are not there
                    busy[channel] = worker
                    raise word
                if word is None:
                    _tell_death(cell, protocol, place, worker.process)
                healthy = word is not None and not Answers.open(cell.folder(place.runs)).failed
                if queue and healthy:  # at once: the device waits
                    _give(_next(queue, busy, number), worker, busy)
                else:
                    worker.dismiss()
                    ending.append(worker)
                yield cell, word != "out of time"
    finally:
        for worker in busy.values():
            worker.dismiss()
        for worker in (*busy.values(), *ending):
            worker.wait_for_end()


def _next(queue: list[Job], busy: dict[Connection, Worker], number: int) -> Job:
    """The first in the queue, but of one model only a share at a time: the longest ones also take the most memory."""
    kinds = [worker.job.cell.kind for worker in busy.values()]
    most = max(1, round(SHARE * number))
    at = next((at for at, job in enumerate(queue) if kinds.count(job.cell.kind) < most), 0)
    return queue.pop(at)


def _give(job: Job, worker: Worker, busy: dict[Connection, Worker]) -> None:
    worker.give(job)
    busy[worker.channel] = worker


def _tell_death(cell: Cell, protocol: Protocol, place: Place, process: multiprocessing.process.BaseProcess) -> None:
    process.join(PATIENCE)
    how = f"its process ended with code {process.exitcode}, as one does that runs out of memory or is killed"
    Work.open(cell, protocol, place).give_up("failed", how)


def _work(channel: Connection, protocol: Protocol, place: Place) -> None:
    """Work on what comes, one after another, until the channel ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the first one ends the others
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # half-written files are taken away
    threading.Thread(target=_end_with_parent, daemon=True).start()
    keep_freed_memory()
    every = torch.get_num_threads()
    while True:
        try:
            job: Job = channel.recv()
        except EOFError:
            return
        torch.set_num_threads(every if job.quiet else max(1, every // place.workers))
        told: Word | Exception = "asked"
        try:
            if job.quiet:
                run_cell(job.cell, protocol, place, job.until, rounds=1)
            else:
                run_cell(job.cell, protocol, place, job.until, leave=left_for_quiet(job.cell, protocol))
        except OutOfTime:
            told = "out of time"
        except torch.AcceleratorError:  # which its cell tells; another process goes on
            return
        except Exception as error:  # as what can be sent: not every exception can
            told = ValueError(str(error)) if isinstance(error, ValueError) else RuntimeError(repr(error))
        free_memory(place.device)
        channel.send(told)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
