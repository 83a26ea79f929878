"""Sweeps replayed as CUDA graphs.

A write is hundreds of small kernels, and on a GPU launching them takes ten times longer than running them. Their
sequence depends on shapes alone, so it is captured once, with its backward if one is wanted, and replayed as one
launch.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from mnemon.core.checks import is_transformed

_capturable = ContextVar("_capturable", default=False)


class Uncapturable(RuntimeError):
    """What comes next depends on a value on the device, which a graph cannot wait for."""


def deciding(value: Tensor) -> int:
    """A number that decides which kernels come next; `Uncapturable` where they are to be captured."""
    if _capturable.get():
        raise Uncapturable("the sequence of kernels depends on a value, not on shapes alone")
    return int(value)


class WriteGraphs:
    """Captured writes, by memory, shapes and number of sweeps. Give one to `LatentMemory.write(graphs=)`.

    The state and address of a replayed write live in the graph's own memory: the next write of the same shape
    overwrites them, so call backward (or copy) before it. That is what a training step does. Matrices that need
    jitter get a fixed one here, since a graph cannot branch. Anything a graph cannot do is written as usual.
    """

    def __init__(self) -> None:
        self._graphs: dict[Hashable, tuple[Any, Any, list[bool]]] = {}

    def fits(self, arguments: Any, settings: Any) -> bool:
        """Whether the arguments are on a GPU, and the memory's own settings want no gradient."""
        return (
            not (torch.compiler.is_compiling() or is_transformed())
            and all(t.device.type == "cuda" for t in _tensors(arguments))
            and not any(t.requires_grad for t in _tensors(settings))
        )

    def run(self, key: Hashable, write: Callable[..., Any], *arguments: Any) -> Any:
        """`write(*arguments)`, replayed from the graph captured when it was first called with this key."""
        tensors, spec = pytree.tree_flatten(arguments)
        wants = torch.is_grad_enabled()
        tensors = [t if wants else t.detach() for t in tensors]
        shapes = tuple((tuple(t.shape), t.dtype, t.device, t.requires_grad) for t in tensors)
        key = (key, shapes)
        if key not in self._graphs:
            self._graphs[key] = _capture(write, tensors, spec)
        replay, result_spec, absent = self._graphs[key]
        results = iter(replay(*tensors))
        return pytree.tree_unflatten([None if gone else next(results) for gone in absent], result_spec)


def _capture(write: Callable[..., Any], tensors: list[Tensor], spec: Any) -> tuple[Any, Any, list[bool]]:
    """The graphed callable on plain tensors, and how to put its results together again (None has no tensor)."""
    result_spec, absent = None, [False]

    def flat(*leaves: Tensor) -> tuple[Tensor, ...]:
        nonlocal result_spec, absent
        results, result_spec = pytree.tree_flatten(write(*pytree.tree_unflatten(list(leaves), spec)))
        absent = [result is None for result in results]
        return tuple(result for result in results if result is not None)

    # contiguous copies: a graph's inputs are written into, which expanded tensors do not allow
    samples = tuple(
        t.detach().clone(memory_format=torch.contiguous_format).requires_grad_(t.requires_grad) for t in tensors
    )
    with capturable():
        replay = torch.cuda.make_graphed_callables(flat, samples, allow_unused_input=True)
    return replay, result_spec, absent


@contextmanager
def capturable() -> Iterator[None]:
    """Nothing in here does what is not allowed while a graph is captured; `deciding` refuses.

    Without MAGMA, which torch may choose for batches: it waits for the device. Without the garbage collector, which
    may come upon an earlier graph and destroy it.
    """
    before = torch.backends.cuda.preferred_linalg_library()
    torch.backends.cuda.preferred_linalg_library("cusolver")
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    token = _capturable.set(True)
    try:
        yield
    finally:
        _capturable.reset(token)
        if collecting:
            gc.enable()
        torch.backends.cuda.preferred_linalg_library(before)


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]
