"""Where a training's numbers go: metrics.jsonl, TensorBoard if asked for, and a progress bar with the four terms."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from mnemon.training.checkpoint import METRICS
from mnemon.training.objective import joint


class Metrics:
    """Appends records to metrics.jsonl. On resuming, what was written after the checkpoint is cut off first."""

    def __init__(self, folder: Path, *, size: int | None = None, tensorboard: bool = False, step: int = 0) -> None:
        """size: bytes to keep; None starts afresh. step: where training goes on."""
        path = folder / METRICS
        if size is None:
            path.write_bytes(b"")
        else:
            if not path.is_file() or path.stat().st_size < size:
                raise ValueError(f"{path}: shorter than when the checkpoint was written; restore it or start over")
            with open(path, "r+b") as file:
                file.truncate(size)
        self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115 - closed by close()
        self._board = _open_board(folder, step) if tensorboard else None

    def write(self, step: int, record: dict[str, Any]) -> None:
        self._file.write(json.dumps({"step": step, **record}) + "\n")
        self._file.flush()
        if self._board is not None:
            for name, value in record.items():
                if isinstance(value, int | float):
                    self._board.add_scalar(f"{record['kind']}/{name}", value, step)

    def write_validation(self, step: int, common: dict[str, Any], values: dict[str, float]) -> None:
        self.write(step, {"kind": "validation", **common, **values, **_joint(values)})

    def write_epoch(
        self,
        step: int,
        common: dict[str, Any],
        train: dict[str, float],
        validation: dict[str, float],
        frames_per_second: float,
    ) -> None:
        rate = round(frames_per_second, 1)
        self.write(step, {"kind": "train", **common, **train, **_joint(train), "frames_per_second": rate})
        self.write_validation(step, common, validation)

    @property
    def size(self) -> int:
        """Bytes so far, all of them on the disk: a checkpoint that names this size can rely on them."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        self._file.close()
        if self._board is not None:
            self._board.close()


def _open_board(folder: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ValueError(
            "training.tensorboard: TensorBoard is not installed; pip install tensorboard, or set it to false"
        ) from None
    return SummaryWriter(str(folder / "tensorboard"), purge_step=step)


class Bar:
    """One line that shows where training stands; prints nothing when silent."""

    def __init__(self, console: Console, *, silent: bool) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=16),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[terms]}"),
            console=console,
            disable=silent,
        )
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def epoch(self, name: str, batches: int, done: int) -> None:
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(name, total=batches, completed=done, terms="")

    def advance(self, values: dict[str, float] | None = None) -> None:
        assert self._task is not None
        if values is None:
            self._progress.advance(self._task)
            return
        self._progress.update(self._task, advance=1, terms=_terms(values))

    def say_epoch(
        self, epoch: int, train: dict[str, float], validation: dict[str, float], frames_per_second: float, gained: bool
    ) -> None:
        self.say(
            f"epoch {epoch}: {_headline(train)} in training, {_headline(validation, unit=False)} in validation"
            f"{' *' if gained else ''}, {frames_per_second:,.0f} frames/s"
        )

    def say(self, text: str) -> None:
        if not self._progress.disable:
            self._progress.console.print(text)


def _joint(values: dict[str, float]) -> dict[str, float]:
    """The joint bound, where the values are parts of one."""
    return {"joint": joint(values)} if "reconstruction" in values else {}


def _terms(values: dict[str, float]) -> str:
    """The values of a step, short: the four terms of a bound, or whatever a model without one reports."""
    if "reconstruction" not in values:
        return "  ".join(f"{name} {value:.4g}" for name, value in values.items())
    return (
        f"rec {values['reconstruction']:.1f}  code {values['code_kl']:.1f}  "
        f"address {values['address_kl']:.2f}  memory {values['memory_kl']:.1f}"
    )


def _headline(values: dict[str, float], unit: bool = True) -> str:
    if "reconstruction" not in values:
        return f"squared error {values['error']:.5f} per pixel" if unit else f"{values['error']:.5f}"
    return f"joint {joint(values):.2f} nats/frame" if unit else f"{joint(values):.2f}"
