"""What a memory costs: time and space of writing, reading and training."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import torch

from mnemon.core.random import stream
from mnemon.evaluation.benchmark.holding import Records
from mnemon.evaluation.benchmark.subject import Subject, count_floats
from mnemon.evaluation.likelihood import Estimate

COSTS = 26
"""The random stream of this file."""
AT_ONCE = 16
"""Episodes that are written and read together where a rate is measured."""
WARM_UP = 1
FEWEST = 4
"""Calls that are timed at least: an interval of two is six times as wide as one of four."""
LONG = 0.25
"""Seconds after which a call is not repeated more often."""


@torch.no_grad()
def costs(subject: Subject, asked: set[str]) -> Records:
    """Latency of one, rate of many, bytes, and the most memory that a GPU was asked for."""
    model, length = subject.model, subject.length
    index = torch.randperm(len(subject.tests.some.data), generator=stream(0, COSTS))[: AT_ONCE * length]
    x = subject.tests.some.draw(index, stream(0, COSTS, device=str(subject.device)))
    many = x[: len(x) // length * length].unflatten(0, (-1, length))
    one, frames = many[:1], many.shape[0] * length
    state, states = model.write(one), model.write(many)
    times = {
        "write_latency": _times(subject, lambda: model.write(one)),
        "read_latency": _times(subject, lambda: model.read(state, one[:, :1])),
        "write_rate": frames / _times(subject, lambda: model.write(many)),
        "read_rate": frames / _times(subject, lambda: model.read(states, many)),
    }
    for question, values in times.items():
        if question in asked:
            scale = 1000.0 if question.endswith("latency") else 1.0
            yield subject.record(question, Estimate.of(scale * values), subject.machine)
    if "state_bytes" in asked:
        yield subject.record("state_bytes", Estimate(4.0 * count_floats(model, state), math.nan, 1))
    if "peak_memory" in asked:
        before = torch.cuda.memory_allocated(subject.device)
        torch.cuda.reset_peak_memory_stats(subject.device)
        model.read(model.write(many), many)
        peak = torch.cuda.max_memory_allocated(subject.device) - before
        yield subject.record("peak_memory", Estimate(peak / 1e6, math.nan, 1), subject.machine)


def training_step(subject: Subject, asked: set[str]) -> Records:
    """Of a training that starts anew, so that no trained weights are needed."""
    assert subject.time_updates is not None
    yield subject.record("train_step", subject.time_updates(), subject.machine, memory_floats=None)


def _times(subject: Subject, call: Callable[[], Any]) -> torch.Tensor:
    """Seconds of each of some calls; fewer of them where one takes long, but enough for an interval."""
    found: list[float] = []
    while len(found) < WARM_UP + FEWEST or (sum(found) < LONG and len(found) < WARM_UP + subject.sizes.repeats):
        _wait(subject.device)
        began = time.perf_counter()
        call()
        _wait(subject.device)
        found.append(time.perf_counter() - began)
    return torch.tensor(found[WARM_UP:], dtype=torch.float64)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
