"""The pieces of nets that are given a memory's content m: fully connected, and in a convolutional pyramid.

Images x and m go in as they are. VMA, 4.1 and 4.2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mnemon.nets.conv import GaussianHead
from mnemon.nets.mlp import HIDDEN, MLPDecoder, mlp
from mnemon.nets.pyramid import Ascent, Pyramid


class _ToImage(nn.Module):
    """A vector as an image that a pyramid can take; an image as it is. Shapes: (N, *content) -> (N, C, H, W)"""

    def __init__(self, content_shape: Sequence[int], image_shape: Sequence[int]) -> None:
        super().__init__()
        self.image_shape = tuple(image_shape)
        vector = len(content_shape) == 1
        self.linear = nn.Linear(content_shape[0], math.prod(image_shape)) if vector else None

    def forward(self, m: Tensor) -> Tensor:
        return m if self.linear is None else self.linear(m).unflatten(1, self.image_shape)


class PyramidContent(nn.Module):
    """The maps of m's way down, which prior and decoder share (VMA, 4.2: tied). Shapes: (N, *content) -> six maps"""

    def __init__(self, content_shape: Sequence[int], image_shape: tuple[int, ...], num_filters: int) -> None:
        super().__init__()
        self.to_image = _ToImage(content_shape, image_shape)
        self.pyramid = Pyramid(image_shape, num_filters=num_filters)

    def forward(self, m: Tensor) -> tuple[Tensor, ...]:
        return self.pyramid(self.to_image(m))


class PyramidPrior(nn.Module):
    """p(z | m) from the last map. Shapes: maps (N, F, h, w) -> (N, C) both"""

    def __init__(self, width: int, code_dim: int) -> None:
        super().__init__()
        self.head = GaussianHead(width, code_dim, improved=False)

    def forward(self, maps: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        return self.head(maps[-1].flatten(1))


class PyramidPosterior(nn.Module):
    """q(z | m, x) from a pyramid over both images, one above the other; or q(z | x). Shapes: -> (N, C) both"""

    def __init__(
        self, content_shape: Sequence[int], image_shape: tuple[int, ...], code_dim: int, num_filters: int, both: bool
    ) -> None:
        super().__init__()
        self.to_image = _ToImage(content_shape, image_shape) if both else None
        channels = image_shape[0] * (2 if both else 1)
        self.pyramid = Pyramid((channels, *image_shape[1:]), num_filters=num_filters)
        self.head = GaussianHead(self.pyramid.width, code_dim, improved=False)

    def forward(self, *images: Tensor) -> tuple[Tensor, Tensor]:
        x = images[-1] if self.to_image is None else torch.cat((self.to_image(images[0]), images[-1]), 1)
        return self.head(self.pyramid(x)[-1].flatten(1))


class SkipDecoder(nn.Module):
    """p(x | z, m): z and a vector of its size made of m's last map, then the way up past m's maps.

    Shapes: (N, C), six maps -> (N, outputs, H, W)
    """

    def __init__(
        self, image_shape: tuple[int, ...], code_dim: int, num_outputs: int, num_filters: int, width: int
    ) -> None:
        super().__init__()
        self.summary = nn.Linear(width, code_dim)
        self.ascent = Ascent(image_shape, 2 * code_dim, num_outputs, num_filters=num_filters, skips=True)

    def forward(self, z: Tensor, maps: Sequence[Tensor]) -> Tensor:
        return self.ascent(torch.cat((z, self.summary(maps[-1].flatten(1))), 1), maps)


class MLPContent(nn.Module):
    """m itself, flattened. Shapes: (N, *content) -> (N, D)"""

    def forward(self, m: Tensor) -> tuple[Tensor, ...]:
        return (m.flatten(1),)


class MLPGaussian(nn.Module):
    """Mean and standard deviation from whatever it is given, flattened. Shapes: -> (N, C) both"""

    def __init__(self, input_dim: int, code_dim: int) -> None:
        super().__init__()
        self.layers = mlp((input_dim, *HIDDEN, 2 * code_dim))

    def forward(self, *inputs: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        parts = [part[0] if isinstance(part, tuple) else part for part in inputs]
        mean, log_std = self.layers(torch.cat([part.flatten(1) for part in parts], 1)).chunk(2, dim=-1)
        return mean, log_std.clamp(-8, 8).exp()


class MLPSkipDecoder(nn.Module):
    """p(x | z, m) from both, through the hidden layers and, for m, past them.

    Differs from paper: the linear path from m to the outputs, in place of the pyramid's skip connections; 128 hidden
    units alone cannot give back an image that is stored pixel by pixel.

    Shapes: (N, C), (N, D) -> (N, outputs, H, W)
    """

    def __init__(self, image_shape: tuple[int, ...], code_dim: int, num_outputs: int, content_size: int) -> None:
        super().__init__()
        self.body = MLPDecoder(image_shape, code_dim + content_size, num_outputs)
        self.skip = nn.Linear(content_size, math.prod(self.body.shape), bias=False)

    def forward(self, z: Tensor, features: Sequence[Tensor]) -> Tensor:
        outputs = self.body(torch.cat((z, features[0]), 1))
        return outputs + self.skip(features[0]).view_as(outputs)


Pieces = tuple[nn.Module, nn.Module, nn.Module, nn.Module]
"""Of a codec: for the content, the prior, the posterior and the decoder."""


def mlp_pieces(
    image_shape: tuple[int, ...], content_shape: tuple[int, ...], code_dim: int, outputs: int, both: bool
) -> Pieces:
    size, pixels = math.prod(content_shape), math.prod(image_shape)
    return (
        MLPContent(),
        MLPGaussian(size, code_dim),
        MLPGaussian(size + pixels if both else pixels, code_dim),
        MLPSkipDecoder(image_shape, code_dim, outputs, size),
    )


def pyramid_pieces(
    image_shape: tuple[int, ...],
    content_shape: tuple[int, ...],
    code_dim: int,
    outputs: int,
    num_filters: int,
    both: bool,
) -> Pieces:
    content = PyramidContent(content_shape, image_shape, num_filters)
    width = content.pyramid.width
    return (
        content,
        PyramidPrior(width, code_dim),
        PyramidPosterior(content_shape, image_shape, code_dim, num_filters, both),
        SkipDecoder(image_shape, code_dim, outputs, num_filters, width),
    )
