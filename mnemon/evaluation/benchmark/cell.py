"""One cell: train a model, or go on training it, then ask it part by part. Whatever is done is kept."""

from __future__ import annotations

import contextlib
import functools
import gc
import shutil
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from mnemon.evaluation import results
from mnemon.evaluation.benchmark.material import Place, fingerprints, judge_of, named_images, test_images, training_data
from mnemon.evaluation.benchmark.parts import PARTS, ask, unasked
from mnemon.evaluation.benchmark.pictures import draw_cell
from mnemon.evaluation.benchmark.protocol import BITS_ONLY, UNTRAINED, Protocol
from mnemon.evaluation.benchmark.store import COSTS, PICTURE, ROUNDS, UNDISTURBED, Answers, Cell
from mnemon.evaluation.benchmark.subject import Subject, untrained_model
from mnemon.evaluation.likelihood import Estimate
from mnemon.evaluation.questions import EXPERIMENT, empty_note
from mnemon.pretrained import load_run
from mnemon.training import checkpoint
from mnemon.training.config import Config
from mnemon.training.data import TrainingData, grown
from mnemon.training.loop import train
from mnemon.training.progress import OutOfTime, check_time
from mnemon.training.setup import fresh_model

RUN = "run"
"""Folder of a cell's training."""
STEPS = (*(part.name for part in PARTS), PICTURE)
ONCE = (*UNDISTURBED, PICTURE)
"""Steps that are taken with the first seed only: they hardly depend on the weights."""
TIMED_EPOCHS = 4
"""Of the short training by which an update is timed."""


@dataclass(frozen=True, eq=False)
class Work:
    """A cell that is worked on: its settings, its images, and what was found so far."""

    cell: Cell
    protocol: Protocol
    place: Place
    data: TrainingData
    config: Config
    answers: Answers

    @classmethod
    def open(cls, cell: Cell, protocol: Protocol, place: Place) -> Work:
        data, config = training_data(cell, protocol, place)
        images = fingerprints(cell.data, protocol, place)
        answers = Answers.open(cell.folder(place.runs), protocol.settings(config), images)
        work = cls(cell, protocol, place, data, config, answers)
        if other := begun_otherwise(answers, config):
            raise ValueError(
                f"{work.run}: a training of other settings than those asked for ({'; '.join(other[:3])}); delete it, "
                "or use other --runs"
            )
        return work

    @property
    def run(self) -> Path:
        """The folder of the training."""
        return self.cell.folder(self.place.runs) / RUN

    @functools.cached_property
    def common(self) -> dict[str, Any]:
        """What all records of the cell say."""
        cell, quick = self.cell, " --quick" if self.protocol.name == "memory-quick" else ""
        command = f"mnemon bench memory --data {cell.data} --model {cell.kind} --seed {cell.seed}{quick}"
        updates = None if cell.kind in UNTRAINED else self.protocol.updates
        test = named_images(cell.data, self.protocol, self.place)
        return results.values_of_run(
            test, self.config.data, experiment=EXPERIMENT, model=cell.kind, seed=cell.seed, updates=updates,
            command=command,
        ) | {"data": cell.data}  # fmt: skip

    def give_up(self, outcome: Literal["does not apply", "failed"], reason: str) -> None:
        """Say of everything that is not answered, or drawn, yet why it is not."""
        parts = self.answers.parts
        for part in PARTS:
            if part.name not in parts:
                parts[part.name] = unasked(part, outcome, reason, self.common)
        if PICTURE not in parts:
            parts[PICTURE] = _no_picture(outcome, reason)
        self.answers.save()


def run_cell(
    cell: Cell,
    protocol: Protocol,
    place: Place,
    until: float | None = None,
    leave: Collection[str] = (),
    rounds: int = ROUNDS,
) -> Answers:
    """Train and ask; raises `OutOfTime` where the time is over, with all that was done kept, and
    `torch.AcceleratorError` where the device failed.

    leave: steps that are not to be taken now
    rounds: how often costs are measured now
    """
    check_time(until)
    work = Work.open(cell, protocol, place)
    answers = work.answers
    waiting = [step for step in STEPS if step not in answers.parts and step not in leave]
    if not waiting:
        return answers
    try:
        if cell.kind in BITS_ONLY and work.config.model.likelihood != "bernoulli":
            work.give_up("does not apply", f"a Hopfield network holds bits, and {cell.data} has grey levels")
        else:
            only_times = set(waiting) <= set(UNDISTURBED)
            if not only_times:
                _train(work, until)
            _ask(work, waiting, _subject(work, only_times), until, rounds)
    except OutOfTime:
        raise
    except Exception as error:  # one cell's trouble is not the grid's
        work.give_up("failed", _told(error))
        if isinstance(error, torch.AcceleratorError):  # but the device's is: no cell can be asked in this process
            raise
    finally:
        if answers.took:
            answers.save()
    if place.prune:
        prune(cell, answers, place.runs)
    return answers


def begun_otherwise(answers: Answers, config: Config) -> list[str]:
    """In what a training that was begun, and not ended, differs from the one asked for."""
    run = answers.path.parent / RUN
    if answers.training is not None or not (run / checkpoint.CONFIG).is_file():
        return []
    return checkpoint.differences(config.as_dict(), checkpoint.read_config(run).as_dict())


def is_trained(cell: Cell, answers: Answers, runs: Path) -> bool:
    """Whether a training was ended, and its weights were kept."""
    return answers.training is not None and (cell.folder(runs) / RUN / checkpoint.WEIGHTS).is_file()


def prune(cell: Cell, answers: Answers, runs: Path) -> None:
    """Delete the weights of a cell that is done."""
    if set(answers.parts) == set(STEPS) and not answers.failed:
        shutil.rmtree(cell.folder(runs) / RUN, ignore_errors=True)


def _train(work: Work, until: float | None) -> None:
    """Up to the end, or to the time; a training that is done, and whose weights are there, is not looked at again."""
    answers, place = work.answers, work.place
    if work.cell.kind in UNTRAINED or is_trained(work.cell, answers, place.runs):
        return
    with _timed(answers, "updates"):
        summary = train(
            work.config, work.run, data=work.data, resume=True, accelerator=place.accelerator, quiet=True, until=until
        )
    answers.training = {"updates": summary.steps, "workers": place.workers, "improved": summary.improved}
    answers.save()
    (work.run / checkpoint.STATE).unlink(missing_ok=True)
    free_memory(place.device)  # what the captured step held


def time_updates(work: Work) -> Estimate:
    """Milliseconds of an update, by a short training of its own, of which nothing is kept."""
    config = brief(work.config, 2 * work.protocol.sizes.repeats)
    data = replace(work.data, config=config.data)
    with tempfile.TemporaryDirectory() as folder:
        train(config, Path(folder) / "run", data=data, accelerator=work.place.accelerator, quiet=True)
        return update_times(checkpoint.read_metrics(Path(folder) / "run"), data.frames_per_batch)


def brief(config: Config, updates: int) -> Config:
    """A few epochs of so many updates of the last stage; episodes that grow have their full length at once."""
    data = replace(grown(config.data), batches_per_epoch=updates)
    stage = replace(config.stages[-1], epochs=1 + TIMED_EPOCHS)
    return replace(config, data=data, training=replace(config.training, validation_batches=1), stages=(stage,))


def update_times(metrics: Sequence[Mapping[str, Any]], frames: int) -> Estimate:
    """Milliseconds of an update of so many frames, from a training's own record. The first epoch, in which a GPU
    captures the step, is left out."""
    times = [1000 * frames / line["frames_per_second"] for line in metrics if line["kind"] == "train"]
    return Estimate.of(torch.tensor(times[1:], dtype=torch.float64))


def _ask(work: Work, waiting: Collection[str], subject: Subject, until: float | None, rounds: int) -> None:
    """What waits, part by part; a part that breaks is told, and the next one asked."""
    answers, cell, common = work.answers, work.cell, work.common
    first = is_first_seed(cell, work.protocol)
    turns = [part for part in PARTS if part.name in waiting for _ in range(rounds if part.name == COSTS else 1)]
    for part in turns:
        if part.name in answers.parts:  # rounds of it were left from before, or it failed
            continue
        check_time(until)
        if not first and part.name in ONCE:
            answers.keep(part.name, [])
            continue
        try:
            with _timed(answers, part.name):
                records = ask(part, subject, functools.partial(judge_of, cell.data, work.protocol, work.place))
        except torch.AcceleratorError:  # the device answers nothing any more in this process
            raise
        except Exception as error:
            answers.keep(part.name, unasked(part, "failed", _told(error), common))
            free_memory(work.place.device)
            continue
        if part.name == COSTS:
            answers.keep_round(records)
        else:
            answers.keep(part.name, records)
    if PICTURE in waiting:
        answers.keep(PICTURE, _draw(work, subject) if first else [])


def _draw(work: Work, subject: Subject) -> list[dict[str, Any]]:
    """What is kept of a picture: nothing, or why there is none."""
    try:
        with _timed(work.answers, PICTURE):
            draw_cell(subject, work.place.out / "memory" / work.cell.data / f"{work.cell.kind}.png")
    except torch.AcceleratorError:
        raise
    except Exception as error:
        return _no_picture("failed", _told(error))
    return []


def _no_picture(outcome: Literal["does not apply", "failed"], reason: str) -> list[dict[str, Any]]:
    return [{"note": empty_note(PICTURE, outcome, reason)}]


def _subject(work: Work, only_times: bool) -> Subject:
    cell, place, sizes, common = work.cell, work.place, work.protocol.sizes, work.common
    tests = test_images(cell.data, work.protocol, place)
    length, of_classes = work.config.data.episode_length, work.protocol.trains_on_classes(cell.data)
    if cell.kind in UNTRAINED:

        def made() -> Any:
            return untrained_model(cell.kind, tests.every.data.image_shape, sizes.memory_floats).to(place.device)

        return Subject(cell.kind, made, tests, sizes, length, common, None, of_classes)

    def trained() -> Any:
        if only_times:
            return fresh_model(work.config).to(place.device).eval()
        return load_run(work.run, device=place.device)[0]

    timed = functools.partial(time_updates, work)
    return Subject(cell.kind, trained, tests, sizes, length, common, timed, of_classes)


def is_first_seed(cell: Cell, protocol: Protocol) -> bool:
    return cell.seed == protocol.seeds(cell.data)[0]


def left_for_quiet(cell: Cell, protocol: Protocol) -> Collection[str]:
    """The steps that come when all others are taken, and nothing else runs."""
    return UNDISTURBED if is_first_seed(cell, protocol) else ()


def free_memory(device: str) -> None:
    """Give memory of the device that nothing holds any more back to the processes beside this one."""
    gc.collect()
    if device.startswith("cuda"):
        torch.cuda.empty_cache()


@contextlib.contextmanager
def _timed(answers: Answers, step: str) -> Iterator[None]:
    """Add to the seconds that a step took, also where it is stopped."""
    began = time.monotonic()
    try:
        yield
    finally:
        answers.took[step] = answers.took.get(step, 0.0) + time.monotonic() - began


def _told(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
