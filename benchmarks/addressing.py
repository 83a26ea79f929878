"""A training step of hard against soft addressing as the memory grows, same nets. VMA, 5: a crossing near 48."""

from __future__ import annotations

import statistics
from typing import Any

import torch

from benchmarks.common import alternate, store
from mnemon.core.episode import Roles
from mnemon.objectives import Estimator
from mnemon.registry import build_model
from mnemon.training.config import ModelConfig

SIZES = (8, 16, 32, 64, 128, 256, 512)
TARGETS, SHAPE, ROUNDS = 32, (1, 26, 26), 5
HARD, SOFT = Estimator("vimco", 4), Estimator("terms")


def main() -> None:
    found = run()
    for size, row in found["milliseconds"].items():
        print(f"|M| = {size}: hard {row['hard']:.1f} ms, soft {row['soft']:.1f} ms, hard / soft {row['ratio']:.2f}")
    store("addressing" if found["device"] == "cpu" else "addressing_gpu", **found)


def run(sizes: tuple[int, ...] = SIZES, rounds: int = ROUNDS) -> dict[str, Any]:
    """Medians in milliseconds by memory size, and their ratio from the same rounds: 32 targets, 4 samples against 1."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    models = {
        name: build_model(ModelConfig(kind=kind, architecture="pyramid", image_shape=SHAPE)).to(device)
        for name, kind in (("hard", "vma"), ("soft", "soft-attention"))
    }
    rows = {}
    for size in sizes:
        x = (torch.rand(1, size + TARGETS, *SHAPE, device=device) < 0.1).float()
        places = torch.arange(size + TARGETS, device=device)[None]
        roles = Roles(places[:, :size], places[:, size:])
        seconds = alternate(
            {
                "hard": lambda x=x, roles=roles: _step(models["hard"], x, HARD, roles),
                "soft": lambda x=x, roles=roles: _step(models["soft"], x, SOFT, roles),
            },
            rounds,
        )
        hard, soft = (1e3 * statistics.median(seconds[name]) for name in ("hard", "soft"))
        rows[str(size)] = {"hard": hard, "soft": soft, "ratio": hard / soft}
    name = torch.cuda.get_device_name() if device == "cuda" else device
    return {"device": name, "targets": TARGETS, "samples": HARD.num_samples, "milliseconds": rows}


def _step(model: Any, x: torch.Tensor, estimator: Estimator, roles: Roles) -> None:
    model.zero_grad(set_to_none=True)
    found = model.surrogate(x, estimator, roles=roles)
    objective = found.terms.conditional.mean() if found.value is None else found.value.sum(-1).mean()
    (-objective).backward()
    if x.is_cuda:
        torch.cuda.synchronize()
