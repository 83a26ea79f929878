"""The convolutional pyramid of the VMA paper (section 4.2), down and up again, for any image size and channel count.

Six 3 x 3 convolutions with ReLU, every second of stride 2, no normalisation. The way up mirrors it with transposed
convolutions; it may be given the maps of another image's way down, layer by layer (skip connections).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

NUM_LAYERS = 6


def pyramid_sizes(image_size: Sequence[int]) -> list[tuple[int, int]]:
    """Heights and widths: of the image, then after every layer."""
    sizes = [(image_size[0], image_size[1])]
    for layer in range(NUM_LAYERS):
        height, width = sizes[-1]
        sizes.append((-(-height // 2), -(-width // 2)) if layer % 2 else (height, width))
    return sizes


class Pyramid(nn.Module):
    """The way down. Shapes: (N, C, H, W) -> the maps after each layer, (N, F, h, w); the last is the smallest"""

    def __init__(self, image_shape: tuple[int, ...], *, num_filters: int = 64) -> None:
        super().__init__()
        channels, *size = image_shape
        last = pyramid_sizes(size)[-1]
        self.width = num_filters * last[0] * last[1]
        """Of the last map, flattened."""
        self.layers = nn.ModuleList(
            nn.Conv2d(channels if layer == 0 else num_filters, num_filters, 3, stride=1 + layer % 2, padding=1)
            for layer in range(NUM_LAYERS)
        )
        for conv in self.layers:
            _initialise(conv)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        maps = []
        for conv in self.layers:
            x = F.relu(conv(x))
            maps.append(x)
        return tuple(maps)


class Ascent(nn.Module):
    """The way up, from a vector to outputs of the image's size.

    skips: every layer is also given the map that a `Pyramid` of the same sizes has there

    Shapes: (N, input_dim), maps of a Pyramid -> (N, num_outputs, H, W)
    """

    def __init__(
        self,
        image_shape: tuple[int, ...],
        input_dim: int,
        num_outputs: int,
        *,
        num_filters: int = 64,
        skips: bool = False,
    ) -> None:
        super().__init__()
        sizes = pyramid_sizes(image_shape[1:])
        self.start = (num_filters, *sizes[-1])
        self.stem = nn.Linear(input_dim, num_filters * sizes[-1][0] * sizes[-1][1])
        width = num_filters * (2 if skips else 1)
        layers = []
        for layer in reversed(range(NUM_LAYERS)):  # each undoes one layer of the way down
            goal, stride = sizes[layer], 1 + layer % 2
            extra = [(side + 1) % 2 if stride == 2 else 0 for side in goal]
            outputs = num_filters if layer else num_outputs
            layers.append(
                nn.ConvTranspose2d(width, outputs, 3, stride=stride, padding=1, output_padding=(extra[0], extra[1]))
            )
        self.layers = nn.ModuleList(layers)
        for conv in self.layers:
            _initialise(conv, linear=conv is self.layers[-1])

    def forward(self, vector: Tensor, maps: Sequence[Tensor] = ()) -> Tensor:
        x = F.relu(self.stem(vector)).unflatten(1, self.start)
        for number, conv in enumerate(self.layers):
            if maps:
                x = torch.cat((x, maps[-1 - number]), 1)
            x = conv(x)
            if number + 1 < len(self.layers):
                x = F.relu(x)
        return x


class PyramidEncoder(nn.Module):
    """A pyramid's last map, flattened; with `width` a hidden layer and a vector of that size.

    Shapes: (N, C, H, W) -> (N, width)
    """

    def __init__(
        self,
        image_shape: tuple[int, ...],
        width: int | None = None,
        *,
        num_filters: int = 64,
        hidden: int | None = None,
    ) -> None:
        super().__init__()
        self.pyramid = Pyramid(image_shape, num_filters=num_filters)
        inputs = self.pyramid.width
        self.width = inputs if width is None else width
        self.head: nn.Module = nn.Identity()
        if width is not None:
            middle = 2 * width if hidden is None else hidden
            self.head = nn.Sequential(nn.Linear(inputs, middle), nn.ReLU(), nn.Linear(middle, width))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.pyramid(x)[-1].flatten(1))


class PyramidDecoder(nn.Module):
    """The way up from a code alone. Shapes: (N, code_dim) -> (N, num_outputs, H, W)"""

    def __init__(self, image_shape: tuple[int, ...], code_dim: int, num_outputs: int, *, num_filters: int = 64) -> None:
        super().__init__()
        self.ascent = Ascent(image_shape, code_dim, num_outputs, num_filters=num_filters)

    def forward(self, z: Tensor) -> Tensor:
        return self.ascent(z)


def _initialise(conv: nn.Module, *, linear: bool = False) -> None:
    """For ReLU, so that activations keep their size through layers that nothing normalises."""
    assert isinstance(conv, nn.Conv2d | nn.ConvTranspose2d)
    assert conv.bias is not None
    fan = conv.kernel_size[0] * conv.kernel_size[1] * conv.in_channels
    if isinstance(conv, nn.ConvTranspose2d):
        fan //= conv.stride[0] * conv.stride[1]  # only so many inputs reach a pixel
    nn.init.normal_(conv.weight, std=((1.0 if linear else 2.0) / fan) ** 0.5)
    nn.init.zeros_(conv.bias)
