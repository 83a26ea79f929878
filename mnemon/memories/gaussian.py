"""The linear-Gaussian memory: every code is a weighted sum of slots, plus a shift if asked, plus noise.

    M ~ MN(R0, U0, I),  b ~ N(mu_b0, v_b0 I),  w_t ~ N(0, I),  z_t ~ N(M'w_t + b, s2 I)

VBM, theorem 1 (C.1), and with `shift=True` theorem 3 (C.3). The sweeps see the codes only through their
count, mean and scatter, so after one pass over the items they cost nothing in T.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from mnemon.core.checks import check_positive, check_size
from mnemon.core.episode import Codes
from mnemon.core.protocol import Bound, Terms
from mnemon.core.state import State
from mnemon.memories import linear_gaussian as lg
from mnemon.memories.base import SweptMemory, Written, check_event_shapes, unknown_start
from mnemon.memories.frames import Frames
from mnemon.memories.gaussian_sweeps import GaussianAddress, GaussianState, ScatterSweeps, SpanSweeps
from mnemon.memories.sweeps import Sweeps


@dataclass(frozen=True, eq=False)
class GaussianMemory(SweptMemory):
    """Linear-Gaussian memory of `num_slots` rows; `shift=True` adds a location b with prior N(mu_b0, v_b0 I)."""

    shift: bool = field(default=False, kw_only=True)
    location_var: float | Tensor = field(default=1.0, kw_only=True)
    location_mean: float | Tensor = field(default=0.0, kw_only=True)

    state_class: ClassVar[type[State]] = GaussianState
    default_steps: ClassVar[int] = 50

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("location_var", self.location_var)

    def prior(
        self,
        batch_shape: tuple[int, ...] = (),
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | None = None,
    ) -> GaussianState:
        """MN(R0, slot_var I, I) and N(location_mean, location_var I)."""
        R, U_chol = lg.prior_slots(self, dtype, device)
        state = GaussianState(R, U_chol)
        if self.shift:
            mu_b = torch.as_tensor(self.location_mean, dtype=dtype, device=device).expand(self.code_dim)
            state = state.replace(mu_b=mu_b, v_b=torch.as_tensor(self.location_var, dtype=dtype, device=device))
        return state.expand(batch_shape)

    def address(self, state: GaussianState, codes: Tensor | Codes) -> GaussianAddress:
        """q(w_t) under a state. Shapes: codes (*B, T, C)"""
        frames = self._read_frames("address", state, codes)
        weights, _ = lg.address(state.cluster, frames.mean, self.noise_var)
        return GaussianAddress(weights.mu_w[..., 0, :], weights.Sigma_w[..., 0, :, :], state.R if self.shift else None)

    def update(
        self,
        address: GaussianAddress,
        codes: Tensor | Codes,
        *,
        prior: GaussianState | None = None,
        mask: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> GaussianState:
        """q(b), then q(M), given q(w_t) of all codes. Shapes: codes (*B, T, C)"""
        frames = Frames.gather("update", codes, self.code_dim, mask, weights)
        prior = self._prior_like(frames) if prior is None else prior
        depth = len(frames.batch_shape)
        one = torch.ones((*frames.mean.shape[:-1], 1), dtype=frames.mean.dtype, device=frames.mean.device)
        natural = lg.NaturalPrior.of(prior).map(lambda tensor: tensor.unsqueeze(len(prior.batch_shape)))
        R = None if address.R is None else address.R.unsqueeze(depth)
        slots = lg.update(frames, _weights(address), one, R, natural, self.noise_var)
        return GaussianState.from_slots(slots.map(lambda tensor: tensor.squeeze(depth)))

    def terms(self, codes: Tensor | Codes, written: Written) -> Terms:
        frames = self._written_frames(codes, written)
        state = written.state
        weights = _weights(self.address(state, frames.mean) if written.address is None else written.address)
        square = lg.expected_square(state.cluster, frames.mean, weights)[..., 0]
        fit = frames.constant(self.noise_var) - 0.5 * square / self.noise_var
        return frames.terms(fit, weights.kl[..., 0], state.kl(self._prior_of(written, frames)))

    def sample(
        self, state: GaussianState, n: int = 1, *, noise: bool = True, generator: torch.Generator | None = None
    ) -> Tensor:
        check_size("n", n)
        self._check_state("sample", state)
        cluster = torch.zeros((*state.batch_shape, n), dtype=torch.long, device=state.R.device)
        return lg.sample_codes(state.cluster, cluster, self.noise_var if noise else 0.0, generator)

    def log_likelihood(self, state: GaussianState, codes: Tensor | Codes) -> Bound:
        frames = self._read_frames("log_likelihood", state, codes)
        _, scores = lg.address(state.cluster, frames.mean, self.noise_var)
        return Bound(scores[..., 0] + frames.constant(self.noise_var))

    def log_density(self, state: GaussianState, codes: Tensor) -> Tensor:
        frames = self._read_frames("log_density", state, codes)
        scores = lg.log_density(state.cluster, frames.mean, self.noise_var)
        return scores[..., 0] + frames.constant(self.noise_var)

    def _recall_once(self, state: GaussianState, codes: Tensor) -> Tensor:
        weights, _ = lg.address(state.cluster, codes, self.noise_var)
        recalled = weights.mu_w[..., 0, :] @ state.R
        return recalled if state.mu_b is None else recalled + state.mu_b[..., None, :]

    def _mean_code(self, state: GaussianState) -> Tensor:
        return torch.zeros_like(state.R[..., 0, :]) if state.mu_b is None else state.mu_b

    def _check_state(self, where: str, state: Any) -> None:
        K, C = self.num_slots, self.code_dim
        shapes: dict[str, tuple[int, ...]] = {"R": (K, C), "U_chol": (K, K)}
        check_event_shapes(where, state, GaussianState, shapes | ({"mu_b": (C,)} if self.shift else {}))
        if not self.shift and state.mu_b is not None:
            raise ValueError(f"{where}: expected a state without shift, got one with mu_b; use shift=True")

    def _start(
        self, init: str, prior: GaussianState, frames: Frames, generator: torch.Generator | None
    ) -> GaussianState:
        """ "prior": q = p. "random": R0 + N(0, 0.05^2), U = I, q(b) = p(b) (published code)."""
        if init == "prior":
            return prior
        if init != "random":
            raise unknown_start(init, ("prior", "random"))
        shape = (*frames.batch_shape, self.num_slots, self.code_dim)
        noise = torch.randn(shape, dtype=prior.R.dtype, device=prior.R.device, generator=generator)
        eye = torch.eye(self.num_slots, dtype=prior.R.dtype, device=prior.R.device)
        return GaussianState.from_slots(lg.Slots(prior.R + 0.05 * noise, eye, prior.mu_b, prior.v_b))

    def _sweeps(
        self, frames: Frames, prior: GaussianState, start: GaussianState, chunk_size: int | None, fresh: bool
    ) -> Sweeps:
        centred = isinstance(self.slot_mean, int | float) and self.slot_mean == 0 and not self.shift
        if fresh and centred and chunk_size is None and frames.num_items < self.code_dim:
            return SpanSweeps(self, frames, prior, start)
        return ScatterSweeps(self, frames, prior, start, chunk_size)


def _weights(address: GaussianAddress) -> lg.Weights:
    return lg.Weights.of(address.mu_w[..., None, :], address.Sigma_w[..., None, :, :])
