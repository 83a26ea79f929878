"""The fully connected nets of the VMA paper (section 4.1): two hidden layers of 256 and 128 units with ReLU."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from torch import Tensor, nn

HIDDEN = (256, 128)


def mlp(sizes: Sequence[int]) -> nn.Sequential:
    """Linear layers with ReLU between them. Shapes: (..., sizes[0]) -> (..., sizes[-1])"""
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class MLPEncoder(nn.Module):
    """Anything, flattened, to the last hidden layer; with `width`, to a vector of that size.

    Shapes: (N, *shape) -> (N, width)
    """

    def __init__(self, shape: Sequence[int], width: int | None = None, *, hidden: Sequence[int] = HIDDEN) -> None:
        super().__init__()
        body = (math.prod(shape), *hidden)
        self.width = hidden[-1] if width is None else width
        self.layers = mlp((*body, width)) if width is not None else nn.Sequential(*mlp(body), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x.flatten(1))


class LinearHead(nn.Module):
    """Mean and standard deviation by one layer. Shapes: (N, width) -> (N, dim), (N, dim)"""

    def __init__(self, width: int, dim: int) -> None:
        super().__init__()
        self.layer = nn.Linear(width, 2 * dim)

    def forward(self, encoding: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = self.layer(encoding).chunk(2, dim=-1)
        return mean, log_std.clamp(-8, 8).exp()


class MLPDecoder(nn.Module):
    """A vector to outputs of the image's size; the hidden layers in reverse. Shapes: (N, dim) -> (N, outputs, H, W)"""

    def __init__(
        self, image_shape: Sequence[int], input_dim: int, num_outputs: int, *, hidden: Sequence[int] = HIDDEN
    ) -> None:
        super().__init__()
        self.shape = (num_outputs, *image_shape[1:])
        self.layers = mlp((input_dim, *reversed(hidden), math.prod(self.shape)))

    def forward(self, z: Tensor) -> Tensor:
        return self.layers(z).unflatten(1, self.shape)


class DenseReader(nn.Module):
    """p(z | map, keys) by dense layers over the whole map: what Kanerva++ is without windows. K++, 4.2.

    The map goes through its own first layer, once for all keys that it is asked with.

    Shapes: maps (*B, 1, map_size), keys (*B, Q, key_size) -> (*B, Q, code_dim) both
    """

    def __init__(self, map_size: int, key_size: int, code_dim: int, *, hidden: int = 512) -> None:
        super().__init__()
        self.of_map, self.of_keys = nn.Linear(map_size, hidden), nn.Linear(key_size, hidden)
        self.body = nn.Sequential(nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 2 * code_dim))

    def forward(self, maps: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = self.body(self.of_map(maps) + self.of_keys(keys)).chunk(2, dim=-1)
        return mean, log_std.clamp(-8, 8).exp()
