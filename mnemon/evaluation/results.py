"""Results files: lists of flat records, one number each, that a command regenerates."""

from __future__ import annotations

import csv
import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mnemon.core.state import atomic_path
from mnemon.data.images import ImageSet
from mnemon.training.config import DataConfig

KEYS = (
    "experiment", "model", "data", "split", "binarisation", "scored", "metric", "bound", "num_samples", "value",
    "unit", "interval", "num_seeds", "seed", "episode_length", "memory_floats", "updates", "command", "commit",
    "paper_value", "paper_protocol", "note",
)  # fmt: skip


def result(**values: Any) -> dict[str, Any]:
    """One record with every key, None where one does not apply."""
    unknown = values.keys() - set(KEYS)
    if unknown:
        raise ValueError(f"result: unknown keys {sorted(unknown)}; expected some of {', '.join(KEYS)}")
    return {key: values.get(key) for key in KEYS}


def values_of_run(data: ImageSet, config: DataConfig, **more: Any) -> dict[str, Any]:
    """What all records of a run on test images say; `more`: experiment, model, seed, updates and command."""
    binarisation = {"none": "dequantised" if config.dequantise else None, "static": f"pixel > {config.threshold}"}
    return {
        "data": data.name,
        "split": data.split,
        "binarisation": binarisation.get(config.binarise, config.binarise),
        "num_seeds": 1,
        "commit": current_commit(),
        **more,
    }


def write_json(path: Path, records: Sequence[dict[str, Any]]) -> None:
    with atomic_path(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        json.dump(list(records), file, indent=1)
        file.write("\n")


def write_csv(path: Path, records: Sequence[dict[str, Any]]) -> None:
    with atomic_path(path) as temporary, open(temporary, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(records[0]))
        writer.writeheader()
        writer.writerows(records)


def current_commit() -> str | None:
    """The commit of the source tree this package runs from; None outside a checkout, "+" if files changed.

    MNEMON_COMMIT stands in for it where the source is a copy without its history.
    """
    if given := os.environ.get("MNEMON_COMMIT"):
        return given
    here = Path(__file__).parent
    try:
        commit = _git(here, "rev-parse", "--short=12", "HEAD")
        changed = _git(here, "status", "--porcelain", "--untracked-files=no", "--", str(here.parent))
    except (OSError, subprocess.CalledProcessError):
        return None
    return commit + ("+" if changed else "")


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()
