"""The categorical memory: every code is one of the slots plus noise.

    M ~ MN(R0, slot_var I, I),  s_t ~ Cat(1/K),  z_t ~ N(row s_t of M, s2 I)

VBM, theorem 2 (C.2). U stays diagonal, so no K x K matrix is ever built.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from mnemon.core.linalg import as_scalar
from mnemon.core.state import State, rank
from mnemon.distributions.categorical import categorical_kl, draw_category
from mnemon.distributions.gaussian import standard_normal_like
from mnemon.memories.base import LatentMemory
from mnemon.memories.fitting import check_event_shapes, unknown_start
from mnemon.memories.frames import Frames
from mnemon.memories.records import Explanation
from mnemon.memories.seeding import pick_kmeans, pick_random
from mnemon.memories.sweeps import ItemSweeps, Sums, Sweeps


@dataclass(frozen=True, eq=False)
class CategoricalState(State):
    """q(M): row k is N(R_k, U_diag_k I). Shapes: R (*B, K, C), U_diag (*B, K)"""

    R: Tensor = field(metadata=rank(2))
    U_diag: Tensor = field(metadata=rank(1))

    @classmethod
    def from_moments(cls, *, R: Tensor, U: Tensor) -> CategoricalState:
        """U is the diagonal, with one dimension less than R, or a matrix of which the diagonal is taken."""
        diagonal = U.diagonal(dim1=-2, dim2=-1) if U.ndim == R.ndim else U
        leading = torch.broadcast_shapes(R.shape[:-2], diagonal.shape[:-1])
        return cls(R.expand(leading + R.shape[-2:]), diagonal.expand(leading + diagonal.shape[-1:]))

    @property
    def U(self) -> Tensor:
        """As a matrix, for those who ask. Shapes: -> (*B, K, K)"""
        return torch.diag_embed(self.U_diag)

    def kl(self, prior: CategoricalState) -> Tensor:
        """KL(q(M) || p(M)). Shapes: -> (*B)"""
        C = self.R.shape[-1]
        ratio = self.U_diag / prior.U_diag
        gap = (self.R - prior.R).square().sum(-1) / prior.U_diag
        return 0.5 * (C * (ratio - 1 - ratio.log()) + gap).sum(-1)


@dataclass(frozen=True, eq=False)
class CategoricalAddress(State):
    """q(s_t = k) = theta_t[k]. Shapes: log_theta (*B, T, K)"""

    log_theta: Tensor = field(metadata=rank(2))

    @property
    def theta(self) -> Tensor:
        return self.log_theta.exp()


@dataclass(frozen=True, eq=False)
class SlotSums(Sums):
    """Sums over items that the M step and the bound need, codes measured from the mean of the rows.

    Shapes: count, address_kl (*B, K), z (*B, K, C), square (*B, K)
    """

    count: Tensor
    z: Tensor
    square: Tensor
    address_kl: Tensor


@dataclass(frozen=True, eq=False)
class CategoricalMemory(LatentMemory):
    """Memory of `num_slots` prototypes with a uniform prior over them."""

    state_class: ClassVar[type[State]] = CategoricalState
    address_class: ClassVar[type[State]] = CategoricalAddress
    default_steps: ClassVar[int] = 2

    def _prior(self, dtype: torch.dtype | None, device: torch.device | None) -> CategoricalState:
        slot_var = as_scalar(self.slot_var, dtype=dtype, device=device)
        return CategoricalState(self._mean_of_slots(dtype, device), slot_var.expand(self.num_slots))

    def _address(self, state: CategoricalState, codes: Tensor) -> CategoricalAddress:
        """theta_t = softmax((R z - 1/2 diag(A)) / s2)."""
        return CategoricalAddress(self._slot_scores(state, codes).log_softmax(-1))

    def _update(self, address: CategoricalAddress, frames: Frames, prior: CategoricalState) -> CategoricalState:
        origin = prior.replace(R=torch.zeros_like(prior.R))
        return self._m_step(origin, _collect(origin, frames, address.log_theta), prior)

    def _misfit(self, state: CategoricalState, codes: Tensor, address: CategoricalAddress) -> tuple[Tensor, Tensor]:
        square = (address.theta * self._expected_square(state, codes)).sum(-1)
        return square, categorical_kl(address.log_theta).sum(-1)

    def _memory_kl(self, state: CategoricalState, prior: CategoricalState) -> Tensor:
        return state.kl(prior)

    def _sample(
        self, state: CategoricalState, n: int, noise_var: float | Tensor, generator: torch.Generator | None
    ) -> Tensor:
        R = state.R
        slot = torch.randint(self.num_slots, (*state.batch_shape, n), device=R.device, generator=generator)
        mean = R.gather(-2, slot[..., None].expand(*slot.shape, self.code_dim))
        variance = state.U_diag.gather(-1, slot) + noise_var
        draw = torch.randn(mean.shape, dtype=R.dtype, device=R.device, generator=generator)
        return mean + variance.sqrt()[..., None] * draw

    def _scores(self, state: CategoricalState, codes: Tensor) -> Tensor:
        return self._slot_scores(state, codes).logsumexp(-1) - math.log(self.num_slots)

    def _density_scores(self, state: CategoricalState, codes: Tensor) -> Tensor:
        return self._scores(state.replace(U_diag=torch.zeros_like(state.U_diag)), codes)

    def _slot_scores(self, state: CategoricalState, codes: Tensor) -> Tensor:
        """-E|z - row k|^2 / (2 s2). Shapes: -> (*B, T, K)"""
        return -0.5 * self._expected_square(state, codes) / self.noise_var

    def _expected_square(self, state: CategoricalState, codes: Tensor) -> Tensor:
        """E|z - row k|^2, centred on the mean row so that float32 keeps its digits. Shapes: -> (*B, T, K)"""
        centre = state.R.mean(-2, keepdim=True)
        codes, R = codes - centre, state.R - centre
        spread = R.square().sum(-1) + self.code_dim * state.U_diag
        return codes.square().sum(-1, keepdim=True) - 2 * codes @ R.mT + spread[..., None, :]

    def _explain(self, state: CategoricalState, codes: Tensor, generator: torch.Generator | None) -> Explanation:
        log_theta = self._address(state, codes).log_theta
        slot = draw_category(log_theta, generator)
        mean = state.R.gather(-2, slot[..., None].expand(*slot.shape, self.code_dim))
        variance = state.U_diag.gather(-1, slot) + self.noise_var
        log_ratio = -math.log(self.num_slots) - log_theta.gather(-1, slot[..., None])[..., 0]
        return Explanation(mean, variance[..., None], log_ratio)

    def _draw(self, state: CategoricalState, generator: torch.Generator | None) -> CategoricalState:
        noise = standard_normal_like(state.R, state.R.shape, generator)
        return CategoricalState(state.R + state.U_diag.sqrt()[..., None] * noise, torch.zeros_like(state.U_diag))

    def _drawn_square(
        self, drawn: CategoricalState, codes: Tensor, address: CategoricalAddress, generator: torch.Generator | None
    ) -> Tensor:
        return self._misfit(drawn, codes, address)[0]

    def _expected(self, state: CategoricalState, address: CategoricalAddress) -> Tensor:
        return address.theta @ state.R

    def _mean_code(self, state: CategoricalState) -> Tensor:
        return state.R.mean(-2)

    def _check_state(self, where: str, state: Any) -> None:
        K = self.num_slots
        check_event_shapes(where, state, CategoricalState, {"R": (K, self.code_dim), "U_diag": (K,)})

    def _default_start(self, prior: State | None) -> str:
        """Also where a prior is given: its slots that nothing was written into are all alike."""
        return "random"

    def _start(
        self, init: str, prior: CategoricalState, frames: Frames, generator: torch.Generator | None
    ) -> CategoricalState:
        """ "random" or "kmeans++": empty slots at items, U = I/C, no item at two of them, the other slots as in the
        prior. "prior": q = p, where empty slots are all alike and stay so.

        A slot is empty if it holds less than half an item. Two slots at one item would share it for ever.
        """
        if init == "prior":
            return prior
        pick = {"random": pick_random, "kmeans++": pick_kmeans}.get(init)
        if pick is None:
            raise unknown_start(init, ("random", "kmeans++", "prior"))
        picked = pick(frames, self.num_slots, generator)
        empty = self.noise_var * (1 / prior.U_diag - 1 / self.slot_var) < 0.5
        place = empty.cumsum(-1) - 1
        taken = empty & (place < frames.num_present[..., None])
        place = place.clamp(min=0).expand(picked.shape[:-1])
        R = picked.gather(-2, place[..., None].expand(picked.shape))
        return CategoricalState(
            torch.where(taken[..., None], R, prior.R), torch.where(taken, 1 / self.code_dim, prior.U_diag)
        )

    def _sweeps(
        self,
        frames: Frames,
        prior: CategoricalState,
        start: CategoricalState,
        chunk_size: int | None,
        fresh: bool,
    ) -> Sweeps:
        return ItemSweeps(self, frames, prior, start, chunk_size)

    # -- the steps of ItemSweeps -------------------------------------------------------------------

    def _posterior(self, state: CategoricalState) -> CategoricalState:
        return state

    def _natural(self, prior: CategoricalState) -> CategoricalState:
        return prior

    def _e_step(self, state: CategoricalState, frames: Frames, want_bound: bool) -> tuple[CategoricalAddress, SlotSums]:
        log_theta = self._slot_scores(state, frames.mean).log_softmax(-1)
        return CategoricalAddress(log_theta), _collect(state, frames, log_theta)

    def _finished(self, address: CategoricalAddress) -> CategoricalAddress:
        return address

    def _m_step(self, addressed: CategoricalState, sums: SlotSums, prior: CategoricalState) -> CategoricalState:
        U_diag = 1 / (1 / prior.U_diag + sums.count / self.noise_var)
        total = sums.z + sums.count[..., None] * addressed.R.mean(-2, keepdim=True)
        R = U_diag[..., None] * (prior.R / prior.U_diag[..., None] + total / self.noise_var)
        return CategoricalState(R, U_diag)

    def _fit(self, addressed: CategoricalState, sums: SlotSums, state: CategoricalState) -> Tensor:
        R = state.R - addressed.R.mean(-2, keepdim=True)
        spread = R.square().sum(-1) + self.code_dim * state.U_diag
        square = sums.square - 2 * (R * sums.z).sum(-1) + sums.count * spread
        return (-0.5 * square / self.noise_var - sums.address_kl).sum(-1)

    def _state(self, state: CategoricalState) -> CategoricalState:
        return state


def _collect(addressed: CategoricalState, frames: Frames, log_theta: Tensor) -> SlotSums:
    """Sum the items each slot takes, measured from the mean row of `addressed`."""
    codes = frames.mean - addressed.R.mean(-2, keepdim=True)
    theta = frames.count(log_theta.exp())
    return SlotSums(
        count=theta.sum(-2),
        z=theta.mT @ codes,
        square=(theta.mT @ codes.square().sum(-1, keepdim=True))[..., 0],
        address_kl=frames.count(categorical_kl(log_theta)).sum(-2),
    )
