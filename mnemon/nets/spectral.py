"""Dense layers of spectral norm one: no layer stretches its input. K++, appendix E (after Miyato et al., 2018)."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mnemon.core.checks import check_size
from mnemon.core.threads import one_thread

NUM_SQUARINGS = 6


def leading_vectors(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Left and right singular vectors of the largest singular value, nearly, without gradient.

    Power iteration from a fixed vector: the matrix product with its transpose is squared six times, which is 64
    iterations. Nothing is kept from call to call, so the same weights always give the same function.

    Shapes: (M, N) -> (M), (N)
    """
    weight = weight.detach()
    wide = weight.shape[0] <= weight.shape[1]
    power = weight @ weight.mT if wide else weight.mT @ weight
    start = torch.linspace(1.0, 2.0, len(power), dtype=power.dtype, device=power.device)
    start = start * (1 - 2 * (torch.arange(len(power), device=power.device) % 2))  # orthogonal to nothing in sight
    for _ in range(NUM_SQUARINGS):
        power = power / power.norm().clamp(min=1e-12)
        power = power @ power
    vector = F.normalize(power @ start, dim=0)
    other = F.normalize((weight.mT if wide else weight) @ vector, dim=0)
    return (vector, other) if wide else (other, vector)


class SpectralLinear(nn.Linear):
    """A linear layer divided by its largest singular value. Shapes: (..., N) -> (..., M)

    Differs from Miyato et al.: the singular vectors are found anew at each call, not by one step from the call before,
    so a call in training changes nothing.
    """

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            left, right = leading_vectors(self.weight)
            weight = self.weight / (left @ self.weight @ right).clamp(min=1e-12)
        return F.linear(x, weight, self.bias)


class GaussianDense(nn.Module):
    """Mean and standard deviation by three linear layers of spectral norm one, without activations between.

    spread, std  how far apart the means of different encodings start, for encodings of size one, and the deviation
                 of all of them

    Differs from paper: layers start orthogonal, and a learned gain and offset follow them. With random layers, which
    shrink what is not their leading direction, and deviations of 1, means of different images start 0.03 apart: codes
    and keys that say nothing, which training then finds cheapest to leave so.

    Shapes: (..., width) -> (..., dim) both
    """

    def __init__(self, width: int, dim: int, *, hidden: int = 512, spread: float = 1.0, std: float = 1.0) -> None:
        super().__init__()
        check_size("hidden", hidden)
        sizes = (width, hidden, hidden, 2 * dim)
        layers = [SpectralLinear(inputs, outputs) for inputs, outputs in itertools.pairwise(sizes)]
        for layer in layers:
            with one_thread():  # several factorise to other last digits, and another training begins
                nn.init.orthogonal_(layer.weight)
            nn.init.zeros_(layer.bias)
        self.layers = nn.Sequential(*layers)
        self.gain = nn.Parameter(torch.cat((torch.full((dim,), spread), torch.zeros(dim))))
        self.offset = nn.Parameter(torch.cat((torch.zeros(dim), torch.full((dim,), math.log(std)))))

    def forward(self, encoding: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = (self.gain * self.layers(encoding) + self.offset).chunk(2, dim=-1)
        return mean, log_std.clamp(-8, 8).exp()
