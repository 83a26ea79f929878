"""A training step of Kanerva++ against the DKM with the same encoder and decoder, taking turns in one run.

K++, appendix E, reports about half the DKM's time, and names the DKM's inner least-squares loop as the reason.
"""

from __future__ import annotations

import statistics
from typing import Any

import torch

from benchmarks.common import alternate, report
from mnemon.models.codec_model import CodecModel
from mnemon.registry import build_model
from mnemon.training.config import ModelConfig

T, C = 32, 100
SIZES = {"cpu": (2, 16), "cuda": (64, 64)}
"""Episodes and filters: as the presets have them on a GPU, less on a CPU."""
KINDS: dict[str, dict[str, Any]] = {
    "kanerva-pp": {"hidden": 512},
    "dkm-tsm": {"num_slots": 32, "autoencoder_weight": 0.0},  # the term would decode every frame once more
    "dkm-tsm, written at once": {"num_slots": 32, "autoencoder_weight": 0.0, "online": False},
    "vae-tsm": {"hidden": 512},
}


def main() -> None:
    report("kanerva_pp", run())


def run(rounds: int = 15) -> dict[str, Any]:
    """Medians in milliseconds, and how many times as long as Kanerva++ the others take."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    episodes, num_filters = SIZES[device]
    torch.manual_seed(0)
    x = (torch.rand(episodes, T, 1, 28, 28, device=device) < 0.2).float()
    models = {name: _model(name.split(",")[0], num_filters, options).to(device) for name, options in KINDS.items()}
    if device == "cuda":
        for model in models.values():
            model.to(memory_format=torch.channels_last)
            model.use_graphs()
    calls = {name: lambda model=model: _step(model, x) for name, model in models.items()}
    for call in calls.values():
        call()
    seconds = alternate(calls, rounds if device == "cuda" else min(rounds, 5))
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    found: dict[str, Any] = {"device": name, "episodes": episodes, "T": T, "C": C, "num_filters": num_filters}
    medians = {name: 1e3 * statistics.median(values) for name, values in seconds.items()}
    found |= {f"{name} step ms": value for name, value in medians.items()}
    return found | {f"{name} / kanerva-pp": medians[name] / medians["kanerva-pp"] for name in list(KINDS)[1:]}


def _model(kind: str, num_filters: int, options: dict[str, Any]) -> CodecModel:
    return build_model(
        ModelConfig(kind=kind, image_shape=(1, 28, 28), num_filters=num_filters, code_dim=C, **options)
    ).train()


def _step(model: CodecModel, x: torch.Tensor) -> None:
    """Forward and backward, in bf16 on a GPU as the presets train."""
    model.zero_grad(set_to_none=True)
    with torch.autocast(x.device.type, dtype=torch.bfloat16, enabled=x.device.type == "cuda"):
        terms = model.terms(x)
    bound = terms.conditional if terms.memory_kl is None else terms.joint
    (-bound.mean() / T).backward()
