"""An energy that asks the memory for the image: how far is an image from what is recalled of it? Ours, not the paper's.

The memory is one matrix M from keys to codes. With units s = 2 x - 1,

    k = tanh(f(s)) / sqrt(K),    r = tanh(B M k + g(sqrt(V) M k)),    E(s) = a |s - r|^2 / 2 + sum w silu(C(s, r))

A write descends |s - r|^2 in M, which is the delta rule: M k_i goes to the code whose decoding is pattern i. A read
moves the image to its own recall. The last term is a net of two convolutions that sees image and recall side by side,
and learns what strokes and edges look like, which a memory need not hold. Few layers without norms make few kernels: a
training step of this energy is several times cheaper than that of the paper's residual nets. docs/energy.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mnemon.core.checks import check_size
from mnemon.nets.energy import EnergyNet, he_normal

KEY_GAIN = 0.5
"""Of the last weights of f before training. Steep keys learn slower: a read descends through them as well."""
CHROMA = 4.0
"""How much sooner than brightness the frequencies of colours end, as squares: eyes and pictures know less of them."""


class ReconstructionEnergy(EnergyNet):
    """The energy above: `dynamic_size` x `key_size` weights M are written, all else is learned.

    dynamic_size  numbers of a code V
    key_size      numbers of a key K: at least the patterns of an episode, or they cannot be told apart linearly
    hidden        units of g
    channels      of the convolutions C, and of the two in f

    Before training B are the V lowest frequencies of an image and g, w and M are 0, so that writing stores a blurred
    image at once, and reading finds it; training sharpens what is there.

    Shapes: (N, C, H, W) -> (N)
    """

    def __init__(
        self,
        image_shape: Sequence[int],
        *,
        dynamic_size: int = 64,
        key_size: int = 64,
        hidden: int = 512,
        channels: int = 32,
    ) -> None:
        super().__init__(image_shape)
        pixels = math.prod(image_shape)
        if len(image_shape) != 3 or min(image_shape[1:]) < 5:
            raise ValueError(
                f"image_shape: expected (channels, height, width), 5 x 5 or more, got {tuple(image_shape)}"
            )
        sizes = {"dynamic_size": dynamic_size, "key_size": key_size, "hidden": hidden, "channels": channels}
        for name, value in sizes.items():
            check_size(name, value)
        if dynamic_size > pixels:
            raise ValueError(f"dynamic_size: expected at most the {pixels} numbers of an image, got {dynamic_size}")
        places = _after_contrast(image_shape[1]) * _after_contrast(image_shape[2])
        self.key = nn.Sequential(
            Contrast(image_shape[0], channels, 5, stride=2, bias=False),
            nn.Tanh(),
            nn.Conv2d(channels, channels, 3, stride=2, padding=1, bias=False),
            nn.Tanh(),
            nn.Flatten(),
            last_of_key := nn.Linear(channels * places, key_size, bias=False),
        )
        self.key_scale = key_size**-0.5
        self.memory = nn.Linear(key_size, dynamic_size, bias=False)
        self.code_scale = math.sqrt(dynamic_size)
        self.linear = nn.Linear(dynamic_size, pixels, bias=False)
        last = nn.Linear(hidden, pixels)
        self.decoder = nn.Sequential(nn.Linear(dynamic_size, hidden), nn.SiLU(), last)
        self.local = nn.Sequential(
            nn.Conv2d(2 * image_shape[0], channels, 5, stride=2, padding=2),
            nn.SiLU(),
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.SiLU(),
        )
        self.local_weight = nn.Parameter(torch.zeros(channels))
        self.scale = nn.Parameter(torch.ones(()))
        he_normal(*(layer for layer in self.modules() if isinstance(layer, nn.Linear | nn.Conv2d)))
        with torch.no_grad():
            self.memory.weight.zero_()
            last.weight.zero_()
            last_of_key.weight.mul_(KEY_GAIN)
            # weights about 1 and codes below 1: Adam's steps, equal for all weights, then change recalls gently
            self.linear.weight.copy_(math.sqrt(pixels) * low_frequencies(image_shape, dynamic_size).mT)

    def forward(self, x: Tensor) -> Tensor:
        units = 2 * x - 1
        code = self.memory(torch.tanh(self.key(units)) * self.key_scale)
        recall = torch.tanh(self.linear(code) + self.decoder(self.code_scale * code))
        local = self.local(torch.cat((units, recall.view_as(units)), 1)).sum((2, 3)) @ self.local_weight
        energies: Tensor = 0.5 * self.scale * (units.flatten(1) - recall).square().sum(1) + local
        return energies


def low_frequencies(image_shape: Sequence[int], number: int) -> Tensor:
    """Orthonormal cosines of an image, the slowest first; of three colours brightness reaches further than hue.

    Shapes: -> (number, C H W)
    """
    channels, height, width = image_shape
    colours, penalty = torch.eye(channels), torch.ones(channels)
    if channels == 3:
        colours = F.normalize(torch.tensor([[1.0, 1, 1], [1, 0, -1], [1, -2, 1]]), dim=1)
        penalty = torch.tensor([1, CHROMA, CHROMA])
    vertical, horizontal = _cosines(height), _cosines(width)
    speed = torch.arange(height)[:, None].square() / height**2 + torch.arange(width).square() / width**2
    cost = penalty[:, None, None] * (speed + 1e-9)
    chosen = cost.flatten().argsort(stable=True)[:number]
    colour, row, column = torch.unravel_index(chosen, (channels, height, width))
    return torch.einsum("nc, nh, nw -> nchw", colours[colour], vertical[row], horizontal[column]).flatten(1)


class Contrast(nn.Conv2d):
    """A convolution whose filters each sum to 0: what is flat in an image, as paper is, gives nothing.

    Without it all keys are mostly that of the paper, and nothing can be told apart. Shapes: (N, C, H, W) -> as Conv2d
    """

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight - self.weight.mean((2, 3), keepdim=True)
        return F.conv2d(x, weight, self.bias, self.stride, self.padding)


def _after_contrast(size: int) -> int:
    """Of a side of an image, what the two convolutions of the key leave."""
    return ((size - 5) // 2 + 2) // 2


def _cosines(size: int) -> Tensor:
    """The orthonormal cosine transform. Shapes: -> (size, size): frequencies, places"""
    places, frequencies = torch.arange(size) + 0.5, torch.arange(size)
    waves = math.sqrt(2 / size) * torch.cos(math.pi / size * frequencies[:, None] * places)
    waves[0] *= math.sqrt(0.5)
    return waves
