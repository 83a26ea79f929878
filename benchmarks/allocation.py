"""A training step on a CPU in a process that keeps the memory it frees, against one that hands it back.

What a process does with its memory is settled for as long as it lives: the step is timed in processes of their own, of
both kinds in turn. Needs glibc.
"""

from __future__ import annotations

import resource
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
    """Medians over processes of a step's milliseconds and of the most memory held, and their ratios."""
    found: dict[str, list[list[float]]] = {way: [] for way in WAYS}
    for _ in range(processes):
        for way in WAYS:
            child = [sys.executable, "-m", "benchmarks.allocation", way]
            told = subprocess.run(child, check=True, stdout=subprocess.PIPE, text=True).stdout
            found[way].append([float(word) for word in told.split()])
    numbers: dict[str, Any] = {"device": "cpu"}
    for place, what in enumerate(("step, ms", "memory, MB")):
        handing, keeping = (statistics.median(row[place] for row in found[way]) for way in WAYS)
        numbers |= {f"{what}, handing back": handing, f"{what}, keeping": keeping, f"{what}, ratio": keeping / handing}
    return numbers


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
    print(_step_ms(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3)
