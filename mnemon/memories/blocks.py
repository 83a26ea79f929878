"""A map that is allocated in blocks: frames take them in the order of writing, and keys name one of them.

    y in R^3,  p(y) = N(0, I),  p(y names block b) = p(y names none) = 1 / (num_blocks + 1)

A heap in place of a canvas: blocks do not overlap, and a key means the whole block that it falls into, so what was laid
down is read back as it was. Finding one costs log(num_blocks + 1) nats, and says nothing about where in the block.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from mnemon.core.checks import check_size
from mnemon.core.state import State, rank


@dataclass(frozen=True, eq=False)
class BlockState(State):
    """The map, and how many frames were ever written: the next takes the block of that number, from the first again
    when all are taken.

    Shapes: memory (*B, channels, height, width), written (*B)
    """

    memory: Tensor = field(metadata=rank(3))
    written: Tensor = field(metadata=rank(0))


class BlockGrid:
    """Where the blocks of a map lie: row by row, `block_size` pixels on a side. What is left at the edges is unused.

    map_shape  (channels, height, width)
    """

    def __init__(self, map_shape: tuple[int, int, int], block_size: int) -> None:
        check_size("block_size", block_size)
        if len(map_shape) != 3 or min(map_shape) < 1:
            raise ValueError(f"map_shape: expected (channels, height, width), got {map_shape}")
        self.map_shape, self.block_size = tuple(map_shape), block_size
        self.rows, self.columns = (side // block_size for side in map_shape[1:])
        if self.rows * self.columns == 0:
            raise ValueError(
                f"block_size: expected at most {min(map_shape[1:])}, the map's shorter side, got {block_size}; no "
                "block fits into the map"
            )

    @property
    def num_blocks(self) -> int:
        return self.rows * self.columns

    @property
    def block_floats(self) -> int:
        return self.map_shape[0] * self.block_size**2

    def empty(self, like: Tensor, batch_shape: tuple[int, ...] = ()) -> BlockState:
        """Zeros, nothing written."""
        return BlockState(like.new_zeros(*batch_shape, *self.map_shape), like.new_zeros(batch_shape))

    def contents(self, state: BlockState) -> Tensor:
        """What stands in each block. Shapes: -> (*B, num_blocks, block_floats)"""
        size = self.block_size
        used = state.memory[..., : self.rows * size, : self.columns * size]
        blocks = used.unflatten(-1, (self.columns, size)).unflatten(-3, (self.rows, size))
        return blocks.movedim((-4, -2), (-5, -4)).flatten(-3).flatten(-3, -2)

    def taken(self, state: BlockState) -> Tensor:
        """Which blocks have been written. Shapes: -> (*B, num_blocks)"""
        return torch.arange(self.num_blocks, device=state.written.device) < state.written[..., None]

    def write(self, state: BlockState, values: Tensor, present: Tensor | None = None) -> BlockState:
        """Lay vectors into the next blocks, filled up with zeros. Where there are not enough, the oldest give way.

        Shapes: values (*B, T, at most block_floats), present (*B, T)
        """
        if present is None:
            present = torch.ones(values.shape[:-1], dtype=torch.bool, device=values.device)
        held, count = self.num_blocks, present.sum(-1)
        number = present.cumsum(-1) - 1  # of each vector in this write
        lasts = present & (number >= (count - held)[..., None])
        place = (state.written[..., None] + number).long() % held
        place = torch.where(lasts, place, held)  # a block beyond the last takes what is not kept
        values = torch.nn.functional.pad(values, (0, self.block_floats - values.shape[-1]))
        contents = torch.nn.functional.pad(self.contents(state), (0, 0, 0, 1))
        batch = torch.broadcast_shapes(contents.shape[:-2], values.shape[:-2])
        contents = contents.expand(*batch, *contents.shape[-2:]).to(values.dtype)
        place = place[..., None].expand(*batch, *values.shape[-2:])
        contents = contents.scatter(-2, place, values.expand(*batch, *values.shape[-2:]))
        return BlockState(self._map(contents[..., :held, :]), state.written + count.to(state.written.dtype))

    def _map(self, contents: Tensor) -> Tensor:
        """The map of given blocks. Shapes: (*B, num_blocks, block_floats) -> (*B, channels, height, width)"""
        channels, height, width = self.map_shape
        blocks = contents.unflatten(-1, (channels, self.block_size, self.block_size))
        blocks = blocks.unflatten(-4, (self.rows, self.columns)).movedim((-5, -4), (-4, -2))
        used = blocks.flatten(-2).flatten(-3, -2)
        return torch.nn.functional.pad(used, (0, width - used.shape[-1], 0, height - used.shape[-2]))

    def named(self, keys: Tensor) -> Tensor:
        """The block that a key names, num_blocks for none: all equally probable under N(0, I).

        The first number of a key, which was a scale, says whether it names one; the others are a column and a row.

        Shapes: (..., 3) -> int64 (...)
        """
        within, across, down = torch.special.ndtr(keys).unbind(-1)
        column, row = (
            (share * number).long().clamp(max=number - 1)
            for share, number in ((across, self.columns), (down, self.rows))
        )
        return torch.where(within * (self.num_blocks + 1) < 1, self.num_blocks, row * self.columns + column)
