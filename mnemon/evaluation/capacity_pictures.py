"""Figures of recall: curves of the error against the number of written patterns, and what is read from damaged cues."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure

from mnemon import plots
from mnemon.core.protocol import MemoryModel
from mnemon.core.random import stream
from mnemon.data.corruptions import corrupt
from mnemon.evaluation.capacity import CAPACITY, SLOTS, UNWRITTEN, Task, memory_floats
from mnemon.evaluation.likelihood import TestSet
from mnemon.models.energy import EnergyModel
from mnemon.models.hopfield import SlotMemory

METRICS = {"wrong_pixels": "share of wrong pixels", "mse_recalled": "squared error per pixel"}
SHOWN, COLUMNS = 12, 3
SMALL = 1e-3
"""Errors above are drawn on a logarithmic scale, those below on a linear one, which has a place for 0."""
DASHES = ("dotted", "dashed", "dashdot")
SIZE = re.compile(r"-\d+k$")
"""How the name of a run ends that differs from another in the size of its memory."""

Line = tuple[list[float], list[float]]


def is_capacity(record: Mapping[str, Any]) -> bool:
    return str(record["note"] or "").startswith("capacity: ")


def draw_capacity(records: Iterable[Mapping[str, Any]], out: Path) -> list[Path]:
    """For each data set, the error of every run and of the memories beside it against the number of written patterns.
    The trade-off of size and error is read off between runs."""
    found = [record for record in records if is_capacity(record)]
    files = []
    for data in dict.fromkeys(record["data"] for record in found):
        figure = Figure(figsize=(12, 4.6), layout="constrained")
        for axis, (metric, label) in zip(figure.subplots(1, 2), METRICS.items(), strict=True):
            mine = [record for record in found if record["data"] == data and record["metric"] == metric]
            plots.curves(axis, _series(mine), xlabel="patterns written", ylabel=label)
            _spread_small_errors(axis)
        plots.one_legend(figure)
        files.append(out / f"capacity_{data}.png")
        plots.save(figure, files[-1])
    return files


def _series(records: list[Mapping[str, Any]]) -> dict[str, Line]:
    """Curves by name, points in the order of their lengths. Memories without training were measured beside every run:
    one curve for each size."""
    sizes: dict[str, int] = {}  # of a memory that grows with what is written, the largest
    for record in records:
        if record["updates"] is not None:
            sizes[record["experiment"]] = max(sizes.get(record["experiment"], 0), record["memory_floats"])
    series: dict[str, dict[float, float]] = {}
    for record in _once(records):
        name = _name(record)
        if record["updates"] is not None:
            name = f"{name}, {sizes[record['experiment']]:,} floats"
        elif record["model"] == SLOTS:
            name = f"{name}, {record['memory_floats']:,} floats"
        series.setdefault(name, {})[record["episode_length"]] = record["value"]
    return {name: _line(points.items()) for name, points in series.items()}


def _once(records: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Without what other runs than the first read before a write: a line for each would hide the rest."""
    found = list(records)
    first = next((record["experiment"] for record in found if record["model"] == UNWRITTEN), None)
    return [record for record in found if record["model"] != UNWRITTEN or record["experiment"] == first]


def _name(record: Mapping[str, Any]) -> str:
    """A run by its experiment, without the size of its memory: what has several sizes is one curve. Of the others,
    what is read before a write is the run's own as well."""
    run = SIZE.sub("", record["experiment"])
    if record["updates"] is not None:
        return run
    return f"{run}, {UNWRITTEN}" if record["model"] == UNWRITTEN else str(record["model"])


def _line(points: Iterable[tuple[float, float]]) -> Line:
    ordered = sorted(points)
    return [x for x, _ in ordered], [y for _, y in ordered]


def draw_tradeoff(records: Iterable[Mapping[str, Any]], out: Path) -> list[Path]:
    """For each data set and length of episode, the error against the floats of the memory: a curve through the runs of
    each model, where there are runs of more than one size; lines across for what has no memory."""
    found = [record for record in records if is_capacity(record) and record["metric"] == "mse_recalled"]
    files = []
    for data in dict.fromkeys(record["data"] for record in found):
        mine = [record for record in found if record["data"] == data]
        lengths = sorted({record["episode_length"] for record in mine if record["updates"] is not None})
        if len({record["memory_floats"] for record in mine if record["updates"] is not None}) < 2:
            continue
        columns = min(COLUMNS, len(lengths))
        rows = -(-len(lengths) // columns)
        figure = Figure(figsize=(4.2 * columns + 2.8, 3.8 * rows), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False).flat
        for axis, length in zip(axes, lengths, strict=False):
            _tradeoff(axis, [record for record in mine if record["episode_length"] == length])
            axis.set_title(f"{length} written", fontsize=10)
        for axis in axes[len(lengths) :]:
            axis.axis("off")
        plots.one_legend(figure)
        files.append(out / f"tradeoff_{data}.png")
        plots.save(figure, files[-1])
    return files


def _tradeoff(axis: Any, records: list[Mapping[str, Any]]) -> None:
    points: dict[str, dict[float, float]] = {}
    for record in _once(records):
        points.setdefault(_name(record), {})[record["memory_floats"]] = record["value"]
    sized = {name: _line(some.items()) for name, some in points.items() if min(some)}
    plots.curves(axis, sized, xlabel="floats of the memory", ylabel=METRICS["mse_recalled"])
    axis.tick_params(axis="x", labelsize=8)
    for number, name in enumerate(name for name in points if name not in sized):
        dashes = DASHES[number % len(DASHES)]
        axis.axhline(points[name][0], linestyle=dashes, linewidth=1.2, color=plots.INK, label=name)
    _spread_small_errors(axis)


def _spread_small_errors(axis: Any) -> None:
    """Logarithmic but for the smallest, also 0: a memory is told from another where few pixels are wrong."""
    axis.set_yscale("symlog", linthresh=SMALL)
    axis.set_ylim(bottom=0)


@torch.no_grad()
def draw_recalls(
    models: Mapping[str, MemoryModel], test: TestSet, task: Task, out: Path, *, length: int, seed: int = 0
) -> Path:
    """Written images, their damaged cues, and what is read from them, as rows: what the first model makes of cues of
    which it has written nothing, what slots of as many floats as it has recall, and then what each model reads."""
    order = torch.randperm(len(test.data), generator=stream(seed, CAPACITY))[:length]
    generator = stream(seed, CAPACITY, device=str(test.device))
    x = test.draw(order, generator)
    cue, _ = corrupt(task.corruption, x, task.level, generator)
    rows, first = {"written": x, "cue": cue}, next(iter(models.values()))
    if isinstance(first, EnergyModel):
        rows[UNWRITTEN] = first.read(first.prior_state(), cue)
    floats = memory_floats(first, first.write(x, generator=stream(seed, CAPACITY, device=str(test.device))), 1)
    if floats >= x[0].numel():
        slots = SlotMemory(test.data.image_shape, floats)
        rows[f"slots, {floats:,} floats"] = slots.read(slots.write(x, generator=generator), cue)
    for name, model in models.items():
        state = model.write(x, generator=stream(seed, CAPACITY, device=str(test.device)))
        rows[f"{name}, {memory_floats(model, state, 1):,} floats"] = model.read(state, cue)
    path = out / "recalled.png"
    plots.save_rows({name: images[:SHOWN].cpu() for name, images in rows.items()}, path)
    return path
