"""A training step on a CPU while the C library keeps the memory that is freed, against one while it hands it back.

By default glibc gives every large block that is freed back to the system, and the next one comes as empty pages, each
of which costs a fault when it is first touched. Both are settings of the environment, read when a process starts: the
step is timed in processes of its own, with and without them in turn. Needs Linux with glibc.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from typing import Any

import torch

from benchmarks.common import median_ms, report
from mnemon.models import VAE
from mnemon.nets.codec import Codec

KEEPING = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "10000000000"}


def main() -> None:
    report("allocation", run())


def run(processes: int = 3) -> dict[str, Any]:
    """Medians over processes in milliseconds, and their ratio."""
    times: dict[str, list[float]] = {"handing back": [], "keeping": []}
    for _ in range(processes):
        for name, settings in zip(times, ({}, KEEPING), strict=True):
            child = [sys.executable, "-m", "benchmarks.allocation"]
            told = subprocess.run(child, env=os.environ | settings, check=True, capture_output=True, text=True)
            times[name].append(float(told.stdout))
    found = {f"step ms, {name}": statistics.median(values) for name, values in times.items()}
    handing, keeping = found.values()
    return {"device": "cpu", **found, "keeping / handing back": keeping / handing}


def _step_ms(rounds: int = 5) -> float:
    """Of the benchmark's VAE and its batch."""
    model = VAE(Codec.convolutional((1, 28, 28), 64, architecture="padded", num_filters=32))
    x = (torch.rand(8, 64, 1, 28, 28) < 0.2).float()

    def step() -> None:
        model.zero_grad(set_to_none=True)
        (-model.terms(x).per_frame.mean()).backward()

    return median_ms(step, rounds)


if __name__ == "__main__":
    print(_step_ms())
