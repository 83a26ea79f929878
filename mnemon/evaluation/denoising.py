"""Denoising by iterative reads: the error that is left, against the level of the noise. K++, 4.1 and figure 6."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from matplotlib.figure import Figure
from torch import Tensor

from mnemon import plots
from mnemon.core.random import stream
from mnemon.data.corruptions import corrupt
from mnemon.evaluation.experiments import Evaluation
from mnemon.evaluation.likelihood import TestSet
from mnemon.evaluation.recall import RECALL, recall_errors, successive_reads
from mnemon.models.codec_model import CodecModel
from mnemon.plots import INK

READS = 10
LEVELS: dict[str, tuple[float, ...]] = {
    "salt_and_pepper": (0.05, 0.1, 0.2, 0.3, 0.4),
    "speckle": (0.2, 0.4, 0.6, 0.8, 1.0),
    "poisson": (0.1, 0.2, 0.4, 0.6, 0.8),
}
"""Noise and its levels, as `mnemon.data.corruptions` defines them; those of the paper are not given."""
SHOWN = 10
_NOTE = re.compile(r"denoise: (\w+), level ([\d.]+); (\d+) reads?")


class Point(NamedTuple):
    """What a record of the part "denoise" was measured at; 0 reads is the noisy image itself."""

    noise: str
    level: float
    reads: int

    def note(self) -> str:
        return f"denoise: {self.noise}, level {self.level:g}; {self.reads} read{'s' * (self.reads != 1)}"


def point_of(record: Mapping[str, Any]) -> Point | None:
    found = _NOTE.fullmatch(record["note"] or "")
    return Point(found[1], float(found[2]), int(found[3])) if found else None


def denoise(evaluation: Evaluation) -> Iterable[dict[str, Any]]:
    """Squared error per pixel of noisy written images: as they are, after one read and after ten."""
    if not evaluation.model.can_write:
        return
    evaluation = evaluation.with_options("denoise")
    batches = max(1, evaluation.num_episodes // 16)
    for noise, levels in LEVELS.items():
        for level in levels:
            found = recall_errors(
                evaluation.model, evaluation.test, noise, level, episode_length=evaluation.length,
                num_batches=batches, reads=READS, seed=evaluation.seed,
            )  # fmt: skip
            measured = {0: found.corrupted, 1: found.reads[0], READS: found.reads[-1]}
            for reads, estimate in measured.items():
                metric = "mse_denoised" if reads else "mse_noisy"
                note = Point(noise, level, reads).note()
                yield evaluation.record(estimate, metric, "per pixel", scored="written", note=note)


def draw_denoising(records: Iterable[Mapping[str, Any]], out: Path) -> list[Path]:
    """The error curves of all experiments among the records, a picture for each data set; returns the files."""
    by_data: dict[str, list[tuple[Point, Mapping[str, Any]]]] = {}
    for record in records:
        if (point := point_of(record)) is not None:
            by_data.setdefault(str(record["data"]), []).append((point, record))
    files = []
    for data, found in by_data.items():
        files.append(out / f"{data}_denoising.png")
        plots.save(error_curves(found), files[-1])
    return files


def error_curves(found: Iterable[tuple[Point, Mapping[str, Any]]]) -> Figure:
    """A panel for each noise: the error after ten reads against its level, and that of the noisy images, dashed."""
    lines: dict[str, dict[str, dict[float, float]]] = {}
    for point, record in found:
        if point.reads in (0, READS):
            name = str(record["experiment"]) if point.reads else "noisy"
            lines.setdefault(point.noise, {}).setdefault(name, {})[point.level] = float(record["value"])
    figure = Figure(figsize=(3.6 * len(lines) + 2.2, 3.4), layout="constrained")
    axes = figure.subplots(1, len(lines), squeeze=False)[0]
    for axis, (noise, curves) in zip(axes, lines.items(), strict=True):
        for name, values in curves.items():
            style = {"color": INK, "linestyle": "--"} if name == "noisy" else {"marker": "o", "markersize": 4}
            axis.plot(list(values), list(values.values()), linewidth=1.6, label=name, **style)
        axis.set_title(noise.replace("_", " "), fontsize=10.5, color=INK)
        axis.set_xlabel("level of the noise")
        axis.set_ylim(bottom=0)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel(f"squared error per pixel, {READS} reads")
    plots.one_legend(figure)
    return figure


@torch.no_grad()
def draw_reads(model: CodecModel, test: TestSet, path: Path, *, length: int, seed: int = 0) -> None:
    """Noisy images of a written episode, and what ten reads make of them (K++, figure 6, right)."""
    x, generator = next(iter(test.batches(length, 1, seed)))
    state = model.write(x, generator=generator)
    rows: dict[str, Tensor] = {"written": x[0, :SHOWN]}
    for noise, levels in LEVELS.items():
        cue, observed = corrupt(noise, x, levels[len(levels) // 2], stream(seed, RECALL, device=str(test.device)))
        reads = successive_reads(model, state, cue, observed, READS)
        name = noise.replace("_", " ")
        rows |= {name: cue[0, :SHOWN], f"{name}, {READS} reads": reads[-1][0, :SHOWN]}
    plots.save_rows(rows, path)
