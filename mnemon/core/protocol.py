"""The named parts of a lower bound, and a bound that carries its kind."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor

from mnemon.core.state import STATIC, Record, State, rank


@dataclass(frozen=True, eq=False)
class Terms(State):
    """The four parts of the bound on log p(episode), in nats, with every constant kept.

    joint = sum_t n_t (reconstruction_t - code_kl_t - address_kl_t) - memory_kl, where n_t counts item t
    (its weight; 0 when masked). On observed vectors, reconstruction is E log p(z|y, memory) and code_kl
    is 0; on stochastic codes without a decoder, reconstruction is 0.

    Shapes: reconstruction, code_kl, address_kl, counts (*B, T); memory_kl (*B)
    """

    reconstruction: Tensor = field(metadata=rank(1))
    code_kl: Tensor = field(metadata=rank(1))
    address_kl: Tensor = field(metadata=rank(1))
    memory_kl: Tensor | None = field(default=None, metadata=rank(0))
    counts: Tensor | None = field(default=None, metadata=rank(1))

    @property
    def conditional(self) -> Tensor:
        """Bound on log p(episode | memory). Shapes: -> (*B)"""
        per_item = self.reconstruction - self.code_kl - self.address_kl
        return (per_item if self.counts is None else self.counts * per_item).sum(-1)

    @property
    def joint(self) -> Tensor:
        """Bound on log p(episode). Shapes: -> (*B)"""
        if self.memory_kl is None:
            raise ValueError(
                "joint: this memory is computed from the episode without a posterior of its own, so it has "
                "no memory_kl and bounds only log p(episode | memory); use .conditional"
            )
        return self.conditional - self.memory_kl

    @property
    def per_frame(self) -> Tensor:
        """The joint bound divided by the number of items counted. Shapes: -> (*B)"""
        return self.joint / (self.reconstruction.shape[-1] if self.counts is None else self.counts.sum(-1))


@dataclass(frozen=True, eq=False)
class Bound(Record):
    """A lower bound on a log-likelihood, with the kind of bound it is.

    Shapes: value (*B, Q)
    """

    value: Tensor
    kind: Literal["elbo", "iwae"] = field(default="elbo", metadata=STATIC)
    num_samples: int = field(default=1, metadata=STATIC)
