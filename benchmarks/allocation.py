"""A training step on a CPU in a process that keeps the memory it frees, against one that hands it back.

What a process does with its memory is settled for as long as it lives: the step is timed in processes of their own, of
both kinds in turn. Needs glibc.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from typing import Any

import torch

from benchmarks.common import median_ms, report
from mnemon.core.allocation import keep_freed_memory
from mnemon.models import VAE
from mnemon.nets.codec import Codec

WAYS = ("handing back", "keeping")


def main() -> None:
    report("allocation", run())


def run(processes: int = 3) -> dict[str, Any]:
    """Medians over processes in milliseconds, and their ratio."""
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(processes):
        for way in WAYS:
            child = [sys.executable, "-m", "benchmarks.allocation", way]
            times[way].append(float(subprocess.run(child, check=True, stdout=subprocess.PIPE, text=True).stdout))
    handing, keeping = (statistics.median(times[way]) for way in WAYS)
    return {
        "device": "cpu",
        "step, handing back, ms": handing,
        "step, keeping, ms": keeping,
        "keeping / handing back": keeping / handing,
    }


def _step_ms(rounds: int = 5) -> float:
    """Of the VAE of `mnemon bench memory` and its batch."""
    model = VAE(Codec.convolutional((1, 28, 28), 64, architecture="padded", num_filters=32))
    x = (torch.rand(8, 64, 1, 28, 28) < 0.2).float()

    def step() -> None:
        model.zero_grad(set_to_none=True)
        (-model.terms(x).per_frame.mean()).backward()

    return median_ms(step, rounds)


if __name__ == "__main__":
    if sys.argv[1] == "keeping" and not keep_freed_memory():
        sys.exit("allocation: expected glibc, whose ways are what is measured")
    print(_step_ms())
