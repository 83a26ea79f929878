"""Keys of Kanerva++ whose frames write where they read: places that nothing is learned about."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mnemon.core.checks import check_size

PLACE_STD = 0.06
"""Deviation of a place, where the map spans [-1, 1]. A place costs log(1 / 0.06) = 2.8 nats in each direction."""


class HashedKeys(nn.Module):
    """A place for each encoding, by a fixed random projection; the scale is left to its prior, and costs nothing.

    Keys that are learned become codes: images that look alike get places that lie together, what is read there is much
    the same in every memory, and the memory is not needed. A fixed projection scatters frames over the map.

    Shapes: (..., width) -> (..., num_reads * 3) both
    """

    projection: Tensor

    def __init__(self, width: int, num_reads: int) -> None:
        super().__init__()
        check_size("num_reads", num_reads)
        directions = torch.linalg.qr(torch.randn(width, 2 * num_reads)).Q
        self.register_buffer("projection", directions.unflatten(1, (num_reads, 2)))

    def forward(self, encoding: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast(encoding.device.type, enabled=False):  # places are finer than half precision is
            place = torch.einsum("...w,wrd->...rd", encoding.detach().to(self.projection.dtype), self.projection)
        scale = torch.zeros_like(place[..., :1])
        mean = torch.cat((scale, place), -1)
        std = torch.cat((torch.ones_like(scale), torch.full_like(place, PLACE_STD)), -1)
        return mean.flatten(-2), std.flatten(-2)
