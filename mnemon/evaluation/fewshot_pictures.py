"""Pictures of few-shot learning, from plain arrays: addresses, one-shot samples, and two curves of the VMA paper."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from mnemon import plots
from mnemon.evaluation.cells import cell_of
from mnemon.plots import INK, SERIES

BANDS = ("#eef1f4", "#ffffff")
"""Behind the slots of one class and of the next."""
PARTS = {"address_kl": "KL of the address", "code_kl": "KL of the code", "reconstruction": "reconstruction"}


def address_histogram(
    weights: Tensor, memory: Tensor, targets: Tensor, *, labels: Tensor | None = None, top: int = 5
) -> Figure:
    """For each target: itself, q(a | x) over the slots, and the slots with the most of it (VMA, figure 3).

    labels  the slots' classes; slots of one class stand together, on one band
    Shapes: weights (n, M), memory (M, C, H, W), targets (n, C, H, W), labels (M)
    """
    num_targets, slots = weights.shape
    if memory.shape[0] != slots or len(targets) != num_targets:
        raise ValueError(
            f"address_histogram: expected weights (targets, slots) = ({len(targets)}, {len(memory)}), got "
            f"{tuple(weights.shape)}"
        )
    order = torch.arange(slots) if labels is None else labels.cpu().argsort(stable=True)
    weights, memory = weights.detach().cpu().float()[:, order], memory.detach().cpu()[order]
    top = min(top, slots)
    figure = Figure(figsize=(10.5, 1.75 * num_targets + 0.35), layout="constrained")
    ratios = (1, 4.5, *([1] * top))
    axes = figure.subplots(num_targets, 2 + top, squeeze=False, width_ratios=ratios)
    for row, (share, target) in enumerate(zip(weights, targets.detach().cpu(), strict=True)):
        best = share.topk(top)
        _show(axes[row, 0], target, "target" if row == 0 else "")
        bars = axes[row, 1]
        if labels is not None:
            _class_bands(bars, labels.cpu()[order])
        bars.vlines(np.arange(slots), 0, share.numpy(), color=SERIES[0], linewidth=max(1.2, min(6.0, 260 / slots)))
        bars.plot(best.indices.numpy(), best.values.numpy(), "o", color=SERIES[1], markersize=4)
        bars.set_xlim(-0.5, slots - 0.5)
        bars.set_ylim(0, 1.12 * float(weights.max()))
        bars.spines[["top", "right"]].set_visible(False)
        bars.set_title("q(a | x)" if row == 0 else "", fontsize=10, color=INK)
        named = "slot a" if labels is None else "slots a, class by class"
        bars.set_xlabel(named if row == num_targets - 1 else "")
        for column, (value, slot) in enumerate(zip(best.values.tolist(), best.indices.tolist(), strict=True)):
            _show(axes[row, 2 + column], memory[slot], f"{value:.2f}" if value >= 0.005 else "< 0.01")
    return figure


def one_shot_table(examples: Tensor, samples: Tensor) -> Tensor:
    """Rows of samples, the one image that was in memory at the left, a white column between (VMA, figure 4A).

    Shapes: examples (n, *X), samples (n, m, *X) -> (n, m + 2, *X), for `plots.save_grid`
    """
    if examples.shape[1:] != samples.shape[2:] or len(examples) != len(samples):
        raise ValueError(
            f"one_shot_table: expected samples ({len(examples)}, m, {', '.join(map(str, examples.shape[1:]))}), got "
            f"{tuple(samples.shape)}"
        )
    example = examples[:, None]
    return torch.cat((example, torch.ones_like(example), samples.to(example)), dim=1)


def kl_curves(examples: Sequence[int], parts: Mapping[str, Sequence[float]]) -> Figure:
    """Each part of the bound in a panel of its own, against examples per class in memory (VMA, figure 4B).

    They differ by tens of nats, so one scale would hide how each changes.
    """
    figure = Figure(figsize=(3.6 * len(parts), 3.1), layout="constrained")
    axes = figure.subplots(1, len(parts), squeeze=False)[0]
    for axis, (name, values), color in zip(axes, parts.items(), _colors(len(parts)), strict=True):
        axis.plot(examples, values, marker="o", linewidth=1.6, markersize=4, color=color)
        axis.set_title(PARTS.get(name, name), fontsize=10.5, color=INK)
        axis.set_xlabel("examples per class in memory")
        _whole_ticks(axis, examples)
        low, high = min(values), max(values)
        if high - low < 2:  # little more than noise: let it look flat
            middle = (high + low) / 2
            axis.set_ylim(middle - 1, middle + 1)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("nats per image")
    return figure


def scaling_curves(classes: Sequence[int], bounds: Mapping[str, Sequence[float]]) -> Figure:
    """Negative bound against the number of classes in memory, and what would be optimal: that of the first number of
    classes plus the log of how many more there are, dashed (VMA, figure 5A)."""
    figure = Figure(figsize=(6.2, 4.0), layout="constrained")
    axis = figure.subplots()
    for (name, values), color in zip(bounds.items(), _colors(len(bounds)), strict=True):
        if len(values) != len(classes):
            raise ValueError(f"scaling_curves: expected {len(classes)} bounds of {name}, got {len(values)}")
        axis.plot(
            classes, [-value for value in values], marker="o", linewidth=1.6, markersize=4, color=color, label=name
        )
        optimal = [-values[0] + math.log(number / classes[0]) for number in classes]
        axis.plot(classes, optimal, linestyle="--", linewidth=1.2, color=color)
    axis.plot([], [], linestyle="--", linewidth=1.2, color=INK, label="optimal: + log C")
    _whole_ticks(axis, classes)
    axis.set_xlabel("classes C in memory")
    axis.set_ylabel("negative bound, nats per image")
    axis.legend(frameon=False, fontsize=9)
    axis.spines[["top", "right"]].set_visible(False)
    return figure


def draw_curves(records: Iterable[Mapping[str, Any]], out: Path) -> list[Path]:
    """Both curves from the records of the part "fewshot", for each data set; returns the files."""
    files = []
    by_data: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        by_data.setdefault(str(record["data"]), []).append(record)
    for data, some in by_data.items():
        bounds = {cell[0]: r for r in some if r["metric"] == "bound" and (cell := cell_of(r, "scaling"))}
        if len(bounds) > 1:
            name = str(next(iter(bounds.values()))["experiment"])
            figure = scaling_curves(list(bounds), {name: [r["value"] for r in bounds.values()]})
            files.append(out / f"{data}_scaling.png")
            plots.save(figure, files[-1])
        parts: dict[str, dict[int, float]] = {}
        for record in some:
            if cell := cell_of(record, "breakdown"):
                parts.setdefault(str(record["metric"]), {})[cell[1]] = record["value"]
        shown = {name: list(parts[name].values()) for name in PARTS if name in parts}
        if shown:
            files.append(out / f"{data}_breakdown.png")
            plots.save(kl_curves(list(parts["code_kl"]), shown), files[-1])
    return files


def _class_bands(axis: Any, labels: Tensor) -> None:
    """A band behind the slots of every second class."""
    starts = [0, *(labels.diff().nonzero().squeeze(-1) + 1).tolist(), len(labels)]
    for number, (start, end) in enumerate(itertools.pairwise(starts)):
        axis.axvspan(start - 0.5, end - 0.5, color=BANDS[number % 2], linewidth=0, zorder=0)


def _show(axis: Any, image: Tensor, title: str) -> None:
    pixels = image.float().clamp(0, 1).numpy()
    shown = pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0)
    axis.imshow(shown, cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
    axis.set_xticks([])
    axis.set_yticks([])
    axis.spines[:].set_color("#c9ced4")
    axis.set_title(title, fontsize=10, color=INK)


def _whole_ticks(axis: Any, numbers: Sequence[int]) -> None:
    axis.set_xscale("log")
    axis.set_xticks(list(numbers), [str(number) for number in numbers])
    axis.minorticks_off()


def _colors(number: int) -> list[str]:
    return [SERIES[at % len(SERIES)] for at in range(number)]
