"""What goes into a memory: codes of an episode's items."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from mnemon.core.state import State, rank


@dataclass(frozen=True, eq=False)
class Codes(State):
    """Gaussian codes q(z_t) = N(mean_t, diag(std_t^2)) of an episode's items.

    Give a memory a plain Tensor when the vectors themselves are observed, and Codes when an encoder
    inferred them: the bound then holds KL(q(z) || p(z | y, memory)) in place of the density of z.

    Shapes: mean (*B, T, C), std (*B, T, C)
    """

    mean: Tensor = field(metadata=rank(2))
    std: Tensor = field(metadata=rank(2))

    def rsample(self, generator: torch.Generator | None = None) -> Tensor:
        """One reparameterised draw of every code. Shapes: -> (*B, T, C)"""
        noise = torch.randn(self.mean.shape, dtype=self.mean.dtype, device=self.mean.device, generator=generator)
        return self.mean + self.std * noise
