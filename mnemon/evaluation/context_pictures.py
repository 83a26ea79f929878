"""Pictures of the thesis: a latent plane, the space of contexts, generated sets, and the course of a training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from mnemon import plots
from mnemon.core.random import stream
from mnemon.data.factors import FactorEpisodes, check_factors
from mnemon.data.synthetic import FAMILIES
from mnemon.evaluation.context_space import EmbeddedSets, embed_sets
from mnemon.evaluation.likelihood import TestSet
from mnemon.models.codec_model import CodecModel
from mnemon.models.context_aware import ContextAwareLearner
from mnemon.models.statistician import Statistician
from mnemon.models.vae import VAE
from mnemon.plots import INK
from mnemon.training.config import StageConfig
from mnemon.training.schedules import BoundWeights, bound_weights

PICTURES = 24
"""The random stream of this file."""
GRID, REACH = 15, 2.5
"""Points of the latent plane on a side, and how far it goes. Thesis, 4.4.2"""
SHOWN_SETS, SHOWN_ITEMS = 10, 10
TERMS = ("loss", "joint", "reconstruction", "code_kl", "address_kl", "memory_kl", "choice_kl", "agreement")


@torch.no_grad()
def draw_contexts(model: CodecModel, test: TestSet, out: Path, *, length: int, seed: int = 0) -> list[Path]:
    """What the thesis shows of this kind of model; nothing for other kinds. Returns the files."""
    if isinstance(model, VAE) and model.codec.code_dim == 2:
        return _save(out, {"latent_plane": latent_plane(model, test)}, {"latent_grid": latent_grid(model)})
    if isinstance(model, ContextAwareLearner):
        return _save(out, {}, set_grids(model, test, length=length, seed=seed))
    if isinstance(model, Statistician) and test.data.groups is not None and test.data.image_shape[1:] == (1, 1):
        return _save(out, {"contexts": context_panels(embed_sets(model, test, set_size=length))}, {})
    return []


def _save(out: Path, figures: Mapping[str, Figure], grids: Mapping[str, Tensor]) -> list[Path]:
    for name, figure in figures.items():
        plots.save(figure, out / f"{name}.png")
    for name, images in grids.items():
        plots.save_grid(images, out / f"{name}.png")
    return [out / f"{name}.png" for name in (*figures, *grids)]


@torch.no_grad()
def latent_plane(model: VAE, test: TestSet, limit: int = 5000) -> Figure:
    """Test images by the mean of q(z | x), coloured by class. Thesis, figure 4.3"""
    index = torch.randperm(len(test.data), generator=stream(0, PICTURES))[:limit]
    codes = model.codec.encode(test.draw(index, stream(0, PICTURES, device=str(test.device)))).mean.cpu().numpy()
    figure = Figure(figsize=(6.2, 5.6), layout="constrained")
    axis = figure.subplots()
    labels = np.zeros(len(index)) if test.data.labels is None else test.data.labels.cpu()[index].numpy()
    axis.scatter(codes[:, 0], codes[:, 1], c=labels, cmap="tab10", s=4, linewidths=0)
    for label in np.unique(labels):
        x, y = codes[labels == label].mean(0)
        axis.text(x, y, f"{label:.0f}", fontsize=13, color=INK, ha="center", va="center", weight="bold")
    _clean(axis, "first number of the code", "second")
    return figure


@torch.no_grad()
def latent_grid(model: VAE) -> Tensor:
    """Images of codes on a square grid, the second number growing upwards. Shapes: -> (15, 15, *X)"""
    steps = torch.linspace(-REACH, REACH, GRID, device=model._like.device, dtype=model._like.dtype)
    down, across = torch.meshgrid(steps.flip(0), steps, indexing="ij")
    return model.codec.image(torch.stack((across, down), -1))


def context_panels(sets: EmbeddedSets) -> Figure:
    """Contexts in their two main directions, by family, mean and variance. Thesis, figures 5.3 and 5.4"""
    centred = sets.contexts - sets.contexts.mean(0)
    directions = torch.linalg.svd(centred, full_matrices=False).Vh[:2]
    places = (centred @ directions.T).numpy()
    if places.shape[1] == 1:
        places = np.concatenate((places, np.zeros_like(places)), 1)
    figure = Figure(figsize=(13, 4.2), layout="constrained")
    axes = figure.subplots(1, 3)
    for number, name in enumerate(FAMILIES):
        mine = (sets.family == number).numpy()
        axes[0].scatter(*places[mine].T, s=7, linewidths=0, label=name)
    axes[0].legend(frameon=False, fontsize=9, markerscale=3, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.15),
                   columnspacing=1.0, handletextpad=0.2)  # fmt: skip
    for axis, name in zip(axes[1:], ("mean", "variance"), strict=True):
        drawn = axis.scatter(*places.T, c=getattr(sets, name).numpy(), s=7, linewidths=0, cmap="viridis")
        figure.colorbar(drawn, ax=axis, shrink=0.8)
    for axis, title in zip(axes, ("family", "mean of the set", "variance of the set"), strict=True):
        axis.set_title(title, fontsize=10.5, color=INK)
        _clean(axis, "first direction", "second")
    return figure


def set_grids(model: ContextAwareLearner, test: TestSet, *, length: int, seed: int = 0) -> dict[str, Tensor]:
    """Rows of sets: from the prior under every allowed pattern (6.3), under the others (6.6), given a set (6.4), of two
    sets (6.7); what varies settled. Given sets stand at the left, a white column between.

    Shapes: -> (rows, columns, *X) each
    """
    generator = stream(seed, PICTURES, device=str(test.device))
    options: dict[str, Any] = {"settled": True, "generator": generator}
    every = model.patterns.new_tensor([[0.0] * model.num_contexts, [1.0] * model.num_contexts])
    grids = {}
    for name, patterns in (("sets", model.patterns[:2]), ("unseen_patterns", every)):
        halves = [
            model.sample_sets(
                model.prior_state((SHOWN_SETS,)), SHOWN_ITEMS, constant=p.expand(SHOWN_SETS, -1), **options
            )
            for p in patterns
        ]
        grids[name] = beside(*halves)
    drawn = FactorEpisodes(max(2, length), SHOWN_SETS).epoch(test.data, seed=seed, epoch=0)
    check_factors(test.data, "set_grids")
    x = test.draw(drawn.index[0], generator)
    state = model.write(x)
    likely = model.patterns[state.log_choice.argmax(-1)]
    again = model.sample_sets(state, SHOWN_ITEMS, constant=likely, at_mean=True, **options)
    grids["given_sets"] = beside(x[:, :SHOWN_ITEMS], again)
    rows = [int((likely[:, k] > 0).float().argmax()) for k in range(2)]
    states, own = [state[row : row + 1] for row in rows], [likely[row : row + 1] for row in rows]
    mixed, together = model.combine(states, own)
    every_row = torch.zeros(SHOWN_SETS, dtype=torch.int64, device=x.device)
    made = model.sample_sets(mixed[every_row], SHOWN_ITEMS, constant=together[every_row], at_mean=True, **options)
    given = x[rows][:, :SHOWN_ITEMS]
    blank = torch.ones_like(made[:, : SHOWN_ITEMS - given.shape[1]])[:2]
    grids["synthesis"] = torch.cat((torch.cat((given, blank), 1), torch.ones_like(made[:1]), made))
    return grids


def beside(*parts: Tensor) -> Tensor:
    """Tables of images side by side, white columns between them. Shapes: (rows, n, *X) each -> (rows, columns, *X)"""
    pieces: list[Tensor] = []
    for part in parts:
        pieces += [torch.ones_like(part[:, :1]), part]
    return torch.cat(pieces[1:], 1)


class Curves(NamedTuple):
    """One panel: lines by what they are, as epochs and values."""

    title: str
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]]
    logarithmic: bool = False


def training_curves(records: Sequence[Mapping[str, Any]], stages: Sequence[StageConfig] = ()) -> Figure | None:
    """What is maximised, terms of the bound per epoch in training and validation, the agreement of a, and with the
    stages how they weighed the terms, and their temperature. From the metrics of a run; None where none of the terms
    is in it. Thesis, figure 6.8"""
    panels = [_term_curves(records, name) for name in TERMS if any(record.get(name) for record in records)]
    if not panels:
        return None
    panels += schedule_curves(records, stages)
    columns = min(4, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(3.0 * columns, 2.6 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis in axes[len(panels) :]:
        axis.remove()
    for axis, panel in zip(axes, panels, strict=False):
        for (label, (epochs, values)), style in zip(panel.lines.items(), ("-", "--", ":"), strict=False):
            axis.plot(epochs, values, style, linewidth=1.5, label=label)
        if panel.logarithmic:
            axis.set_yscale("log")
            axis.legend(frameon=False, fontsize=9)
        axis.set_title(panel.title, fontsize=10.5, color=INK)
        _clean(axis, "epoch", "")
    figure.axes[0].legend(frameon=False, fontsize=9)
    return figure


def _term_curves(records: Sequence[Mapping[str, Any]], name: str) -> Curves:
    lines = {}
    for kind in ("train", "validation"):
        mine = [r for r in records if r["kind"] == kind and name in r and r["epoch"]]
        lines[kind] = [r["epoch"] for r in mine], [r[name] for r in mine]
    return Curves(name.replace("_", " "), lines)


def schedule_curves(records: Sequence[Mapping[str, Any]], stages: Sequence[StageConfig]) -> list[Curves]:
    """How the stages weighed the parts of the bound in the middle of each epoch that was trained, and the temperature
    of relaxed choices; nothing where nothing was weighed."""
    epochs: list[float] = []
    found: list[BoundWeights] = []
    before: dict[int, int] = {}
    for record in records:
        if record["kind"] != "train" or not record["epoch"] or record["stage"] >= len(stages):
            continue
        begun = before.setdefault(record["stage"], record["epoch"] - 1)
        epochs.append(record["epoch"])
        found.append(bound_weights(stages[record["stage"]], record["epoch"] - begun - 0.5))
    panels = []
    numbers = [[float(part) for part in (w.reconstruction, w.latent, w.choice)] for w in found]
    if any(number != 1.0 for row in numbers for number in row):
        names = ("reconstruction", "other latents", "a")
        lines = {name: (epochs, [row[at] for row in numbers]) for at, name in enumerate(names)}
        panels.append(Curves("weights in the loss", lines, logarithmic=True))
    warm = [(epoch, w.temperature) for epoch, w in zip(epochs, found, strict=True) if w.temperature is not None]
    if warm:
        panels.append(Curves("temperature", {"temperature": ([e for e, _ in warm], [t for _, t in warm])}))
    return panels


def _clean(axis: Any, xlabel: str, ylabel: str) -> None:
    axis.set_xlabel(xlabel)
    axis.set_ylabel(ylabel)
    axis.spines[["top", "right"]].set_visible(False)
