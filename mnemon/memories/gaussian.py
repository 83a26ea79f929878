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

from mnemon.core.checks import check_mean, check_positive
from mnemon.core.linalg import as_scalar, safe_cholesky
from mnemon.core.state import State
from mnemon.memories import linear_gaussian as lg
from mnemon.memories.draws import drawn_square
from mnemon.memories.fitting import check_event_shapes
from mnemon.memories.frames import Frames
from mnemon.memories.gaussian_sweeps import GaussianAddress, GaussianState, ScatterSweeps, SpanSweeps
from mnemon.memories.one_cluster import OneClusterMemory
from mnemon.memories.records import Explanation
from mnemon.memories.sweeps import Sweeps


@dataclass(frozen=True, eq=False)
class GaussianMemory(OneClusterMemory):
    """Linear-Gaussian memory of `num_slots` rows; `shift=True` adds a location b with prior N(mu_b0, v_b0 I)."""

    shift: bool = field(default=False, kw_only=True)
    location_var: float | Tensor = field(default=1.0, kw_only=True)
    location_mean: float | Tensor = field(default=0.0, kw_only=True)

    state_class: ClassVar[type[State]] = GaussianState
    address_class: ClassVar[type[State]] = GaussianAddress
    default_steps: ClassVar[int] = 50

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("location_var", self.location_var)
        check_mean("location_mean", self.location_mean, (self.code_dim,))

    def _prior(self, dtype: torch.dtype | None, device: torch.device | None) -> GaussianState:
        """MN(R0, slot_var I, I) and N(location_mean, location_var I)."""
        state = GaussianState(*lg.prior_slots(self, dtype, device))
        if not self.shift:
            return state
        mu_b = as_scalar(self.location_mean, dtype=dtype, device=device).expand(self.code_dim)
        return state.replace(mu_b=mu_b, v_b=as_scalar(self.location_var, dtype=dtype, device=device))

    def _address(self, state: GaussianState, codes: Tensor) -> GaussianAddress:
        weights, _ = lg.address(state.cluster, codes, self.noise_var)
        R = state.R if self.shift else None
        return GaussianAddress(weights.mu_w[..., 0, :], weights.Sigma_w[..., 0, :, :], R)

    def _update(self, address: GaussianAddress, frames: Frames, prior: GaussianState) -> GaussianState:
        depth = len(frames.batch_shape)
        one = torch.ones((*frames.mean.shape[:-1], 1), dtype=frames.mean.dtype, device=frames.mean.device)
        natural = lg.NaturalPrior.of(prior).map(lambda tensor: tensor.unsqueeze(len(prior.batch_shape)))
        R = None if address.R is None else address.R.unsqueeze(depth)
        slots = lg.update(frames, _weights(address), one, R, natural, self.noise_var)
        return GaussianState.from_slots(slots.map(lambda tensor: tensor.squeeze(depth)))

    def _misfit(self, state: GaussianState, codes: Tensor, address: GaussianAddress) -> tuple[Tensor, Tensor]:
        weights = _weights(address)
        return lg.expected_square(state.cluster, codes, weights)[..., 0], weights.kl[..., 0]

    def _scores(self, state: GaussianState, codes: Tensor) -> Tensor:
        return lg.address(state.cluster, codes, self.noise_var)[1][..., 0]

    def _explain(self, state: GaussianState, codes: Tensor, generator: torch.Generator | None) -> Explanation:
        return lg.draw_explanation(state.cluster, codes, self.noise_var, generator)

    def _drawn_square(
        self, drawn: GaussianState, codes: Tensor, address: GaussianAddress, generator: torch.Generator | None
    ) -> Tensor:
        w_chol = safe_cholesky(address.Sigma_w)[..., None, :, :]
        return drawn_square(drawn.cluster, codes, address.mu_w[..., None, :], w_chol, generator)[..., 0]

    def _expected(self, state: GaussianState, address: GaussianAddress) -> Tensor:
        recalled = address.mu_w @ state.R
        return recalled if state.mu_b is None else recalled + state.mu_b[..., None, :]

    def _mean_code(self, state: GaussianState) -> Tensor:
        return torch.zeros_like(state.R[..., 0, :]) if state.mu_b is None else state.mu_b

    def _check_state(self, where: str, state: Any) -> None:
        K, C = self.num_slots, self.code_dim
        shapes: dict[str, tuple[int, ...]] = {"R": (K, C), "U_chol": (K, K)}
        check_event_shapes(where, state, GaussianState, shapes | ({"mu_b": (C,)} if self.shift else {}))
        if not self.shift and state.mu_b is not None:
            raise ValueError(f"{where}: expected a state without shift, got one with mu_b; use shift=True")

    def _scattered(self, prior: GaussianState, R: Tensor) -> GaussianState:
        """U = I, q(b) = p(b) (published code)."""
        eye = torch.eye(self.num_slots, dtype=R.dtype, device=R.device)
        return GaussianState.from_slots(lg.Slots(R, eye, prior.mu_b, prior.v_b))

    def _sweeps(
        self, frames: Frames, prior: GaussianState, start: GaussianState, chunk_size: int | None, fresh: bool
    ) -> Sweeps:
        centred = isinstance(self.slot_mean, int | float) and self.slot_mean == 0 and not self.shift
        if fresh and centred and chunk_size is None and frames.num_items < self.code_dim:
            return SpanSweeps(self, frames, prior, start)
        return ScatterSweeps(self, frames, prior, start, chunk_size)


def _weights(address: GaussianAddress) -> lg.Weights:
    return lg.Weights.of(address.mu_w[..., None, :], address.Sigma_w[..., None, :, :])
