"""The demo: one memory of a few dozen handwritten digits, and everything that can be asked of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score
from torch import Tensor

from mnemon import plots
from mnemon.memories import MixtureMemory, MixtureState
from mnemon.memories.variances import choose_variances

WRITTEN_CLASSES = (0, 1, 2, 3, 4, 5)
PER_CLASS = 10
NOISE = 0.3
SIDE = 8
READS = 20


@dataclass(frozen=True)
class Digits:
    """scikit-learn's 8 x 8 digits as vectors in [0, 1], split into what is written and what is not.

    Shapes: (n, 64) each
    """

    written: Tensor
    same_classes: Tensor
    unseen_classes: Tensor

    @classmethod
    def load(cls, seed: int) -> Digits:
        data = load_digits()
        images, labels = torch.tensor(data.data / 16, dtype=torch.float32), torch.tensor(data.target)
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
        images, labels = images[order], labels[order]
        written, rest = [], []
        for digit in WRITTEN_CLASSES:
            of_class = images[labels == digit]
            written.append(of_class[:PER_CLASS])
            rest.append(of_class[PER_CLASS:])
        unseen = images[~torch.isin(labels, torch.tensor(WRITTEN_CLASSES))]
        return cls(torch.cat(written), torch.cat(rest), unseen)


@dataclass(frozen=True)
class Recall:
    """Mean squared error per pixel of corrupted digits, before and after the memory was asked."""

    noisy: float
    denoised: float
    half_erased: float
    completed: float


@dataclass(frozen=True)
class Report:
    """The demo's numbers."""

    written_items: int
    memory_bytes: int
    image_bytes: int
    noise_var: float
    slot_var: float
    write_ms: float
    read_us_per_item: float
    written: Recall
    same_classes: Recall
    auroc_written: float
    auroc_same_classes: float
    auroc_same_classes_nearest_neighbour: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def run(out: Path, seed: int = 0) -> Report:
    """Write, recall, complete, sample and score; the figure goes to `out`/demo.png."""
    digits = Digits.load(seed)
    generator = torch.Generator().manual_seed(seed)
    memory = MixtureMemory(SIDE * SIDE, 4, 0.02, 0.02, num_clusters=8, location_var=0.1, location_mean=0.3)
    memory = choose_variances(memory, digits.written, num_steps=20, seed=seed)
    state, seconds = _timed(lambda: memory.write(digits.written, num_steps=50, generator=generator).state)
    _, read_seconds = _timed(lambda: memory.recall(state, digits.same_classes))

    rows, written_recall = _recall(memory, state, digits.written, generator)
    _, same_classes_recall = _recall(memory, state, digits.same_classes, generator)
    scores = {
        "written": memory.log_density(state, digits.written),
        "new, of the written classes": memory.log_density(state, digits.same_classes),
        "of classes never written": memory.log_density(state, digits.unseen_classes),
    }
    written_score, same_score, unseen_score = scores.values()
    near, far = (_nearness(images, digits.written) for images in (digits.same_classes, digits.unseen_classes))
    report = Report(
        written_items=len(digits.written),
        memory_bytes=state.nbytes,
        image_bytes=digits.written.nbytes,
        noise_var=float(memory.noise_var),
        slot_var=float(memory.slot_var),
        write_ms=1e3 * seconds,
        read_us_per_item=1e6 * read_seconds / len(digits.same_classes),
        written=written_recall,
        same_classes=same_classes_recall,
        auroc_written=_auroc(written_score, unseen_score),
        auroc_same_classes=_auroc(same_score, unseen_score),
        auroc_same_classes_nearest_neighbour=_auroc(near, far),
    )
    show = torch.randperm(len(digits.written), generator=generator)[:12]
    pictures = {name: images[show] for name, images in rows.items()}
    pictures["generated"] = memory.sample(state, 12, noise=False, generator=generator)
    plots.save(_figure(pictures, scores, state, report), out / "demo.png")
    return report


def _recall(
    memory: MixtureMemory, state: MixtureState, clean: Tensor, generator: torch.Generator
) -> tuple[dict[str, Tensor], Recall]:
    """Denoise and complete; returns the pictures and their errors."""
    noisy = (clean + NOISE * torch.randn(clean.shape, generator=generator)).clamp(0, 1)
    denoised = memory.recall(state, noisy)
    left = (torch.arange(SIDE * SIDE) % SIDE) < SIDE // 2
    erased = torch.where(left, clean, torch.zeros(()))
    completed = torch.where(left, clean, memory.recall(state, clean, observed=left, steps=READS))
    images = {"written": clean, "noisy": noisy, "recalled": denoised, "half erased": erased, "completed": completed}
    return images, Recall(*(_error(images, clean) for images in (noisy, denoised, erased, completed)))


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    began = time.perf_counter()
    value = call()
    return value, time.perf_counter() - began


def _error(images: Tensor, clean: Tensor) -> float:
    return float((images - clean).square().mean())


def _auroc(known: Tensor, novel: Tensor) -> float:
    labels = np.r_[np.ones(len(known)), np.zeros(len(novel))]
    return float(roc_auc_score(labels, torch.cat((known, novel)).numpy()))


def _nearness(images: Tensor, written: Tensor) -> Tensor:
    return -torch.cdist(images, written).min(-1).values


def _figure(pictures: dict[str, Tensor], scores: dict[str, Tensor], state: MixtureState, report: Report) -> Figure:
    figure = Figure(figsize=(13, 5.3), layout="constrained")
    figure.suptitle(
        f"One memory of {report.written_items} digits, written in {report.write_ms:.0f} ms",
        fontsize=14,
        color=plots.INK,
    )
    axes = figure.subplot_mosaic(
        [["rows", "inside"], ["rows", "scores"]], width_ratios=(1.5, 1), height_ratios=(1, 1.3)
    )
    rows = [(name, images.clamp(0, 1).reshape(-1, SIDE, SIDE).numpy()) for name, images in pictures.items()]
    plots.image_rows(axes["rows"], rows)
    slots = [
        (f"cluster {h + 1}", torch.cat((state.mu_b[h : h + 1], 0.5 + state.R[h] / (2 * state.R[h].abs().max()))))
        for h in range(3)
    ]
    plots.image_rows(axes["inside"], [(name, images.reshape(-1, SIDE, SIDE).numpy()) for name, images in slots])
    axes["inside"].set_title("inside: location b, then the rows of M", fontsize=11, color=plots.INK)
    plots.score_histograms(
        axes["scores"], {name: value.numpy() for name, value in scores.items()}, xlabel="log p(x | memory), nats"
    )
    axes["scores"].set_title(
        f"told from classes never written: AUROC {report.auroc_written:.2f}\n"
        f"for the written digits, {report.auroc_same_classes:.2f} for new ones of their classes",
        fontsize=11,
        color=plots.INK,
    )
    return figure
