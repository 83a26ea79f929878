"""Figures. Everything draws on its own Figure object, so no window and no global state is touched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

from mnemon.core.state import atomic_path

INK = "#1b1f24"
SERIES = ("#2a6f97", "#e07a1f", "#7a7f87")
MARKERS, COLOURS = "o^sD", 10
CLOSEST = 8
"""Marks on an axis are one part in so many of it apart at least."""


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
    """Rows of small images, each with its name at the left. Images (n, h, w) in [0, 1], ink is 1, or (n, h, w, 3)."""
    height, width = rows[0][1].shape[1:3]
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
    """Lines with markers, on logarithmic x, which is marked where something was measured; where colours come round
    again, other markers."""
    for number, (name, (x, y)) in enumerate(series.items()):
        marker = MARKERS[number // COLOURS % len(MARKERS)]
        axis.plot(x, y, f"C{number % COLOURS}", marker=marker, linewidth=1.6, markersize=4, label=name)
    axis.set_xscale("log")
    places = _apart(sorted({place for x, _ in series.values() for place in x if place > 0}))
    if len(places) > 1:
        axis.set_xticks(places, [f"{place:,g}" for place in places])
        axis.minorticks_off()
    axis.set_xlabel(xlabel)
    axis.set_ylabel(ylabel)
    axis.legend(frameon=False, fontsize=9)
    axis.spines[["top", "right"]].set_visible(False)


def _apart(places: list[float]) -> list[float]:
    """Of ordered places those whose labels do not touch on a logarithmic axis."""
    kept = places[:1]
    for place in places[1:]:
        if (place / kept[-1]) ** CLOSEST >= places[-1] / places[0]:
            kept.append(place)
    return kept


def one_legend(figure: Figure) -> None:
    """The names of all curves at the side, once, in place of a legend in every panel, in a constrained layout."""
    names: dict[str, Any] = {}
    for axis in figure.axes:
        for handle, name in zip(*axis.get_legend_handles_labels(), strict=True):
            names.setdefault(name, handle)
        if (legend := axis.get_legend()) is not None:
            legend.remove()
    figure.legend(names.values(), names, loc="outside right center", frameon=False, fontsize=8)


def save_image(image: Tensor, path: Path) -> None:
    """One image as it is, a pixel a pixel. Shapes: (C, H, W) in [0, 1]"""
    pixels = _pixels(image[None])[0]
    with atomic_path(path) as temporary:
        Image.fromarray(pixels).save(temporary, format="PNG")


def save_grid(images: Tensor, path: Path, *, scale: int = 2, gap: int = 2) -> None:
    """Images side by side. Shapes: (n, C, H, W) in about a square, or (rows, columns, C, H, W)"""
    if images.ndim == 4:
        columns = max(1, round(len(images) ** 0.5))
        rows = -(-len(images) // columns)
        blank = images.new_ones((rows * columns - len(images), *images.shape[1:]))
        images = torch.cat((images, blank)).unflatten(0, (rows, columns))
    with atomic_path(path) as temporary:
        Image.fromarray(tile(images, scale=scale, gap=gap)).save(temporary, format="PNG")


def save_rows(rows: Mapping[str, Tensor], path: Path) -> None:
    """Named rows of images as a figure. Shapes: (n, C, H, W) each"""
    count = max(len(images) for images in rows.values())
    names = 0.75 + 0.085 * max(map(len, rows))
    figure = Figure(figsize=(names + 0.62 * count, 0.75 * len(rows) + 0.2), layout="constrained")
    axis = figure.subplots()
    image_rows(axis, [(name, _pixels(images) / 255) for name, images in rows.items()])
    axis.set_anchor("E")  # names stand at the left
    save(figure, path)


def tile(images: Tensor, *, scale: int = 2, gap: int = 2) -> np.ndarray:
    """One picture of a table of images on white. Shapes: (rows, columns, C, H, W) -> uint8 (H', W') or (H', W', 3)"""
    rows, columns = images.shape[:2]
    pixels = _pixels(images.flatten(0, 1)).repeat(scale, axis=1).repeat(scale, axis=2)
    height, width = pixels.shape[1:3]
    sheet = np.full((rows * (height + gap) + gap, columns * (width + gap) + gap, *pixels.shape[3:]), 255, np.uint8)
    for number, image in enumerate(pixels):
        top, left = gap + number // columns * (height + gap), gap + number % columns * (width + gap)
        sheet[top : top + height, left : left + width] = image
    return sheet


def _pixels(images: Tensor) -> np.ndarray:
    """Shapes: (n, C, H, W) -> uint8 (n, H, W) or (n, H, W, 3)"""
    array = (images.detach().cpu().float().clamp(0, 1) * 255).round().byte().numpy()
    return array[:, 0] if array.shape[1] == 1 else array.transpose(0, 2, 3, 1)
