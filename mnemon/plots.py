"""Figures. Everything draws on its own Figure object, so no window and no global state is touched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure

from mnemon.core.state import atomic_path

INK = "#1b1f24"
SERIES = ("#2a6f97", "#e07a1f", "#7a7f87")


def save(figure: Figure, path: Path) -> None:
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format=path.suffix.lstrip("."), dpi=130, facecolor="white")


def heatmaps(panels: Mapping[str, Mapping[tuple[int, int], float]], *, columns: int, title: str, note: str) -> Figure:
    """Grids of ratios on one colour scale, each cell with its number. Keys of a panel: (slots, code size)."""
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(4.1 * columns + 0.6, 3.5 * rows + 1.1), layout="constrained")
    figure.suptitle(title, fontsize=13, color=INK)
    axes = figure.subplots(rows, columns, squeeze=False).flat
    values = [value for panel in panels.values() for value in panel.values()]
    low, high = min(0.95, *values), max(1.5, *values)
    norm = TwoSlopeNorm(0.0, np.log(low), np.log(high))
    for axis, (name, panel) in zip(axes, panels.items(), strict=False):
        slots, dims = (sorted({cell[i] for cell in panel}) for i in (0, 1))
        grid = np.array([[panel[k, c] for c in dims] for k in slots])
        axis.imshow(np.log(grid), norm=norm, cmap="PuOr_r", aspect="auto")
        for i, j in np.ndindex(grid.shape):
            dark = abs(float(norm(np.log(grid[i, j]))) - 0.5) > 0.3
            axis.text(j, i, f"{grid[i, j]:.2f}", ha="center", va="center", fontsize=9, color="white" if dark else INK)
        axis.set_title(name, fontsize=10.5, color=INK)
        axis.set_xticks(range(len(dims)), dims)
        axis.set_yticks(range(len(slots)), slots)
        axis.set_xlabel("code size C")
        axis.set_ylabel("slots K")
        axis.tick_params(length=0)
    figure.supxlabel(note, fontsize=9.5, color=INK)
    return figure


def image_rows(axis: Any, rows: Sequence[tuple[str, np.ndarray]], *, gap: float = 0.25) -> None:
    """Rows of small grey images, each with its name at the left. Images (n, h, w) in [0, 1], ink is 1."""
    height, width = rows[0][1].shape[1:]
    count = max(len(images) for _, images in rows)
    for i, (name, images) in enumerate(rows):
        top = i * (1 + gap)
        for j, image in enumerate(images):
            axis.imshow(
                image, extent=(j * 1.08, j * 1.08 + 1, top + height / width, top), cmap="gray_r", vmin=0, vmax=1,
                interpolation="nearest",
            )  # fmt: skip
        axis.text(-0.25, top + 0.5, name, ha="right", va="center", fontsize=10, color=INK)
    axis.set_xlim(-0.1, count * 1.08)
    axis.set_ylim(len(rows) * (1 + gap), -0.1)
    axis.set_aspect("equal")
    axis.axis("off")


def score_histograms(axis: Any, groups: Mapping[str, np.ndarray], *, xlabel: str) -> None:
    """Outlined histograms of a score for a few groups, on common bins."""
    low = min(np.quantile(v, 0.02) for v in groups.values())
    bins = np.linspace(low, max(v.max() for v in groups.values()), 40)
    for (name, values), color in zip(groups.items(), SERIES, strict=False):
        clipped = np.clip(values, low, None)
        axis.hist(clipped, bins, density=True, histtype="stepfilled", alpha=0.25, color=color)
        axis.hist(clipped, bins, density=True, histtype="step", linewidth=1.8, color=color, label=name)
    axis.set_xlabel(xlabel)
    axis.set_yticks([])
    axis.legend(frameon=False, fontsize=9, loc="upper left")
    axis.spines[["top", "right", "left"]].set_visible(False)


def curves(
    axis: Any, series: Mapping[str, tuple[Sequence[float], Sequence[float]]], *, xlabel: str, ylabel: str
) -> None:
    """Lines with markers, on logarithmic x."""
    for name, (x, y) in series.items():
        axis.plot(x, y, marker="o", linewidth=1.6, markersize=4, label=name)
    axis.set_xscale("log")
    axis.set_xlabel(xlabel)
    axis.set_ylabel(ylabel)
    axis.legend(frameon=False, fontsize=9)
    axis.spines[["top", "right"]].set_visible(False)
