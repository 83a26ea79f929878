"""Time and memory of writing, reading and training an energy-based memory, against patterns, steps and weights.

On a GPU also the peak of memory, and a training step replayed as one CUDA graph against one launched kernel by kernel.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from benchmarks.common import median_ms, store
from mnemon.models.energy import EnergyModel
from mnemon.nets.energy import GatedEnergy

SHAPE = (1, 8, 16)
BASE = {"patterns": 32, "steps": 5, "dynamic_size": 64}
VARIED = {"patterns": (8, 32, 96), "steps": (1, 5, 10), "dynamic_size": (16, 64, 256)}
"""Each is varied with the others at the base."""


def main() -> None:
    found = run()
    for row in found["rows"]:
        print(", ".join(f"{key} {value}" for key, value in row.items()))
    store("energy" if found["device"] == "cpu" else "energy_gpu", **found)


def run() -> dict[str, Any]:
    """Medians in milliseconds for one episode written and read, and for training steps of several."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    hidden, episodes, rounds = (1024, 64, 10) if device == "cuda" else (256, 4, 3)
    rows = []
    for name, values in VARIED.items():
        for value in values:
            settings = BASE | {name: value}
            if settings not in [row["settings"] for row in rows]:
                rows.append({"settings": settings} | _measure(settings, hidden, episodes, rounds, device))
    kind = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    return {"device": kind, "hidden": hidden, "episodes": episodes, "seed": 0, "rows": rows}


def _measure(settings: dict[str, int], hidden: int, episodes: int, rounds: int, device: str) -> dict[str, Any]:
    torch.manual_seed(0)
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
        found = {"write ms": median_ms(lambda: model.write(one), rounds)}
        found["read ms"] = median_ms(lambda: model.read(state, one), rounds)
    for name, each in models.items():
        found[f"{name} ms"], found[f"{name} MB"] = _timed_step(each, x, rounds)
    if device == "cuda":
        found["step as a graph ms"] = _graph(model, x, rounds)
    return {key: value if value is None else round(value, 2) for key, value in found.items()}


def _step(model: EnergyModel, x: Tensor) -> None:
    model.zero_grad(set_to_none=False)
    model.recall_loss(x, x)[0].mean().backward()


def _timed_step(model: EnergyModel, x: Tensor, rounds: int) -> tuple[float, float | None]:
    """Milliseconds, and on a GPU the peak of megabytes above what is held anyway."""
    milliseconds = median_ms(lambda: _step(model, x), rounds)
    if x.device.type != "cuda":
        return milliseconds, None
    held = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    _step(model, x)
    return milliseconds, (torch.cuda.max_memory_allocated() - held) / 2**20


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
