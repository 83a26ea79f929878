"""Does this state fit this memory and these codes? Checks that bring both to one batch shape, or say why not."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mnemon.core.checks import check_broadcast, check_codes, common_batch
from mnemon.core.episode import Codes
from mnemon.core.state import State
from mnemon.memories.frames import Frames


def read_frames(
    memory: Any, where: str, state: Any, codes: Tensor | Codes, observed: Tensor | None = None
) -> tuple[Any, Frames]:
    """Check a state and the codes to be read through it, and bring both to one batch shape."""
    memory._check_state(where, state)
    mean = codes.mean if isinstance(codes, Codes) else codes
    check_codes(where, mean, memory.code_dim)
    if observed is not None:
        check_broadcast(f"{where}: observed", observed, mean.shape)
        codes = torch.where(observed.bool(), mean, 0.0)  # absent entries may hold anything, also NaN
    frames = Frames.gather(where, codes, memory.code_dim)
    frames = frames.expand(common_batch(where, state.batch_shape, frames.batch_shape))
    return fit_state(memory, where, state, frames), frames


def fit_state(memory: Any, where: str, state: Any, frames: Frames) -> Any:
    """Check that a state is this memory's and fits the frames, and give it their batch shape."""
    memory._check_state(where, state)
    leading = next(iter(state.tensors().values()))
    if leading.dtype != frames.mean.dtype:
        raise ValueError(
            f"{where}: expected codes of the state's dtype {leading.dtype}, got {frames.mean.dtype}; "
            f"convert with state.to({frames.mean.dtype})"
        )
    if state.batch_shape == frames.batch_shape:
        return state
    try:
        return state.expand(frames.batch_shape)
    except RuntimeError:
        raise ValueError(
            f"{where}: expected a state for episodes of batch {tuple(frames.batch_shape)}, got one of batch "
            f"{tuple(state.batch_shape)}; index it, or give it a batch dimension with state[None]"
        ) from None


def check_address(memory: Any, where: str, address: Any, frames: Frames) -> None:
    if type(address) is not memory.address_class:
        raise ValueError(
            f"{where}: expected a {memory.address_class.__name__}, got a {type(address).__name__}; "
            "use the memory that made this address"
        )
    per_item = next(iter(address.tensors().values()))
    depth = len(address.batch_shape)
    if per_item.shape[depth] != frames.num_items:
        raise ValueError(
            f"{where}: expected addresses of {frames.num_items} items, got {per_item.shape[depth]}; "
            "pass the codes that were written"
        )


def unknown_start(init: str, known: tuple[str, ...]) -> ValueError:
    return ValueError(f"init: expected a state or one of {', '.join(known)}; got {init!r}")


def check_event_shapes(where: str, state: Any, kind: type[State], shapes: dict[str, tuple[int, ...]]) -> None:
    """A state belongs to a memory when its class and the shapes of its tensors do."""
    if type(state) is not kind:
        raise ValueError(
            f"{where}: expected a {kind.__name__}, got a {type(state).__name__}; use the memory that wrote this state"
        )
    for name, shape in shapes.items():
        tensor = getattr(state, name)
        if tensor is None or tuple(tensor.shape[tensor.ndim - len(shape) :]) != shape:
            got = None if tensor is None else tuple(tensor.shape)
            raise ValueError(
                f"{where}: expected {name} (*B, {', '.join(map(str, shape))}), got {got}; "
                "this state was written by a memory of another size"
            )
