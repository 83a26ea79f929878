"""A picture of a cell for the report: a written episode, damaged cues, what is read from them, and samples."""

from __future__ import annotations

from pathlib import Path

import torch

from mnemon import plots
from mnemon.core.random import stream
from mnemon.data.corruptions import corrupt
from mnemon.evaluation.benchmark.subject import Subject
from mnemon.evaluation.recall import successive_reads

PICTURES = 27
"""The random stream of this file."""
SHOWN = 10
NOISE, ERASED = ("salt_and_pepper", 0.1), ("half", 1.0)
READS = 3


@torch.no_grad()
def draw_cell(subject: Subject, path: Path) -> None:
    """The same frames and cues for all models of a data set."""
    model, test, device = subject.model, subject.tests.some, str(subject.device)
    order = torch.randperm(len(test.data), generator=stream(0, PICTURES))[: subject.length]
    x = test.draw(order, stream(0, PICTURES, device=device))
    state = model.write(x, generator=stream(0, PICTURES, 1, device=device))
    shown = x[:SHOWN]
    rows = {"written": shown}
    for told, then, (name, level) in (("noisy", "read", NOISE), ("erased", "filled", ERASED)):
        cue, observed = corrupt(name, shown, level, stream(0, PICTURES, 2, device=device))
        rows[told] = cue
        rows[then] = successive_reads(model, state, cue, observed, READS)[-1]
    if subject.has("sampling"):
        rows["samples"] = model.sample(state, SHOWN, generator=stream(0, PICTURES, 3, device=device))
    path.parent.mkdir(parents=True, exist_ok=True)
    plots.save_rows(rows, path)
