"""Figures of recall: curves of the error against the number of written patterns, and what is read from damaged cues."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure

from mnemon import plots
from mnemon.core.protocol import MemoryModel
from mnemon.core.random import stream
from mnemon.data.corruptions import corrupt
from mnemon.evaluation.capacity import CAPACITY, SLOTS, Task
from mnemon.evaluation.likelihood import TestSet

METRICS = {"wrong_pixels": "share of wrong pixels", "mse_recalled": "squared error per pixel"}
SHOWN = 12


def is_capacity(record: Mapping[str, Any]) -> bool:
    return str(record["note"] or "").startswith("capacity: ")


def draw_capacity(records: Iterable[Mapping[str, Any]], out: Path) -> list[Path]:
    """For each data set, the error of every model against the number of written patterns; runs of one model with
    memories of different sizes are curves of their own. The trade-off of size and error is read off between them."""
    found = [record for record in records if is_capacity(record)]
    files = []
    for data in dict.fromkeys(record["data"] for record in found):
        figure = Figure(figsize=(10.5, 4.2), layout="constrained")
        for axis, (metric, label) in zip(figure.subplots(1, 2), METRICS.items(), strict=True):
            mine = [record for record in found if record["data"] == data and record["metric"] == metric]
            plots.curves(axis, _series(mine), xlabel="patterns written", ylabel=label)
        files.append(out / f"capacity_{data}.png")
        plots.save(figure, files[-1])
    return files


def _series(records: list[Mapping[str, Any]]) -> dict[str, tuple[list[float], list[float]]]:
    """Curves by name, points in the order of their lengths."""
    series: dict[str, list[tuple[float, float]]] = {}
    for record in records:
        sized = record["updates"] is not None or record["model"] == SLOTS
        name = f"{record['model']}, {record['memory_floats']:,} floats" if sized else record["model"]
        series.setdefault(name, []).append((record["episode_length"], record["value"]))
    return {name: _line(points) for name, points in series.items()}


def _line(points: Iterable[tuple[float, float]]) -> tuple[list[float], list[float]]:
    ordered = sorted(points)
    return [x for x, _ in ordered], [y for _, y in ordered]


def draw_tradeoff(records: Iterable[Mapping[str, Any]], out: Path) -> list[Path]:
    """For each data set and length of episode, the error against the floats of the memory: a curve through the runs of
    each model, where there are runs of more than one size."""
    found = [record for record in records if is_capacity(record) and record["metric"] == "mse_recalled"]
    files = []
    for data in dict.fromkeys(record["data"] for record in found):
        mine = [record for record in found if record["data"] == data and record["memory_floats"]]
        lengths = sorted({record["episode_length"] for record in mine if record["updates"] is not None})
        if len({record["memory_floats"] for record in mine if record["updates"] is not None}) < 2:
            continue
        figure = Figure(figsize=(4.2 * len(lengths), 4.2), layout="constrained")
        for axis, length in zip(figure.subplots(1, len(lengths), squeeze=False)[0], lengths, strict=True):
            points: dict[str, set[tuple[float, float]]] = {}
            for record in mine:
                if record["episode_length"] == length:
                    points.setdefault(record["model"], set()).add((record["memory_floats"], record["value"]))
            plots.curves(
                axis,
                {name: _line(some) for name, some in points.items()},
                xlabel="floats of the memory",
                ylabel="squared error per pixel",
            )
            axis.set_title(f"{length} written", fontsize=10)
        files.append(out / f"tradeoff_{data}.png")
        plots.save(figure, files[-1])
    return files


@torch.no_grad()
def draw_recalls(model: MemoryModel, test: TestSet, task: Task, out: Path, *, length: int, seed: int = 0) -> Path:
    """Written images, their damaged cues, and what is read from them after one and three reads, as rows."""
    order = torch.randperm(len(test.data), generator=stream(seed, CAPACITY))[:length]
    generator = stream(seed, CAPACITY, device=str(test.device))
    x = test.draw(order, generator)
    cue, _ = corrupt(task.corruption, x, task.level, generator)
    state = model.write(x, generator=generator)
    rows = {"written": x, "cue": cue, "read": model.read(state, cue), "read thrice": model.read(state, cue, steps=3)}
    path = out / "recalled.png"
    plots.save_rows({name: images[:SHOWN].cpu() for name, images in rows.items()}, path)
    return path
