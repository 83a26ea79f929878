"""EvoNorm-S0, which normalises and activates in one, and the nets of Kanerva++ that are made with it.

Groups of an image's own channels are normalised, so nothing depends on what shares a batch.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

NUM_UPSAMPLINGS = 3
SMALLEST = 4
"""Maps are halved, or start, at sides of at most so many pixels."""


class EvoNormS0(nn.Module):
    """gain x sigmoid(v x) / std of the group + shift. Liu et al. (2020), table 2.

    Groups of at least four channels, at most 32 groups: of maps of one pixel, a channel alone has no deviation.

    Shapes: (N, F, H, W) -> the same
    """

    def __init__(self, channels: int, eps: float = 1e-5) -> None:
        super().__init__()
        most = max(1, min(32, channels // 4))
        self.num_groups = next(groups for groups in range(most, 0, -1) if channels % groups == 0)
        self.eps = eps
        self.slope = nn.Parameter(torch.ones(channels, 1, 1))
        self.gain = nn.Parameter(torch.ones(channels, 1, 1))
        self.shift = nn.Parameter(torch.zeros(channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        groups = (x.float() if x.dtype in (torch.bfloat16, torch.float16) else x).unflatten(1, (self.num_groups, -1))
        variance = groups.var((2, 3, 4), correction=0, keepdim=True)
        scale = (variance + self.eps).rsqrt().expand(-1, -1, groups.shape[2], 1, 1).flatten(1, 2) * self.gain
        # whole maps stay in the input's precision: on a GPU, moving them is what this layer costs
        slope, scale, shift = (part.to(x.dtype) for part in (self.slope, scale, self.shift))
        return torch.addcmul(shift, x * torch.sigmoid(slope * x), scale)


class EvoBlock(nn.Module):
    """x + f(x) with two 3 x 3 convolutions, each after an EvoNorm. Shapes: (N, F, H, W) -> the same"""

    def __init__(self, channels: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for _ in range(2):
            layers += [EvoNormS0(channels), nn.Conv2d(channels, channels, 3, padding=1)]
        self.branch = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.branch(x)


class EvoDecoder(nn.Module):
    """A linear layer to a small map, three upsamplings by 4 x 4 transposed convolutions, cropped to the image.

    num_filters  of the small map; every upsampling halves them

    Differs from paper: a residual block comes before each upsampling (K++, appendix E: transposed convolutions alone).

    Shapes: (N, code_dim) -> (N, num_outputs, H, W)
    """

    def __init__(
        self, image_shape: tuple[int, ...], code_dim: int, num_outputs: int, *, num_filters: int = 256
    ) -> None:
        super().__init__()
        self.image_size = image_shape[1:]
        start = tuple(-(-side // 2**NUM_UPSAMPLINGS) for side in self.image_size)
        channels = num_filters
        self.stem = nn.Sequential(
            nn.Linear(code_dim, channels * start[0] * start[1]), nn.Unflatten(1, (channels, *start))
        )
        layers: list[nn.Module] = []
        for _ in range(NUM_UPSAMPLINGS):
            outputs = max(1, channels // 2)
            layers += [EvoBlock(channels), EvoNormS0(channels), upsampling(channels, outputs)]
            channels = outputs
        self.body = nn.Sequential(*layers, EvoNormS0(channels))
        self.head = nn.Conv2d(channels, num_outputs, 1)

    def forward(self, z: Tensor) -> Tensor:
        height, width = self.image_size
        return self.head(self.body(self.stem(z))[..., :height, :width])


class MapWriter(nn.Module):
    """The memory map of a pooled encoding: a linear layer to a small map, then transposed convolutions, no activation.

    num_filters  of the small map; every layer but the last halves them

    K++, appendix E (memory writer).

    Shapes: (N, width) -> (N, *map_shape)
    """

    def __init__(self, map_shape: tuple[int, int, int], width: int, *, num_filters: int = 256) -> None:
        super().__init__()
        channels, *self.size = map_shape
        depth, start = 0, tuple(self.size)
        while max(start) > SMALLEST:
            depth, start = depth + 1, tuple(-(-side // 2) for side in start)
        widths = [max(1, num_filters // 2**layer) for layer in range(depth)] + [channels]
        self.stem = nn.Sequential(
            nn.Linear(width, widths[0] * start[0] * start[1]), nn.Unflatten(1, (widths[0], *start))
        )
        self.layers = nn.Sequential(*(upsampling(widths[i], widths[i + 1]) for i in range(depth)))

    def forward(self, pooled: Tensor) -> Tensor:
        height, width = self.size
        return self.layers(self.stem(pooled))[..., :height, :width]


class ReadEncoder(nn.Module):
    """p(z | reads): the reads of one item stacked as channels, halved by convolutions, a linear layer.

    num_filters  of the first convolution; every other has twice those of the one before

    K++, appendix E (learned prior).

    Shapes: (N, num_reads * channels, R, R) -> (N, code_dim) both
    """

    def __init__(self, channels: int, read_size: int, code_dim: int, *, num_filters: int = 64) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(channels, num_filters, 3, padding=1), EvoNormS0(num_filters)]
        width, side = num_filters, read_size
        while side > SMALLEST:
            layers += [nn.Conv2d(width, 2 * width, 3, stride=2, padding=1), EvoNormS0(2 * width)]
            width, side = 2 * width, -(-side // 2)
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(width * side * side, 2 * code_dim)

    def forward(self, reads: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = self.head(self.body(reads).flatten(1)).chunk(2, dim=-1)
        return mean, log_std.clamp(-8, 8).exp()


def upsampling(inputs: int, outputs: int) -> nn.ConvTranspose2d:
    """Twice the sides; four inputs a channel reach a pixel, and its variance is that of the inputs."""
    layer = nn.ConvTranspose2d(inputs, outputs, 4, stride=2, padding=1)
    nn.init.normal_(layer.weight, std=(4 * inputs) ** -0.5)
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
    return layer
