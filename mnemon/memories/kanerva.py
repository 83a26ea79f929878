"""The Dynamic Kanerva Machine's memory: least-squares addresses, Bayesian writes.

    w = (R R' + s2 I)^-1 R z,  q(w) = N(w, address_var I)

Same prior as the linear-Gaussian memory, without shift. Online, each item is addressed in the memory that
the items before it left, so the order matters and the bound need not rise. Wu et al., 2018.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from mnemon.core.checks import check_positive
from mnemon.core.linalg import as_scalar, inverse_alone, safe_cholesky
from mnemon.core.state import Record, State, rank
from mnemon.distributions.gaussian import standard_normal_like
from mnemon.memories import linear_gaussian as lg
from mnemon.memories.draws import drawn_square
from mnemon.memories.fitting import check_event_shapes
from mnemon.memories.frames import Frames
from mnemon.memories.one_cluster import OneClusterMemory
from mnemon.memories.online import write_online
from mnemon.memories.records import Explanation
from mnemon.memories.sweeps import Sweeps


@dataclass(frozen=True, eq=False)
class KanervaState(lg.SlotState):
    """q(M) = MN(R, U, I). Shapes: R (*B, K, C), U_chol (*B, K, K)"""

    R: Tensor = field(metadata=rank(2))
    U_chol: Tensor = field(metadata=rank(2))


@dataclass(frozen=True, eq=False)
class KanervaAddress(State):
    """q(w_t) = N(w_t, address_var I). Shapes: w (*B, T, K)"""

    w: Tensor = field(metadata=rank(2))


@dataclass(frozen=True, eq=False)
class KanervaMemory(OneClusterMemory):
    """Dynamic Kanerva Machine. `online=True` writes item by item; else all items are addressed, then written,
    `num_steps` times over. `address_var` is the variance of q(w), which no inference chooses."""

    address_var: float | Tensor = field(default=0.3, kw_only=True)
    online: bool = field(default=True, kw_only=True)

    state_class: ClassVar[type[State]] = KanervaState
    address_class: ClassVar[type[State]] = KanervaAddress
    default_steps: ClassVar[int] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("address_var", self.address_var)

    def best_address_var(self, state: KanervaState) -> Tensor:
        """The scalar variance of q(w) that maximises the bound: K / (tr A / s2 + K). Shapes: -> (*B)"""
        self._check_state("best_address_var", state)
        trace = state.slots.second_moment.diagonal(dim1=-2, dim2=-1).sum(-1)
        return self.num_slots / (trace / self.noise_var + self.num_slots)

    def _prior(self, dtype: torch.dtype | None, device: torch.device | None) -> KanervaState:
        return KanervaState(*lg.prior_slots(self, dtype, device))

    def _address(self, state: KanervaState, codes: Tensor) -> KanervaAddress:
        return KanervaAddress(self._regress(state.R, codes))

    def _update(self, address: KanervaAddress, frames: Frames, prior: KanervaState) -> KanervaState:
        """Bayesian regression of all codes on fixed addresses; writing them one by one gives the same."""
        return KanervaState.from_slots(self._regress_memory(address.w, frames, lg.NaturalPrior.of(prior)))

    def _misfit(self, state: KanervaState, codes: Tensor, address: KanervaAddress) -> tuple[Tensor, Tensor]:
        weights = self._weights(address.w)
        return lg.expected_square(state.cluster, codes, weights)[..., 0], weights.kl[..., 0]

    def _scores(self, state: KanervaState, codes: Tensor) -> Tensor:
        square, address_kl = self._misfit(state, codes, self._address(state, codes))
        return -0.5 * square / self.noise_var - address_kl

    def _explain(self, state: KanervaState, codes: Tensor, generator: torch.Generator | None) -> Explanation:
        mean = self._regress(state.R, codes)
        noise = standard_normal_like(mean, mean.shape, generator)
        variance = as_scalar(self.address_var, dtype=mean.dtype, device=mean.device)
        w = mean + variance.sqrt() * noise
        log_ratio = 0.5 * (noise.square().sum(-1) - w.square().sum(-1) + self.num_slots * variance.log())
        explained, spread = lg.explain(state.cluster, torch.zeros_like(w[..., 0], dtype=torch.long), w)
        return Explanation(explained, (spread + self.noise_var)[..., None], log_ratio)

    def _drawn_square(
        self, drawn: KanervaState, codes: Tensor, address: KanervaAddress, generator: torch.Generator | None
    ) -> Tensor:
        w_chol = safe_cholesky(self._weights(address.w).Sigma_w)
        return drawn_square(drawn.cluster, codes, address.w[..., None, :], w_chol, generator)[..., 0]

    def _expected(self, state: KanervaState, address: KanervaAddress) -> Tensor:
        return address.w @ state.R

    def _mean_code(self, state: KanervaState) -> Tensor:
        return torch.zeros_like(state.R[..., 0, :])

    def _regress(self, R: Tensor, codes: Tensor) -> Tensor:
        """w = (R R' + s2 I)^-1 R z. Shapes: codes (*B, T, C) -> (*B, T, K)"""
        return codes @ R.mT @ self._gram_inverse(R)

    def _gram_inverse(self, R: Tensor) -> Tensor:
        """(R R' + s2 I)^-1. Shapes: (*B, K, C) -> (*B, K, K)"""
        eye = torch.eye(R.shape[-2], dtype=R.dtype, device=R.device)
        return inverse_alone(R @ R.mT + self.noise_var * eye)

    def _regress_memory(self, w: Tensor, frames: Frames, prior: lg.NaturalPrior) -> lg.Slots:
        counted = frames.count(w)
        U = inverse_alone(prior.precision + counted.mT @ w / self.noise_var)
        return lg.Slots(U @ (prior.precision_mean + counted.mT @ frames.mean / self.noise_var), U)

    def _weights(self, w: Tensor) -> lg.Weights:
        """q(w) in the shape of the linear-Gaussian algebra."""
        eye = torch.eye(self.num_slots, dtype=w.dtype, device=w.device)
        variance = as_scalar(self.address_var, dtype=w.dtype, device=w.device)
        log_det = (self.num_slots * variance.log()).expand(*w.shape[:-2], 1)
        return lg.Weights(w[..., None, :], (variance * eye).expand(*w.shape[:-2], 1, *eye.shape), log_det)

    def _check_state(self, where: str, state: Any) -> None:
        K = self.num_slots
        check_event_shapes(where, state, KanervaState, {"R": (K, self.code_dim), "U_chol": (K, K)})

    def _default_start(self, prior: State | None) -> str:
        """From equal rows, R0 = 0, every address is 0, and stays it."""
        symmetric = isinstance(self.slot_mean, int | float) and self.slot_mean == 0
        return "random" if prior is None and symmetric else "prior"

    def _check_write(self, num_steps: int, chunk_size: int | None) -> None:
        if self.online and num_steps != 1:
            raise ValueError(
                f"num_steps: expected 1 for an online write, got {num_steps}; a second pass would count every "
                "item twice. Use online=False to iterate"
            )
        if chunk_size is not None:
            raise ValueError(
                "chunk_size: the Kanerva write goes item by item (online) or addresses all items at once (batched); "
                "leave chunk_size out"
            )

    def _sweeps(
        self, frames: Frames, prior: KanervaState, start: KanervaState, chunk_size: int | None, fresh: bool
    ) -> Sweeps:
        return KanervaSweeps(self, frames, prior, start)


@dataclass(frozen=True, eq=False)
class KanervaCarry(Record):
    """Shapes: R (*B, K, C), U (*B, K, K), w (*B, T, K)"""

    R: Tensor
    U: Tensor
    w: Tensor | None = None


class KanervaSweeps:
    """One pass of online writes, or one round of addressing all items and writing them from the prior."""

    def __init__(self, memory: KanervaMemory, frames: Frames, prior: KanervaState, start: KanervaState) -> None:
        self.memory, self.frames, self.prior, self.first = memory, frames, prior, start
        self.natural = lg.NaturalPrior.of(prior)

    def start(self) -> KanervaCarry:
        return KanervaCarry(self.first.R, self.first.U)

    def sweep(self, carry: KanervaCarry, want_bound: bool) -> tuple[KanervaCarry, Tensor | None]:
        new = self._online(carry) if self.memory.online else self._batched(carry)
        if not want_bound or new.w is None:
            return new, None
        state = KanervaState.from_slots(lg.Slots(new.R, new.U))
        square, address_kl = self.memory._misfit(state, self.frames.mean, KanervaAddress(new.w))
        s2 = self.memory.noise_var
        per_item = self.frames.constant(s2) - 0.5 * square / s2 - address_kl
        return new, self.frames.count(per_item).sum(-1) - state.kl(self.prior)

    def _batched(self, carry: KanervaCarry) -> KanervaCarry:
        w = self.memory._regress(carry.R, self.frames.mean)
        slots = self.memory._regress_memory(w, self.frames, self.natural)
        return KanervaCarry(slots.R, slots.U, w)

    def _online(self, carry: KanervaCarry) -> KanervaCarry:
        """Items are addressed in a memory that begins at the start, and written into one that begins at the prior."""
        given, leading = self.frames.mean.dtype, self.frames.batch_shape
        # subtracting from U loses its positive definiteness in float32 after some hundred items
        exact = given if self.frames.mean.device.type == "mps" else torch.float64
        parts = [part.to(exact).expand(*leading, -1, -1) for part in (carry.R, self.prior.R, self.prior.U)]
        slab = torch.cat(parts, dim=-1).reshape(-1, self.memory.num_slots, sum(part.shape[-1] for part in parts))
        codes = self.frames.mean.to(exact).reshape(-1, *self.frames.mean.shape[-2:])
        C, counts = codes.shape[-1], self.frames.counts
        counts = None if counts is None else counts.to(exact).reshape(codes.shape[:-1])
        noise_var = as_scalar(self.memory.noise_var, dtype=exact, device=codes.device)
        after, w = write_online(codes, slab, self.memory._gram_inverse(slab[..., :C]), noise_var, counts)
        R, U = after[..., C : 2 * C], after[..., 2 * C :]
        return KanervaCarry(*(part.to(given).reshape(*leading, *part.shape[-2:]) for part in (R, U, w)))

    def finish(self, carry: KanervaCarry) -> tuple[KanervaState, KanervaAddress | None]:
        state = KanervaState(carry.R, safe_cholesky(carry.U))
        return state, None if carry.w is None else KanervaAddress(carry.w)
