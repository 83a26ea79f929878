"""A Hopfield network as an energy that can be written and read by gradients. Ours, not the paper's.

Units s = 2 x - 1 feel fields of symmetric couplings W without a diagonal and of thresholds b, which saturate:

    h = W s + b,    f_j = a tanh(h_j / a),    E(s) = sum_j softplus(beta (kappa - s_j f_j)) / beta + c |s|^2 / 2

A unit that agrees with its field by the margin kappa costs nothing; one that does not pays for what is missing. Writing
therefore moves couplings only for units that do not hold yet: from W = 0 its first step is Hebb's rule, and the next
ones learn a network of large margins, as a perceptron in every unit would, but symmetric. Reading moves an unstable
unit towards the sign of its field, and stable ones little. Design, section 11; docs/energy.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mnemon.memories.fast_weights import inverse_softplus
from mnemon.nets.energy import EnergyNet

MARGIN, SHARPNESS, CEILING, CONFINEMENT = 1.0, 4.0, 2.5, 0.3
"""Before training: kappa, beta, a and c for fields of size 1. Those of couplings of size 1 grow with sqrt(D)."""


class PairwiseEnergy(EnergyNet):
    """The energy above, of D pixels: D (D - 1) / 2 couplings and D thresholds are written, and only kappa, beta, a, c
    (and where writing starts from) are learned.

    Fields are sums of D products of couplings about 1, so kappa, 1 / beta, a and c are learned in units of sqrt(D).

    The ceiling a makes few patterns as easy as many: a write averages over its patterns, so each of a few is written
    far beyond the margin, and without it such fields would throw right units over in the first step of a read.

    Shapes: (N, *X) -> (N)
    """

    def __init__(self, image_shape: Sequence[int]) -> None:
        super().__init__(image_shape)
        size = math.prod(image_shape)
        if size < 2:
            raise ValueError(f"image_shape: expected at least two pixels to couple, got {tuple(image_shape)}")
        self.unit = math.sqrt(size)
        self.memory = nn.Sequential(Couplings(size), Thresholds(size))
        positive = {"margin": MARGIN, "sharpness": SHARPNESS, "ceiling": CEILING}
        self.raw = nn.ParameterDict(
            {name: nn.Parameter(torch.tensor(inverse_softplus(value))) for name, value in positive.items()}
        )
        self.confinement = nn.Parameter(torch.tensor(CONFINEMENT))

    def forward(self, x: Tensor) -> Tensor:
        units = 2 * x.flatten(1) - 1
        margin, sharpness, ceiling = (F.softplus(self.raw[name]) for name in ("margin", "sharpness", "ceiling"))
        fields = ceiling * torch.tanh(self.memory(units) / (self.unit * ceiling))
        missing = F.softplus(sharpness * (margin - units * fields)) / sharpness
        energies: Tensor = self.unit * (missing + 0.5 * self.confinement * units.square()).sum(-1)
        return energies


class Couplings(nn.Module):
    """A symmetric matrix with a diagonal of zeros, kept as one number for each pair.

    Shapes: (N, D) -> (N, D)
    """

    index: Tensor
    pairs: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        row, column = torch.triu_indices(size, size, 1).unbind()
        index = torch.zeros(size, size, dtype=torch.int64)
        index[row, column] = index[column, row] = torch.arange(len(row))
        self.weight = nn.Parameter(torch.zeros(len(row)))
        self.register_buffer("index", index.flatten(), persistent=False)
        self.register_buffer("pairs", 1 - torch.eye(size), persistent=False)

    def forward(self, units: Tensor) -> Tensor:
        return units @ self.matrix()

    def matrix(self) -> Tensor:
        """Shapes: -> (D, D)"""
        return self.weight.index_select(0, self.index).view(self.pairs.shape) * self.pairs


class Thresholds(nn.Module):
    """Shapes: (N, D) -> (N, D)"""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(size))

    def forward(self, fields: Tensor) -> Tensor:
        return fields + self.bias
