"""q(M) and q(b) of the linear-Gaussian memories: as the sweeps iterate on them, and as states keep them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor

from mnemon.core.linalg import safe_cholesky
from mnemon.core.state import Record, State
from mnemon.distributions.gaussian import DiagonalGaussian
from mnemon.distributions.matrix_normal import MatrixNormal


@dataclass(frozen=True, eq=False)
class Slots(Record):
    """q(M) = MN(R, U, I) and q(b) = N(mu_b, v_b I), as the sweeps iterate on them.

    Shapes: R (..., K, C), U (..., K, K), mu_b (..., C), v_b (...); no b: mu_b and v_b are None
    """

    R: Tensor
    U: Tensor
    mu_b: Tensor | None = None
    v_b: Tensor | None = None

    @property
    def second_moment(self) -> Tensor:
        """A = E[M M'] = R R' + C U. Shapes: -> (..., K, K)"""
        return self.R @ self.R.mT + self.R.shape[-1] * self.U


class SlotState(State):
    """Base of the states that hold q(M) and q(b): they differ only in their cluster dimensions."""

    if TYPE_CHECKING:  # the fields are the subclasses', each with its own rank
        R: Tensor
        U_chol: Tensor
        mu_b: Tensor | None
        v_b: Tensor | None
    else:
        mu_b = v_b = None  # of states without a location

    @classmethod
    def from_moments(cls, *, R: Tensor, U: Tensor, mu_b: Tensor | None = None, v_b: Tensor | None = None) -> Self:
        """A state from means and covariances; batch dimensions are broadcast together."""
        return cls.from_slots(Slots(R, U, mu_b, v_b))

    @classmethod
    def from_slots(cls, slots: Slots, **others: Tensor) -> Self:
        ranks = cls._event_ranks()
        parts = {"R": slots.R, "U_chol": safe_cholesky(slots.U), "mu_b": slots.mu_b, "v_b": slots.v_b}
        present = {name: part for name, part in parts.items() if part is not None}
        leading = torch.broadcast_shapes(*(p.shape[: p.ndim - ranks[name]] for name, p in present.items()))
        expanded = {
            name: part.expand(leading + part.shape[part.ndim - ranks[name] :]) for name, part in present.items()
        }
        return cls(**expanded, **others)

    @property
    def U(self) -> Tensor:
        return self.U_chol @ self.U_chol.mT

    @property
    def slots(self) -> Slots:
        return Slots(self.R, self.U, self.mu_b, self.v_b)

    @property
    def cluster(self) -> Slots:
        """The slots as a cluster dimension of one, for states that have none."""
        return self.slots.map(lambda tensor: tensor.unsqueeze(len(self.batch_shape)))

    def kl(self, prior: SlotState) -> Tensor:
        """KL(q(M) q(b) || p(M) p(b)), one per cluster. Shapes: -> (*B, [H])"""
        kl = MatrixNormal(self.R, self.U_chol).kl(MatrixNormal(prior.R, prior.U_chol))
        if self.mu_b is None or self.v_b is None or prior.mu_b is None or prior.v_b is None:
            return kl
        width = self.mu_b.shape[-1]
        q_b = DiagonalGaussian(self.mu_b, self.v_b.sqrt()[..., None].expand(*self.v_b.shape, width))
        p_b = DiagonalGaussian(prior.mu_b, prior.v_b.sqrt()[..., None].expand(*prior.v_b.shape, width))
        return kl + q_b.kl(p_b)
