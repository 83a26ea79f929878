"""The convolutional encoder and decoder of the VBM paper, for any image size and channel count.

The basic pair (appendix F.1.1) uses batch normalisation and ReLU; the improved pair (F.2.1) group
normalisation and Swish, and in the decoder plain convolutions in residual blocks that come before each
upsampling. Improved nets treat every image on its own, so results do not depend on what shares a batch.
The papers' encoders do not pad: of a 28 x 28 image one pixel a filter is left. With padding, 3 x 3 are.
"""

from __future__ import annotations

from torch import Tensor, nn

NUM_BLOCKS = 3


def _norm(channels: int, improved: bool) -> nn.Module:
    """At least four channels a group: small images end in maps of one pixel, where a group of one is nothing."""
    return nn.GroupNorm(max(1, min(8, channels // 4)), channels) if improved else nn.BatchNorm2d(channels)


def _activation(improved: bool) -> nn.Module:
    return nn.SiLU() if improved else nn.ReLU()


class ResidualBlock(nn.Module):
    """x + f(x) with two 3 x 3 convolutions, normalised, without bottleneck. Shapes: (N, F, H, W) -> the same"""

    def __init__(self, channels: int, *, improved: bool, transposed: bool = False) -> None:
        super().__init__()
        conv = nn.ConvTranspose2d if transposed else nn.Conv2d
        first, second = (conv(channels, channels, 3, padding=1, bias=False) for _ in range(2))
        for layer in (first, second):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        self.branch = nn.Sequential(
            first, _norm(channels, improved), _activation(improved), second, _norm(channels, improved)
        )
        self.activation = _activation(improved)

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(x + self.branch(x))


class ConvEncoder(nn.Module):
    """Three times: 4 x 4 convolution of stride 2, then a residual block; then a linear layer.

    Shapes: (N, C, H, W) -> (N, width)
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        width: int,
        *,
        num_filters: int = 32,
        improved: bool = True,
        padding: int = 0,
    ):
        super().__init__()
        channels, *sides = image_shape
        layers: list[nn.Module] = []
        for _ in range(NUM_BLOCKS):
            down = nn.Conv2d(channels, num_filters, 4, stride=2, padding=padding)
            nn.init.xavier_uniform_(down.weight)
            layers += [down, ResidualBlock(num_filters, improved=improved)]
            channels, sides = num_filters, [(side + 2 * padding - 4) // 2 + 1 for side in sides]
        if min(sides) < 1:
            least = 8 if padding else 22
            raise ValueError(
                f"ConvEncoder: expected images of at least {least} x {least} for three downsamplings, got "
                f"{image_shape[1]} x {image_shape[2]}; pad or enlarge them (data.image_shape), or bring an encoder of "
                "your own"
            )
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(num_filters * sides[0] * sides[1], width)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(2 * x - 1).flatten(1))


class ConvDecoder(nn.Module):
    """A linear layer to a small map, three upsamplings by 4 x 4 transposed convolutions, cropped to the image.

    Shapes: (N, code_dim) -> (N, num_outputs, H, W)
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        code_dim: int,
        num_outputs: int,
        *,
        num_filters: int = 32,
        improved: bool = True,
    ):
        super().__init__()
        self.image_size = image_shape[1:]
        start = tuple(-(-side // 2**NUM_BLOCKS) for side in self.image_size)
        self.stem = nn.Sequential(
            nn.Linear(code_dim, num_filters * start[0] * start[1]), nn.Unflatten(1, (num_filters, *start))
        )
        layers: list[nn.Module] = []
        for _ in range(NUM_BLOCKS):
            up = nn.ConvTranspose2d(num_filters, num_filters, 4, stride=2, padding=1)
            nn.init.xavier_uniform_(up.weight)
            block = ResidualBlock(num_filters, improved=improved, transposed=not improved)
            layers += [block, up] if improved else [up, block]
        self.body = nn.Sequential(*layers)
        self.head = nn.Conv2d(num_filters, num_outputs, 1)

    def forward(self, z: Tensor) -> Tensor:
        height, width = self.image_size
        return self.head(self.body(self.stem(z))[..., :height, :width])


class GaussianHead(nn.Module):
    """Mean and standard deviation from an encoding: two layers with ReLU between, the second half exponentiated.

    Shapes: (N, width) -> (N, dim), (N, dim)
    """

    def __init__(self, width: int, dim: int, *, improved: bool = True) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, 2 * dim), _activation(improved), nn.Linear(2 * dim, 2 * dim))

    def forward(self, encoding: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = self.layers(encoding).chunk(2, dim=-1)
        return mean, log_std.clamp(-8, 8).exp()


def count_parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())
