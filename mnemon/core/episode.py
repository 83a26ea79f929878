"""What goes into a memory: codes of an episode's items, and which of them are written and scored."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from mnemon.core.state import Record, State, rank


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


@dataclass(frozen=True, eq=False)
class Roles(Record):
    """Places in an episode of the items that are written, and of those that are scored; None: all of them.

    An item may have both roles, one, or none, and may be scored more than once. `constant` tells what the items of an
    episode have in common, for episodes made of known factors.

    Shapes: written int64 (*B, W), scored int64 (*B, Q), constant bool (*B, F)
    """

    written: Tensor | None = None
    scored: Tensor | None = None
    constant: Tensor | None = None

    def write_mask(self, shape: torch.Size) -> Tensor:
        """True where an item is written. Shapes: -> (*B, T)"""
        if self.written is None:
            return torch.ones(shape, dtype=torch.bool)
        everything = torch.ones_like(self.written, dtype=torch.bool)
        return torch.zeros(shape, dtype=torch.bool, device=self.written.device).scatter(-1, self.written, everything)


EVERY_ROLE = Roles()
"""All items are written and scored."""
