"""Sweeps replayed as CUDA graphs.

A write is hundreds of small kernels, and on a GPU launching them takes ten times longer than running them. Their
sequence depends on shapes alone, so it is captured once, forward and backward, and replayed as one launch.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from mnemon.core.checks import is_transformed


class WriteGraphs:
    """Captured writes, by memory, shapes and number of sweeps. Give one to `LatentMemory.write(graphs=)`.

    The state and address of a replayed write live in the graph's own memory: the next write of the same shape
    overwrites them, so call backward (or copy) before it. That is what a training step does. Matrices that need
    jitter get a fixed one here, since a graph cannot branch. Anything a graph cannot do is written as usual.
    """

    def __init__(self) -> None:
        self._graphs: dict[Hashable, tuple[Callable[..., tuple[Tensor, ...]], Any]] = {}

    def fits(self, arguments: Any, settings: Any) -> bool:
        """Whether the arguments are on a GPU and want a gradient, while the memory's own settings want none."""
        tensors = _tensors(arguments)
        return (
            torch.is_grad_enabled()
            and not (torch.compiler.is_compiling() or is_transformed())
            and all(t.device.type == "cuda" for t in tensors)
            and any(t.requires_grad for t in tensors)
            and not any(t.requires_grad for t in _tensors(settings))
        )

    def run(self, key: Hashable, write: Callable[..., Any], *arguments: Any) -> Any:
        """`write(*arguments)`, replayed from the graph captured when it was first called with this key."""
        tensors, spec = pytree.tree_flatten(arguments)
        shapes = tuple((tuple(t.shape), t.dtype, t.device, t.requires_grad) for t in tensors)
        key = (key, shapes)
        if key not in self._graphs:
            self._graphs[key] = self._capture(write, tensors, spec)
        replay, result_spec = self._graphs[key]
        return pytree.tree_unflatten(list(replay(*tensors)), result_spec)

    @staticmethod
    def _capture(write: Callable[..., Any], tensors: list[Tensor], spec: Any) -> tuple[Any, Any]:
        result_specs: list[Any] = []

        def flat(*leaves: Tensor) -> tuple[Tensor, ...]:
            results, result_spec = pytree.tree_flatten(write(*pytree.tree_unflatten(list(leaves), spec)))
            result_specs.append(result_spec)
            return tuple(results)

        # contiguous copies: a graph's inputs are written into, which expanded tensors do not allow
        samples = tuple(
            t.detach().clone(memory_format=torch.contiguous_format).requires_grad_(t.requires_grad) for t in tensors
        )
        replay = torch.cuda.make_graphed_callables(flat, samples, allow_unused_input=True)
        return replay, result_specs[-1]


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]
