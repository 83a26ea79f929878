"""Training with nothing, the memory's sweeps, and whole steps replayed as CUDA graphs. Needs a GPU."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from benchmarks.common import store
from mnemon import presets
from mnemon.training.loop import train

PRESETS = ("digits-gaussian", "glyphs-mixture", "glyphs-vma")
MODES = ("none", "writes", "steps")


def main() -> None:
    if not torch.cuda.is_available():
        sys.exit("steps: expected a CUDA device, got none; CUDA graphs are what is measured")
    found = run()
    for preset, row in found["frames per second"].items():
        told = ", ".join(f"{mode} {row[mode]:.0f} frames/s" for mode in MODES)
        print(f"{preset}: {told}; steps / none {row['steps / none']:.1f}")
    store("steps", **found)


def run(names: tuple[str, ...] = PRESETS) -> dict[str, Any]:
    """Frames per second of a second epoch, the capture being in the first, and ratios from the same run."""
    rows = {}
    for name in names:
        row = {mode: _rate(name, mode) for mode in MODES}
        rows[name] = {**row, "steps / none": row["steps"] / row["none"], "steps / writes": row["steps"] / row["writes"]}
    return {"device": torch.cuda.get_device_name(), "frames per second": rows}


def _rate(preset: str, mode: str) -> float:
    settings = ["stages.0.epochs=2", "training.validation_batches=1", f'training.graphs="{mode}"']
    with tempfile.TemporaryDirectory() as folder:
        train(presets.load(preset).with_settings(settings), Path(folder), quiet=True)
        lines = (Path(folder) / "metrics.jsonl").read_text().splitlines()
    trained = [record for line in lines if (record := json.loads(line))["kind"] == "train"]
    return float(trained[-1]["frames_per_second"])
