"""Pictures of a memory: the episode, samples, iterative reading, memories of one image each, and the memory itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from mnemon import plots
from mnemon.core.random import stream
from mnemon.evaluation.fewshot import fewshot_episodes
from mnemon.evaluation.fewshot_bounds import fitting
from mnemon.evaluation.fewshot_pictures import address_histogram, one_shot_table
from mnemon.evaluation.likelihood import TestSet
from mnemon.memories.slots import ItemState
from mnemon.models.addressing import AddressingModel
from mnemon.models.codec_model import CodecModel
from mnemon.models.kanerva_pp import KanervaPlusPlus
from mnemon.models.reading import iterate, nearest
from mnemon.models.slot_model import SlotModel

PICTURES = 14
SHOWN = 64
"""Images of an episode, and samples, that are shown."""
READERS, READS = 8, 12


@torch.no_grad()
def draw_all(
    model: CodecModel, test: TestSet, out: Path, *, length: int, num_clusters: int | None = None, seed: int = 0
) -> list[Path]:
    """Write a test episode and draw it into `out`, in up to six pictures; returns the files. Of a learned memory, which
    cannot be written: its most used slots, in two. Of Kanerva++ also what is read beside the keys of some images (K++,
    figure 7)."""
    generator = stream(seed, PICTURES, device=str(test.device))
    order = torch.randperm(len(test.data), generator=stream(seed, PICTURES))[:length]
    episode = test.draw(order, generator)
    if isinstance(model, SlotModel) and not model.can_write:
        return draw_learned(model, episode, out, generator)
    options: dict[str, Any] = {} if num_clusters is None else {"num_clusters": num_clusters}
    state = model.write(episode, generator=generator, **options)
    files = [out / f"{name}.png" for name in ("episode", "samples", "iterative", "one_shot")]
    plots.save_grid(episode[:SHOWN], files[0])
    plots.save_grid(model.sample(state, SHOWN, generator=generator), files[1])
    chains = iterate(model, state, READERS, READS, generator=generator)
    plots.save_grid(with_neighbours(chains, episode), files[2])
    shown = episode[:READERS]
    each = model.write(shown[:, None], generator=generator)
    plots.save_grid(one_shot_table(shown, model.sample(each, READS, generator=generator)), files[3])
    if isinstance(model, KanervaPlusPlus):
        files.append(out / "perturbed.png")
        around = model.perturbed(state, shown, READS, generator=generator)
        plots.save_grid(one_shot_table(shown, around), files[-1])
    others = {"memory": memory_picture(state), "addresses": address_picture(model, test, seed=seed)}
    for name, picture in others.items():
        if picture is not None:
            files.append(out / f"{name}.png")
            plots.save(picture, files[-1])
    return files


def draw_learned(model: SlotModel, images: Tensor, out: Path, generator: torch.Generator) -> list[Path]:
    """Samples from a learned memory; then rows of samples from one slot each, of the slots that the images are found in
    most (VMA, figure 2B); where addresses are not inferred, of the first slots."""
    state = model.prior_state()
    files = [out / f"{name}.png" for name in ("samples", "slots")]
    plots.save_grid(model.sample(state, SHOWN, generator=generator), files[0])
    rows = torch.arange(min(READERS, state.num_slots), device=images.device)
    if isinstance(model, AddressingModel):
        rows = model.address(state, images).log_probs().exp().mean(0).topk(len(rows)).indices
    each = ItemState(state.items[rows, None], state.keys[rows, None])
    plots.save_grid(model.sample(each, READS, generator=generator), files[1])
    return files


def with_neighbours(chains: Tensor, episode: Tensor) -> Tensor:
    """Chains of reads, a white column, and the written image nearest to each last read (figure 4 of VBM).

    Shapes: (n, steps, *X), (T, *X) -> (n, steps + 2, *X)
    """
    closest = episode[nearest(chains[:, -1], episode)]
    return torch.cat((chains, torch.ones_like(closest)[:, None], closest[:, None]), dim=1)


@torch.no_grad()
def address_picture(model: CodecModel, test: TestSet, *, targets: int = 3, seed: int = 0) -> Figure | None:
    """q(a | x) of unwritten test images over a memory of 8 classes with 10 examples each (figure 3 of VMA).

    None for models without such an address, and for test images without classes enough.
    """
    classes, examples = fitting(test.data, range(targets, 9), range(1, 11))
    if not isinstance(model, AddressingModel) or model.contents is not None or not classes or not examples:
        return None
    sizes = {"ways": classes[-1], "shots": examples[-1], "queries": 1, "num_episodes": 1}
    drawn = fewshot_episodes(test.data, seed=seed, **sizes)
    generator = stream(seed, PICTURES, device=str(test.device))
    memory = test.draw(drawn.support.flatten(), generator)
    shown = test.draw(drawn.queries.flatten()[:targets], generator)
    weights = model.address(model.write(memory), shown).log_probs().exp()
    labels = torch.arange(classes[-1]).repeat_interleave(examples[-1])
    return address_histogram(weights, memory, shown, labels=labels)


def memory_picture(state: Any) -> Figure | None:
    """The rows of every R_h below one another (figure 5 of VBM), and b_h beside them. None without slots."""
    if not hasattr(state, "R"):
        return None
    rows = state.R.detach().cpu().float()
    if rows.ndim == 4:  # a tree: segments side by side make whole codes again
        rows = torch.cat(list(rows), dim=-1)
    matrix = rows.flatten(0, -2).numpy()
    limit = float(np.quantile(np.abs(matrix), 0.995)) or 1.0
    figure = Figure(figsize=(6.4, min(9.0, 2.2 + len(matrix) / 90)), layout="constrained")
    axis = figure.subplots()
    image = axis.imshow(matrix, aspect="auto", cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="nearest")
    axis.set_xlabel("code dimension")
    per_cluster = f", {rows.shape[-2]} of each of {rows.shape[0]} clusters" if rows.ndim == 3 else ""
    axis.set_ylabel(f"rows of the memory's mean{per_cluster}")
    figure.colorbar(image, ax=axis, shrink=0.7)
    return figure
