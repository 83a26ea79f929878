"""Fully connected nets of three layers with a connection from the first to the last, as the thesis has them."""

from __future__ import annotations

from torch import Tensor, nn

from mnemon.core.checks import check_size

RESIDUAL_WIDTH = 128
"""Units of a hidden layer, and size of an encoding. Thesis, 5.3.1."""


class ResidualMLP(nn.Module):
    """out(relu(h_1 + f(h_1))), with h_1 = relu(norm(first(x))) and f the other layers, each normalised.

    Differs from paper: layer normalisation in place of batch normalisation, so that what is inferred of a set does not
    depend on which sets share its batch.

    Shapes: (..., inputs) -> (..., outputs). Thesis, 5.3.1
    """

    def __init__(self, inputs: int, outputs: int, *, hidden: int = RESIDUAL_WIDTH, num_layers: int = 3) -> None:
        super().__init__()
        for name, size in (("inputs", inputs), ("outputs", outputs), ("hidden", hidden), ("num_layers", num_layers)):
            check_size(name, size)
        self.first = nn.Sequential(nn.Linear(inputs, hidden), nn.LayerNorm(hidden), nn.ReLU())
        branch: list[nn.Module] = []
        for _ in range(num_layers - 1):
            branch += [nn.Linear(hidden, hidden), nn.LayerNorm(hidden), nn.ReLU()]
        self.branch = nn.Sequential(*branch[:-1])
        self.out = nn.Sequential(nn.ReLU(), nn.Linear(hidden, outputs))

    def forward(self, x: Tensor) -> Tensor:
        start = self.first(x)
        return self.out(start + self.branch(start))
