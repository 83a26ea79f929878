"""Where a training stands, what it came to, and how it stops when its numbers go bad."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor


@dataclass
class Progress:
    """Where a run stands: plain numbers, kept in the checkpoint."""

    stage: int = 0
    epoch: int = 0
    batch: int = 0
    step: int = 0
    stage_epochs: int = 0
    best_loss: float = math.inf
    best_epoch: int = -1
    first_loss: float = math.inf
    epochs_without_gain: int = 0
    total_epochs: int = 0
    sums: list[float] = field(default_factory=list)
    done: bool = False

    def summary(self, folder: Path, planned_epochs: int, seconds: float) -> Summary:
        improved, early = self.best_epoch > 0, self.total_epochs < planned_epochs
        return Summary(folder, self.step, self.total_epochs, self.best_epoch, self.best_loss, improved, seconds, early)


@dataclass(frozen=True)
class Summary:
    """What a training came to. `improved` is False when no epoch beat the untrained model."""

    folder: Path
    steps: int
    epochs: int
    best_epoch: int
    best_loss: float
    improved: bool
    seconds: float
    stopped_early: bool


class OutOfTime(Exception):
    """The time that was given is over: what was done is kept, and the rest waits for the next call."""


def is_over(until: float | None) -> bool:
    """Whether `time.monotonic()` is past `until`."""
    return until is not None and time.monotonic() >= until


def check_time(until: float | None) -> None:
    """Stop here when it is."""
    if is_over(until):
        raise OutOfTime


class NonFiniteLoss(ValueError):
    """A loss that is NaN or infinite: names the term and the step; the last good checkpoint is kept."""


def check_finite_values(values: Tensor, names: Sequence[str], first_step: int, folder: Path, where: str = "") -> None:
    """Stop at the first step with a bad value, and name the term it came from. Shapes: values (steps, len(names))

    where: words before the term's name, such as "validation ".
    """
    bad = (~values.isfinite()).nonzero()
    if not len(bad):
        return
    row = int(bad[0, 0])
    found = [names[column] for step, column in bad.tolist() if step == row]
    # the loss is last to blame: it is only the sum of the others
    name = next((n for n in found if n != "loss"), "loss")
    raise NonFiniteLoss(
        f"step {first_step + row}: {where}{name} is {values[row, names.index(name)].item()}; {_stopped(folder)}"
    )


def check_finite_weights(model: torch.nn.Module, step: int, folder: Path) -> None:
    for name, parameter in model.named_parameters():
        if not bool(parameter.isfinite().all()):
            raise NonFiniteLoss(f"step {step}: the weights {name} are NaN or infinite; {_stopped(folder)}")


def blame_numbers(
    error: Exception, model: torch.nn.Module, window: list[Tensor], names: Sequence[str], step: int, folder: Path
) -> None:
    """A memory's algebra fails when numbers went bad before it: then that is what to tell, and at which step.

    window: the values of the last steps before `step`, one tensor each.
    """
    if isinstance(error, NonFiniteLoss | torch.AcceleratorError):  # a device that failed gives no numbers any more
        return
    if window:
        check_finite_values(torch.stack(window).double().cpu(), names, step - len(window), folder)
    check_finite_weights(model, step, folder)
    if step > 0 and "finite" in str(error):  # it worked before the weights were updated
        raise NonFiniteLoss(f"step {step}: {error}; {_stopped(folder)}") from error


def _stopped(folder: Path) -> str:
    return f"training stopped, the last good checkpoint is kept in {folder}; try a smaller learning rate or clip_norm"
