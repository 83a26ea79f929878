"""What every benchmark stores beside its numbers."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import sklearn
import torch

from mnemon.evaluation.results import current_commit

RESULTS = Path(__file__).parent.parent / "results"


def machine() -> dict[str, Any]:
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        models = [line.split(":")[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        name = models[0] if models else name
    return {
        "processor": name,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "scikit-learn": sklearn.__version__,
    }


def alternate(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each call, the calls taking turns so that a busy moment of the machine hits all of them.

    Each timed call follows an untimed one of its own kind: the thread pools of BLAS libraries spin on for some
    ten milliseconds after their last job, on cores that the next kind of call needs.
    """
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            call()
            seconds[name].append(_seconds(call))
    return seconds


def median_ms(call: Callable[[], Any], rounds: int) -> float:
    """Milliseconds of a call, after three that are not timed."""
    for _ in range(3):
        call()
    return 1e3 * statistics.median(_seconds(call) for _ in range(rounds))


def _seconds(call: Callable[[], Any]) -> float:
    """Of one call, from a GPU that has nothing to do to one that has done it."""
    _wait()
    began = time.perf_counter()
    call()
    _wait()
    return time.perf_counter() - began


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def report(name: str, found: dict[str, Any]) -> None:
    """Print numbers that stand by their names, and store them."""
    for what, value in found.items():
        print(f"{what}: {value if isinstance(value, str | int) else round(value, 2)}")
    store(name, **found)


def store(name: str, **values: Any) -> None:
    """Write results/benchmark_NAME.json, with the machine, the commit and the command.

    What was measured on another device than a CPU, by `values["device"]`, stands beside it as benchmark_NAME_gpu.json.
    """
    RESULTS.mkdir(exist_ok=True)
    record = values | {"command": f"python -m benchmarks {name}", "commit": current_commit(), "machine": machine()}
    path = RESULTS / f"benchmark_{name}{'' if values.get('device', 'cpu') == 'cpu' else '_gpu'}.json"
    path.write_text(json.dumps(record, indent=1) + "\n")
    print(f"written: {path.relative_to(RESULTS.parent)}")
