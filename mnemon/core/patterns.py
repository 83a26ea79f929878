"""Which properties of a data set may be constant together."""

from __future__ import annotations

import itertools
from typing import Literal

import torch
from torch import Tensor

Constant = Literal["one", "any"]


def constant_patterns(num_factors: int, constant: Constant) -> Tensor:
    """Which factors may be constant together: exactly one, or any of them, also none or all.

    Shapes: -> bool (F, F), or (2^F, F). Thesis, 6.1.1
    """
    if num_factors < 1:
        raise ValueError(f"constant_patterns: expected at least one factor, got {num_factors}")
    if constant == "one":
        return torch.eye(num_factors, dtype=torch.bool)
    return torch.tensor(list(itertools.product((False, True), repeat=num_factors)))
