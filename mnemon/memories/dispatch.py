"""How the sweeps of a write are carried out: as a CUDA graph, in threads, or plainly. The result is the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from torch import Tensor

from mnemon.memories.frames import Frames
from mnemon.memories.graphs import WriteGraphs
from mnemon.memories.parallel import join, num_parts, write_parts

Sweep = Callable[[Frames, Any, Any], tuple[Any, Any, Tensor | None]]


def run_sweeps(
    sweep: Sweep, memory: Any, frames: Frames, prior: Any, start: Any, graphs: WriteGraphs | None, key: tuple[Any, ...]
) -> tuple[Any, Any, Tensor | None]:
    """`sweep(frames, prior, start)`; `key` is what it depends on beside these and the memory's settings."""
    settings = [getattr(memory, field.name) for field in dataclasses.fields(memory)]
    if graphs is not None and graphs.fits((frames, prior, start), settings):
        return graphs.run((type(memory), *map(_hyperparameter, settings), *key), sweep, frames, prior, start)
    parts = num_parts(frames, prior, start, settings)
    if parts == 1:
        return sweep(frames, prior, start)
    states, addresses, traces = zip(*write_parts(sweep, frames, prior, start, parts), strict=True)
    return join(states), join(addresses), join(traces, dim=1)


def _hyperparameter(value: Any) -> Any:
    """What tells one captured write from another: numbers by value, tensors by identity."""
    return id(value) if isinstance(value, Tensor) else value
