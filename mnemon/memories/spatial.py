"""The memory of Kanerva++: one small map for an episode, of which keys read windows.

    y in R^3,  (s, u, v) = tanh(y),  read[i, j] = M at (s i + u, s j + v),  i, j in [-1, 1]

A key is a scale and a place. The map spans [-1, 1] in both directions, its middle is 0; between pixels it is
interpolated, outside of it there are zeros. A negative scale reads the window turned by half a turn.
K++, equation 5 and appendix A.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional as F

from mnemon.core.checks import check_size, common_batch
from mnemon.core.state import State, rank

KEY_DIM = 3


@dataclass(frozen=True, eq=False)
class SpatialState(State):
    """The map itself: it is computed from the episode, so there is no distribution over it.

    Shapes: memory (*B, channels, height, width)
    """

    memory: Tensor = field(metadata=rank(3))


def windows_of(keys: Tensor) -> Tensor:
    """Scale and place that a key means: all within (-1, 1). Shapes: (..., 3) -> (..., 3)"""
    return keys.tanh()


def read_windows(state: SpatialState, windows: Tensor, read_size: int) -> Tensor:
    """Windows (scale, horizontal place, vertical place) of the map, `read_size` pixels on a side.

    Scale 1 at (0, 0) is the whole map. Windows may reach beyond it, where they see zeros.

    Shapes: windows (*B, *N, 3) -> (*B, *N, channels, R, R), where state and windows broadcast in *B
    """
    check_size("read_size", read_size)
    depth = len(state.batch_shape)
    if windows.ndim < depth + 2 or windows.shape[-1] != KEY_DIM:
        raise ValueError(
            f"read_windows: expected windows (*B, N, 3) with *B = {tuple(state.batch_shape)}, got "
            f"{tuple(windows.shape)}; a window is a scale and a place"
        )
    batch = common_batch("read_windows", state.batch_shape, windows.shape[:depth])
    inner = windows.shape[depth:-1]
    windows = windows.expand(*batch, *inner, KEY_DIM)
    memory = state.memory.expand(*batch, *state.memory.shape[-3:]).reshape(-1, *state.memory.shape[-3:])
    count = inner.numel()
    if not count:  # grids of no windows are refused by torch
        return memory.new_zeros(*batch, *inner, memory.shape[1], read_size, read_size)
    flat = _affine(*windows.unbind(-1)).reshape(-1, 2, 3)
    grid = F.affine_grid(flat, [len(flat), 1, read_size, read_size], align_corners=False)
    # all windows of a map below each other in one tall grid: the map is not copied for each of them
    tall = grid.reshape(len(memory), count * read_size, read_size, 2)
    found = F.grid_sample(memory, tall.to(memory.dtype), align_corners=False)
    found = found.unflatten(2, (count, read_size)).movedim(2, 1)
    return found.reshape(*batch, *inner, *found.shape[2:])


def _affine(scale: Tensor, across: Tensor, down: Tensor) -> Tensor:
    """Shapes: (...) each -> (..., 2, 3)"""
    zero = torch.zeros_like(scale)
    return torch.stack((torch.stack((scale, zero, across), -1), torch.stack((zero, scale, down), -1)), -2)


def corner_keys(like: Tensor) -> Tensor:
    """The eight keys (+-1, +-1, +-1): their mean of a function is that of N(0, I) up to polynomials of degree three.

    Shapes: -> (8, 3)
    """
    sign = like.new_tensor([-1.0, 1.0])
    return torch.cartesian_prod(sign, sign, sign)
