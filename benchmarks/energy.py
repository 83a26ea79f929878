"""Time and memory of writing, reading and training an energy-based memory, against patterns, steps and weights.

On a GPU also a training step replayed as one CUDA graph against one launched kernel by kernel. Memory is the peak above
what is held anyway: of the GPU's own count, or of the process's resident pages where the system can reset their peak.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.common import median_ms, store
from mnemon.models.energy import EnergyModel
from mnemon.nets.energy import EnergyNet, GatedEnergy
from mnemon.nets.energy_pairwise import PairwiseEnergy

SHAPE = (1, 8, 16)
BASE = {"patterns": 32, "steps": 5, "dynamic_size": 64}
VARIED = {"patterns": (8, 32, 96), "steps": (1, 5, 10), "dynamic_size": (16, 64, 256)}
"""Each is varied with the others at the base. The pairwise net has the base's number of weights, whatever the size."""


def main() -> None:
    found = run()
    for row in found["rows"]:
        print(", ".join(f"{key} {value}" for key, value in row.items()))
    store("energy", **found)


def run() -> dict[str, Any]:
    """Medians in milliseconds for one episode written and read, and for training steps of several."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    hidden, episodes, rounds = (1024, 64, 5) if device == "cuda" else (320, 4, 3)
    rows: list[dict[str, Any]] = []
    for net in ("gated", "pairwise"):
        for name, values in VARIED.items():
            for value in values if net == "gated" or name != "dynamic_size" else ():
                settings = BASE | {"net": net, name: value}
                if settings not in [row["settings"] for row in rows]:
                    rows.append({"settings": settings} | _measure(settings, hidden, episodes, rounds, device))
    kind = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    return {"device": kind, "hidden": hidden, "episodes": episodes, "seed": 0, "rows": rows}


def _measure(settings: dict[str, Any], hidden: int, episodes: int, rounds: int, device: str) -> dict[str, Any]:
    torch.manual_seed(0)
    net: EnergyNet = PairwiseEnergy(SHAPE)
    if settings["net"] == "gated":
        net = GatedEnergy(SHAPE, hidden=hidden, dynamic_size=settings["dynamic_size"])
    options = {"write_steps": settings["steps"], "read_steps": settings["steps"]}
    models = {
        "step": EnergyModel(net, **options).to(device),
        "step without gradient norm": EnergyModel(net, use_gradient=False, **options).to(device),
        "step recomputed": EnergyModel(net, recompute=True, **options).to(device),
    }
    x = torch.randint(2, (episodes, settings["patterns"], *SHAPE), device=device).float()
    model, one = models["step"], x[0]
    with torch.no_grad():
        state = model.write(one)
        calls: dict[str, Callable[[], Any]] = {
            "write": lambda: model.write(one),
            "read": lambda: model.read(state, one),
        }
        found = {key: value for name, call in calls.items() for key, value in _cost(name, call, rounds).items()}
    for name, each in models.items():
        found |= _cost(name, partial(_step, each, x), rounds)
    if device == "cuda":
        found["step as a graph ms"] = _graph(model, x, rounds)
    return {key: value if value is None else round(value, 2) for key, value in found.items()}


def _step(model: EnergyModel, x: Tensor) -> None:
    model.zero_grad(set_to_none=False)
    model.recall_loss(x, x)[0].mean().backward()


def _cost(name: str, call: Callable[[], Any], rounds: int) -> dict[str, float | None]:
    return {f"{name} ms": median_ms(call, rounds), f"{name} MB": _peak_megabytes(call)}


def _peak_megabytes(call: Callable[[], Any]) -> float | None:
    """Of one call, above what is held before it; None where nobody counts."""
    if torch.cuda.is_available():
        held = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        call()
        return (torch.cuda.max_memory_allocated() - held) / 2**20
    try:
        ctypes.CDLL(None).malloc_trim(0)  # what earlier calls freed, and the allocator kept, goes back first
        Path("/proc/self/clear_refs").write_text("5")  # the peak of resident pages begins anew
    except (OSError, AttributeError):
        return None
    held = _resident("VmRSS")
    call()
    return max(0, _resident("VmHWM") - held) / 2**10


def _resident(name: str) -> int:
    """Kilobytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(f"{name}:")))


def _graph(model: EnergyModel, x: Tensor, rounds: int) -> float:
    """A whole step captured and replayed."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            _step(model, x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        _step(model, x)
    return median_ms(graph.replay, rounds)
