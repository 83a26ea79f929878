"""A training step of hard against soft addressing as the memory grows, same nets. VMA, 5: a crossing near 48."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.common import alternate, store_by_device
from mnemon.core.episode import Roles
from mnemon.objectives import Estimator
from mnemon.registry import build_model
from mnemon.training.config import ModelConfig
from mnemon.training.step_graph import Inputs, StepGraphs

SIZES = (8, 16, 32, 64, 128, 256, 512)
TARGETS, SHAPE, ROUNDS = 32, (1, 26, 26), 5
ESTIMATORS = {"hard": Estimator("vimco", 4), "soft": Estimator("terms")}


def main() -> None:
    found = run()
    for size, row in found["milliseconds"].items():
        print(f"|M| = {size}: hard {row['hard']:.1f} ms, soft {row['soft']:.1f} ms, hard / soft {row['ratio']:.2f}")
    store_by_device("addressing", found)


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
        steps = {name: _training_step(models[name], x, ESTIMATORS[name], roles) for name in models}
        seconds = alternate(steps, rounds)
        hard, soft = (1e3 * statistics.median(seconds[name]) for name in ("hard", "soft"))
        rows[str(size)] = {"hard": hard, "soft": soft, "ratio": hard / soft}
    name = torch.cuda.get_device_name() if device == "cuda" else device
    return {"device": name, "targets": TARGETS, "samples": ESTIMATORS["hard"].num_samples, "milliseconds": rows}


def _training_step(model: Any, x: torch.Tensor, estimator: Estimator, roles: Roles) -> Callable[[], None]:
    """Forward and backward as the training loop has them: on a GPU replayed, so that launching is not what is timed."""

    def loss(inputs: Inputs, generator: torch.Generator, _: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        images, _mask, written, scored, _constant = inputs
        found = model.surrogate(images, estimator, roles=Roles(written, scored), generator=generator)
        objective = found.terms.conditional.mean() if found.value is None else found.value.sum(-1).mean()
        return -objective, objective.detach()

    inputs = (x, None, roles.written, roles.scored, None)
    if x.is_cuda:
        graphs = StepGraphs(model, loss, torch.Tensor.backward)
        return lambda: graphs.run(inputs, 0, ())

    def plain() -> None:
        model.zero_grad(set_to_none=True)
        loss(inputs, torch.Generator().manual_seed(0), torch.ones(0))[0].backward()

    return plain
