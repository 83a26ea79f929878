"""Energies of images: residual nets whose writable part is fully connected (EBMM, B.2) or convolutional (B.3, B.4).

The appendix leaves the residual blocks open; here they are two 3x3 convolutions with layer norms and SiLU (smooth, as
the energy's gradient is differentiated again), beside an averaged 1x1 convolution.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mnemon.core.checks import check_size
from mnemon.nets.energy import EnergyNet, he_normal

ENCODING, REPRESENTATION, HEAD = 256, 512, 1024
EPSILON = 1e-5


class SmoothNorm(nn.Module):
    """Layer norm over all but the first dimension, then a scale and a shift for each channel or unit.

    Of plain operations: the third derivatives of PyTorch's own layer norm take its statistics for constants and are
    wrong (found by finite differences, PyTorch 2.15), and training through a gradient norm needs them.

    Shapes: (N, C, *) -> (N, C, *)
    """

    def __init__(self, channels: int, trailing: int = 0) -> None:
        super().__init__()
        shape = (channels, *(1,) * trailing)
        self.weight, self.bias = nn.Parameter(torch.ones(shape)), nn.Parameter(torch.zeros(shape))

    def forward(self, x: Tensor) -> Tensor:
        every = tuple(range(1, x.ndim))
        x = x - x.mean(every, keepdim=True)
        scale = (x.square().mean(every, keepdim=True) + EPSILON).rsqrt()
        return x * scale * self.weight + self.bias


def map_norm(channels: int) -> SmoothNorm:
    return SmoothNorm(channels, trailing=2)


class MemoryConv(nn.Module):
    """A writable 3x3 convolution, as a product with the image's patches.

    A convolution with weights of its own for every episode would become a grouped one, whose derivatives are slow; a
    product becomes a batched product. Shapes: (N, C, H, W) -> (N, outputs, H', W')
    """

    def __init__(self, channels: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.memory = nn.Linear(9 * channels, outputs)
        he_normal(self.memory)

    def forward(self, x: Tensor) -> Tensor:
        patches = F.unfold(x, 3, padding=1, stride=self.stride)
        height = -(-x.shape[-2] // self.stride)
        return self.memory(patches.mT).mT.unflatten(-1, (height, -1))


class ResBlock(nn.Module):
    """Two convolutions beside a skip; halves the image. Shapes: (N, C, H, W) -> (N, channels, H / 2, W / 2)"""

    def __init__(self, inputs: int, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, channels, 3, stride=2, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)
        self.skip = nn.Conv2d(inputs, channels, 1)
        self.norms = nn.ModuleList([map_norm(channels), map_norm(channels)])
        he_normal(self.first, self.second, self.skip)

    def forward(self, x: Tensor) -> Tensor:
        y = F.silu(self.norms[0](self.first(x)))
        return F.silu(self.norms[1](self.second(y)) + halved(self.skip(x)))


class Bottleneck(nn.Module):
    """A residual block through few channels, of whose 3x3 convolution a part is writable.

    Shapes: (N, C, H, W) -> (N, channels, H, W), or half of H and W. EBMM, B.3.
    """

    def __init__(self, inputs: int, channels: int, bottleneck: int, dynamic_size: int, *, downscale: bool) -> None:
        super().__init__()
        stride = 2 if downscale else 1
        self.downscale = downscale
        self.narrow, self.skip = nn.Conv2d(inputs, bottleneck, 1), nn.Conv2d(inputs, channels, 1)
        self.static = nn.Conv2d(bottleneck, channels - dynamic_size, 3, stride=stride, padding=1)
        self.dynamic = MemoryConv(bottleneck, dynamic_size, stride)
        self.narrow_norm, self.norm = map_norm(bottleneck), map_norm(channels)
        he_normal(self.narrow, self.skip, self.static)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.narrow_norm(self.narrow(x)))
        y = torch.tanh(self.norm(torch.cat((self.static(y), self.dynamic(y)), -3)))
        skip = self.skip(x)
        return y + (halved(skip) if self.downscale else skip)


class ResNetEnergy(EnergyNet):
    """A residual encoder, a representation of which a part is writable, and a few gated hops.

    dynamic_size  writable units of the 512: their 256 weights each are the memory, so 16 make 4,096 and 64 make 16,384

    Differs from paper: the writable layer has no bias, so that its size is a round number.

    Shapes: (N, C, H, W) -> (N). EBMM, B.2.
    """

    def __init__(
        self,
        image_shape: Sequence[int],
        *,
        channels: int = 32,
        hidden: int = 512,
        dynamic_size: int = 16,
        num_hops: int = 3,
    ) -> None:
        super().__init__(image_shape)
        _check(image_shape, channels, hidden, num_hops)
        _check_dynamic(dynamic_size, REPRESENTATION)
        widths = (image_shape[0], channels, 2 * channels, 3 * channels)
        self.blocks = nn.Sequential(*(ResBlock(*widths[i : i + 2]) for i in range(3)))
        places = _after(3, image_shape[1]) * _after(3, image_shape[2])
        self.encoding, self.encoding_norm = nn.Linear(widths[-1] * places, ENCODING), SmoothNorm(ENCODING)
        self.memory = nn.Linear(ENCODING, dynamic_size, bias=False)
        self.static = nn.Linear(ENCODING, REPRESENTATION - dynamic_size)
        self.by_item, self.by_state = nn.Linear(REPRESENTATION, 2 * hidden), nn.Linear(hidden, 2 * hidden, bias=False)
        self.norm = SmoothNorm(hidden)
        self.head, self.energy = nn.Linear(hidden, HEAD), nn.Linear(HEAD, 1, bias=False)
        self.num_hops = num_hops
        he_normal(self.encoding, self.memory, self.static, self.head, self.energy)
        he_normal(self.by_item, self.by_state, fan_in=REPRESENTATION + hidden)

    def forward(self, x: Tensor) -> Tensor:
        x = self.encoding_norm(self.encoding(self.blocks(2 * x - 1).flatten(1)))
        fixed = self.by_item(torch.tanh(torch.cat((self.memory(x), self.static(x)), -1)))
        state: Tensor | None = None
        for _ in range(self.num_hops):
            candidate, gate = (fixed if state is None else fixed + self.by_state(state)).chunk(2, -1)
            candidate, gate = self.norm(torch.tanh(candidate)), torch.sigmoid(gate)
            state = gate * candidate if state is None else state + gate * (candidate - state)
        return self.energy(torch.tanh(self.head(state))).squeeze(-1)


class ConvEnergy(EnergyNet):
    """Two residual blocks, two bottlenecks with writable convolutions, and a few gated hops on the last map.

    dynamic_size  writable channels of each bottleneck: 18 channels + 1 weights each, twice
    both_halve    B.4: both bottlenecks halve the image, for larger ones; B.3: the second alone

    Shapes: (N, C, H, W) -> (N). EBMM, B.3 (channels 32, hidden 128) and B.4 (64, 256).
    """

    def __init__(
        self,
        image_shape: Sequence[int],
        *,
        channels: int = 32,
        hidden: int = 128,
        dynamic_size: int = 8,
        both_halve: bool = False,
        num_hops: int = 3,
    ) -> None:
        super().__init__(image_shape)
        _check(image_shape, channels, hidden, num_hops)
        _check_dynamic(dynamic_size, 4 * channels)
        self.blocks = nn.Sequential(
            ResBlock(image_shape[0], channels),
            ResBlock(channels, 2 * channels),
            Bottleneck(2 * channels, 4 * channels, 2 * channels, dynamic_size, downscale=both_halve),
            Bottleneck(4 * channels, 4 * channels, 2 * channels, dynamic_size, downscale=True),
        )
        self.by_item = nn.Conv2d(4 * channels, hidden, 3, padding=1)
        self.by_state = nn.Conv2d(hidden, hidden, 3, padding=1, bias=False)
        self.gate_by_item = nn.Conv2d(4 * channels, hidden, 1)
        self.gate_by_state = nn.Conv2d(hidden, hidden, 1, bias=False)
        self.norm, self.gate_norm = map_norm(hidden), map_norm(hidden)
        places = _after(4 if both_halve else 3, image_shape[1]) * _after(4 if both_halve else 3, image_shape[2])
        self.head, self.energy = nn.Linear(hidden * places, HEAD), nn.Linear(HEAD, 1, bias=False)
        self.num_hops = num_hops
        he_normal(self.head, self.energy)
        he_normal(self.by_item, self.by_state, fan_in=9 * (4 * channels + hidden))
        he_normal(self.gate_by_item, self.gate_by_state, fan_in=4 * channels + hidden)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(2 * x - 1)
        fixed, fixed_gate = self.by_item(x), self.gate_by_item(x)
        state: Tensor | None = None
        for _ in range(self.num_hops):
            candidate = fixed if state is None else fixed + self.by_state(state)
            gate = fixed_gate if state is None else fixed_gate + self.gate_by_state(state)
            candidate, gate = torch.tanh(self.norm(candidate)), torch.sigmoid(self.gate_norm(gate))
            state = gate * candidate if state is None else state + gate * (candidate - state)
        assert state is not None
        return self.energy(torch.tanh(self.head(state.flatten(1)))).squeeze(-1)


def halved(x: Tensor) -> Tensor:
    """Means over 3x3 places, every other one. Shapes: (N, C, H, W) -> (N, C, ceil(H / 2), ceil(W / 2))"""
    return F.avg_pool2d(x, 3, stride=2, padding=1)


def _after(halvings: int, size: int) -> int:
    return -(-size // 2**halvings)


def _check(image_shape: Sequence[int], channels: int, hidden: int, num_hops: int) -> None:
    if len(image_shape) != 3:
        raise ValueError(f"image_shape: expected (channels, height, width), got {tuple(image_shape)}")
    for name, value in (("channels", channels), ("hidden", hidden), ("num_hops", num_hops)):
        check_size(name, value)


def _check_dynamic(dynamic_size: int, units: int) -> None:
    check_size("dynamic_size", dynamic_size)
    if dynamic_size >= units:
        raise ValueError(
            f"dynamic_size: expected fewer than the {units} units that it is a part of, got {dynamic_size}"
        )
