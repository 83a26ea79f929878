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
    windows = windows.reshape(len(memory), inner.numel(), KEY_DIM).to(memory.dtype)
    scale, across, down = windows.unbind(-1)
    columns = _interpolation(scale, across, read_size, memory.shape[-1])
    rows = _interpolation(scale, down, read_size, memory.shape[-2])
    strips = torch.einsum("bchw,bnxw->bnhcx", memory, columns)
    found = torch.einsum("bnyh,bnhcx->bncyx", rows, strips)
    return found.reshape(*batch, *inner, *found.shape[2:])


def _interpolation(scale: Tensor, place: Tensor, read_size: int, size: int) -> Tensor:
    """How much of each pixel of a side of the map is in each pixel of a window's: that of the two it lies between.

    A window is not turned, so that its rows and its columns are interpolated apart, by products of matrices: these are
    summed up in one order, which the gradient of a sampled grid is not on a GPU.

    Shapes: (*N) both -> (*N, R, size)
    """
    steps = torch.arange(read_size, dtype=scale.dtype, device=scale.device)
    at = scale[..., None] * ((2 * steps + 1) / read_size - 1) + place[..., None]
    pixel = ((at + 1) * size - 1) / 2
    lower = pixel.floor()
    share = (pixel - lower)[..., None]
    after = torch.arange(size, dtype=scale.dtype, device=scale.device) - lower[..., None]
    return torch.where(after == 0, 1 - share, torch.where(after == 1, share, 0.0))


def corner_keys(like: Tensor) -> Tensor:
    """The eight keys (+-1, +-1, +-1): their mean of a function is that of N(0, I) up to polynomials of degree three.

    Shapes: -> (8, 3)
    """
    sign = like.new_tensor([-1.0, 1.0])
    return torch.cartesian_prod(sign, sign, sign)
