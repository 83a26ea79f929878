"""Convolutions at full resolution: the nets of the neural statistician on Omniglot, for any image size.

Three blocks on the way down, each of two 3 x 3 convolutions and one of stride 2, with F, 2 F and 4 F filters; the way
up mirrors it. Edwards and Storkey (2017), appendix.

Differs from paper: group normalisation in place of batch normalisation, so that what is inferred of a set does not
depend on which sets share its batch, and SiLU in place of ELU.
"""

from __future__ import annotations

from torch import Tensor, nn

NUM_BLOCKS = 3


def _normalised(conv: nn.Conv2d | nn.ConvTranspose2d) -> list[nn.Module]:
    """At least eight channels a group, at most eight groups: small maps have few pixels to normalise by."""
    channels = conv.out_channels
    most = max(1, min(8, channels // 8))
    num_groups = next(groups for groups in range(most, 0, -1) if channels % groups == 0)
    return [conv, nn.GroupNorm(num_groups, channels), nn.SiLU()]


def _same(inputs: int, outputs: int) -> list[nn.Module]:
    """Two convolutions that keep the size of the maps."""
    first, second = (nn.Conv2d(channels, outputs, 3, padding=1, bias=False) for channels in (inputs, outputs))
    return [*_normalised(first), *_normalised(second)]


def _sizes(image_size: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Of the image, and of the maps after each block."""
    sizes = [tuple(image_size)]
    for _ in range(NUM_BLOCKS):
        sizes.append(tuple(-(-side // 2) for side in sizes[-1]))
    return sizes


class DeepEncoder(nn.Module):
    """Shapes: (N, C, H, W) -> (N, width)"""

    def __init__(self, image_shape: tuple[int, int, int], width: int, *, num_filters: int = 64) -> None:
        super().__init__()
        channels, *size = image_shape
        layers: list[nn.Module] = []
        for block in range(NUM_BLOCKS):
            filters = num_filters * 2**block
            down = nn.Conv2d(filters, filters, 3, stride=2, padding=1, bias=False)
            layers += [*_same(channels, filters), *_normalised(down)]
            channels = filters
        last = _sizes(tuple(size))[-1]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(channels * last[0] * last[1], width)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(2 * x - 1).flatten(1))


class DeepDecoder(nn.Module):
    """Shapes: (N, code_dim) -> (N, num_outputs, H, W)"""

    def __init__(
        self, image_shape: tuple[int, int, int], code_dim: int, num_outputs: int, *, num_filters: int = 64
    ) -> None:
        super().__init__()
        sizes = _sizes(image_shape[1:])
        filters = num_filters * 2 ** (NUM_BLOCKS - 1)
        start = (filters, *sizes[-1])
        layers: list[nn.Module] = []
        for block in reversed(range(NUM_BLOCKS)):
            fewer = num_filters * 2 ** max(0, block - 1)
            extra = [(side + 1) % 2 for side in sizes[block]]  # an even side is the double of the map below
            up = nn.ConvTranspose2d(
                filters, fewer, 3, stride=2, padding=1, output_padding=(extra[0], extra[1]), bias=False
            )
            layers += [*_same(filters, filters), *_normalised(up)]
            filters = fewer
        self.stem = nn.Sequential(nn.Linear(code_dim, start[0] * start[1] * start[2]), nn.Unflatten(1, start))
        self.body = nn.Sequential(*layers)
        self.head = nn.Conv2d(filters, num_outputs, 1)

    def forward(self, z: Tensor) -> Tensor:
        return self.head(self.body(self.stem(z)))
