"""Writing a batch of episodes on several cores.

Sweeps invert many small matrices, and LAPACK takes these one at a time on one core. Episodes are independent,
so on the CPU a batch is dealt out to threads, each running its episodes through all sweeps.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch.utils import _pytree as pytree

from mnemon.core.checks import is_transformed
from mnemon.core.state import State
from mnemon.core.threads import one_thread
from mnemon.memories.frames import Frames

EPISODES_PER_THREAD = 4
"""Fewer than this are not worth a thread."""


def num_parts(frames: Frames, *involved: Any) -> int:
    """Into how many threads to deal a batch; 1 where it does not pay or cannot be done.

    `involved`: everything else that may hold tensors, of which none may want a gradient.
    """
    leading = frames.batch_shape
    if not leading or frames.mean.device.type != "cpu" or torch.compiler.is_compiling() or is_transformed():
        return 1
    tensors = [t for t in pytree.tree_leaves((frames, involved)) if isinstance(t, torch.Tensor)]
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        return 1  # autograd's graph is best built, and run backwards, in one thread
    return max(1, min(torch.get_num_threads(), leading[0] // EPISODES_PER_THREAD))


def write_parts(
    write: Callable[[Frames, Any, Any], Any], frames: Frames, prior: State, start: State, parts: int
) -> list[Any]:
    """Call `write(frames, prior, start)` on each part of the first batch dimension, in threads."""
    whole = torch.arange(frames.batch_shape[0])
    own_prior = prior.batch_shape == frames.batch_shape  # a memory's own prior has no batch: all share it

    def run(index: torch.Tensor) -> Any:
        part = slice(int(index[0]), int(index[-1]) + 1)
        with torch.no_grad():
            return write(frames.map(lambda t: t[part]), prior[part] if own_prior else prior, start[part])

    with one_thread():  # the parts are the parallelism: teams within teams would wait for each other
        return list(_pool(os.getpid(), parts).map(run, whole.chunk(parts)))


@functools.cache
def _pool(process: int, size: int) -> ThreadPoolExecutor:
    """Threads are kept, with the one core they started on. A forked process makes its own."""
    return ThreadPoolExecutor(size, thread_name_prefix="mnemon-write")


def join(parts: Sequence[Any], dim: int = 0) -> Any:
    """Concatenate records, or tensors, of the same structure along a batch dimension."""
    if parts[0] is None:
        return None
    leaves = [pytree.tree_leaves(part) for part in parts]
    joined = [torch.cat(tensors, dim=dim) for tensors in zip(*leaves, strict=True)]
    return pytree.tree_unflatten(joined, pytree.tree_structure(parts[0]))
