"""The mixture memory: clusters, each a small linear-Gaussian memory with a location of its own.

    s_t ~ Cat(1/H),  w_t | s_t ~ N(0, I),  z_t ~ N(M_s'w_t + b_s, s2 I)

A Bayesian mixture of factor analysers. VBM, theorem 4 (C.4). The number of clusters is chosen when
writing: nothing depends on it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from mnemon.core.checks import check_mean, check_positive, check_size, holds
from mnemon.core.linalg import as_scalar, safe_cholesky
from mnemon.core.state import Record, State, rank
from mnemon.distributions.categorical import categorical_kl
from mnemon.memories import linear_gaussian as lg
from mnemon.memories.base import LatentMemory
from mnemon.memories.draws import draw_slots, drawn_square
from mnemon.memories.fitting import check_event_shapes, unknown_start
from mnemon.memories.frames import Frames
from mnemon.memories.records import Explanation
from mnemon.memories.seeding import pick_kmeans, pick_random
from mnemon.memories.sweeps import ItemSweeps, Sweeps


@dataclass(frozen=True, eq=False)
class MixtureState(lg.SlotState):
    """q(M_h) = MN(R_h, U_h, I), q(b_h) = N(mu_b_h, v_b_h I) for every cluster h.

    Shapes: R (*B, H, K, C), U_chol (*B, H, K, K), mu_b (*B, H, C), v_b (*B, H)
    """

    R: Tensor = field(metadata=rank(3))
    U_chol: Tensor = field(metadata=rank(3))
    mu_b: Tensor = field(metadata=rank(2))
    v_b: Tensor = field(metadata=rank(1))


@dataclass(frozen=True, eq=False)
class MixtureAddress(State):
    """q(s_t = h) = theta_t[h] and q(w_t | s_t = h) = N(mu_w_t[h], Sigma_w[h]); R as it was when addressed.

    Shapes: log_theta (*B, T, H), mu_w (*B, T, H, K), Sigma_w (*B, H, K, K), R (*B, H, K, C)
    """

    log_theta: Tensor = field(metadata=rank(2))
    mu_w: Tensor = field(metadata=rank(3))
    Sigma_w: Tensor = field(metadata=rank(3))
    R: Tensor = field(metadata=rank(3))

    @property
    def theta(self) -> Tensor:
        return self.log_theta.exp()


@dataclass(frozen=True, eq=False)
class Addressed(Record):
    """An address as a sweep leaves it: q(w | h) in whitened form, and the unnormalised log theta."""

    weights: lg.Weights
    scores: Tensor
    R: Tensor


@dataclass(frozen=True, eq=False)
class MixtureMemory(LatentMemory):
    """Mixture of `num_clusters` linear-Gaussian memories of `num_slots` rows each.

    Published with K = 6 slots: slot_var 0.4, location_var 0.4 K, noise_var 0.2 K. Set the variances for your
    own codes, or let `choose_variances` do it.
    """

    num_clusters: int = field(default=10, kw_only=True)
    location_var: float | Tensor = field(default=1.0, kw_only=True)
    location_mean: float | Tensor = field(default=0.0, kw_only=True)

    state_class: ClassVar[type[State]] = MixtureState
    address_class: ClassVar[type[State]] = MixtureAddress
    default_steps: ClassVar[int] = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        check_size("num_clusters", self.num_clusters)
        check_positive("location_var", self.location_var)
        check_mean("location_mean", self.location_mean, (self.code_dim,))

    def _prior(self, dtype: torch.dtype | None, device: torch.device | None) -> MixtureState:
        """The same MN(R0, slot_var I, I) and N(location_mean, location_var I) for every cluster."""
        R, U_chol = lg.prior_slots(self, dtype, device)
        H, K, C = self.num_clusters, self.num_slots, self.code_dim
        mu_b = as_scalar(self.location_mean, dtype=dtype, device=device).expand(H, C)
        v_b = as_scalar(self.location_var, dtype=dtype, device=device).expand(H)
        return MixtureState(R.expand(H, K, C), U_chol.expand(H, K, K), mu_b, v_b)

    def _address(self, state: MixtureState, codes: Tensor) -> MixtureAddress:
        weights, scores = lg.address(state.slots, codes, self.noise_var)
        return self._finished(Addressed(weights, scores, state.R))

    def _update(self, address: MixtureAddress, frames: Frames, prior: MixtureState) -> MixtureState:
        given, natural = lg.Weights.of(address.mu_w, address.Sigma_w), lg.NaturalPrior.of(prior)
        return MixtureState.from_slots(lg.update(frames, given, address.theta, address.R, natural, self.noise_var))

    def _misfit(self, state: MixtureState, codes: Tensor, address: MixtureAddress) -> tuple[Tensor, Tensor]:
        weights = lg.Weights.of(address.mu_w, address.Sigma_w)
        square = (address.theta * lg.expected_square(state.slots, codes, weights)).sum(-1)
        return square, (address.theta * weights.kl + categorical_kl(address.log_theta)).sum(-1)

    def _memory_kl(self, state: MixtureState, prior: MixtureState) -> Tensor:
        return state.kl(prior).sum(-1)

    def _sample(
        self, state: MixtureState, n: int, noise_var: float | Tensor, generator: torch.Generator | None
    ) -> Tensor:
        H, R = state.R.shape[-3], state.R
        cluster = torch.randint(H, (*state.batch_shape, n), device=R.device, generator=generator)
        return lg.sample_codes(state.slots, cluster, noise_var, generator)

    def _scores(self, state: MixtureState, codes: Tensor) -> Tensor:
        return _mix(lg.address(state.slots, codes, self.noise_var)[1])

    def _density_scores(self, state: MixtureState, codes: Tensor) -> Tensor:
        return _mix(lg.log_density(state.slots, codes, self.noise_var))

    def _sized_for(self, num_clusters: int | None, *states: Any) -> Self:
        wanted = agreed_clusters(num_clusters, *states)
        return self if wanted in (None, self.num_clusters) else self.replace(num_clusters=wanted)

    def _explain(self, state: MixtureState, codes: Tensor, generator: torch.Generator | None) -> Explanation:
        return lg.draw_explanation(state.slots, codes, self.noise_var, generator)

    def _draw(self, state: MixtureState, generator: torch.Generator | None) -> MixtureState:
        return draw_slots(state, generator)

    def _drawn_square(
        self, drawn: MixtureState, codes: Tensor, address: MixtureAddress, generator: torch.Generator | None
    ) -> Tensor:
        square = drawn_square(drawn.slots, codes, address.mu_w, safe_cholesky(address.Sigma_w), generator)
        return (address.theta * square).sum(-1)

    def _expected(self, state: MixtureState, address: MixtureAddress) -> Tensor:
        theta = address.theta
        taken = (theta[..., None] * address.mu_w).flatten(-2)
        return taken @ state.R.flatten(-3, -2) + theta @ state.mu_b

    def _mean_code(self, state: MixtureState) -> Tensor:
        return state.mu_b.mean(-2)

    def _check_state(self, where: str, state: Any) -> None:
        """Any number of clusters will do: it belongs to the state."""
        H = state.R.shape[-3] if isinstance(state, MixtureState) and state.R.ndim > 2 else self.num_clusters
        K, C = self.num_slots, self.code_dim
        check_event_shapes(
            where, state, MixtureState, {"R": (H, K, C), "U_chol": (H, K, K), "mu_b": (H, C), "v_b": (H,)}
        )

    def _default_start(self, prior: State | None) -> str:
        return "kmeans++" if prior is None else "prior"

    def _start(self, init: str, prior: MixtureState, frames: Frames, generator: torch.Generator | None) -> MixtureState:
        """ "kmeans++" or "random": b_h at items, R_h ~ N(0, 1/C^2), U_h = I/C. "prior": q = p."""
        if init == "prior":
            return prior
        pick = {"kmeans++": pick_kmeans, "random": pick_random}.get(init)
        if pick is None:
            raise unknown_start(init, ("kmeans++", "random", "prior"))
        H, K, C = prior.R.shape[-3:]
        if init == "kmeans++":
            self._check_enough_items(frames, H)
        location = pick(frames, H, generator)
        shape = (*frames.batch_shape, H, K, C)
        R = torch.randn(shape, dtype=location.dtype, device=location.device, generator=generator) / C
        U = torch.eye(K, dtype=location.dtype, device=location.device) / C
        return MixtureState.from_moments(R=R, U=U.expand(H, K, K), mu_b=location, v_b=prior.v_b)

    def _check_enough_items(self, frames: Frames, num_clusters: int) -> None:
        present = torch.tensor(frames.num_items) if frames.counts is None else frames.num_present  # no wait for a GPU
        if not holds(present >= num_clusters):
            fewest = int(present.min())
            raise ValueError(
                f"write: expected at least as many items as clusters for k-means++, got {fewest} items and "
                f"{num_clusters} clusters; pass num_clusters={fewest} or less, or init='random'"
            )

    def _sweeps(
        self, frames: Frames, prior: MixtureState, start: MixtureState, chunk_size: int | None, fresh: bool
    ) -> Sweeps:
        return ItemSweeps(self, frames, prior, start, chunk_size)

    # -- the steps of ItemSweeps -------------------------------------------------------------------

    def _posterior(self, state: MixtureState) -> lg.Slots:
        return state.slots

    def _natural(self, prior: MixtureState) -> lg.NaturalPrior:
        return lg.NaturalPrior.of(prior)

    def _e_step(self, slots: lg.Slots, frames: Frames, want_bound: bool) -> tuple[Addressed, lg.Moments]:
        weights, scores = lg.address(slots, frames.mean, self.noise_var, frames.centre)
        theta = scores.softmax(-1)
        moments = lg.collect(slots, frames, weights, theta, want_bound)
        if want_bound:
            kl = theta * weights.kl + categorical_kl(scores.log_softmax(-1))
            moments = moments.replace(address_kl=frames.count(kl).sum(-2))
        return Addressed(weights, scores, slots.R), moments

    def _finished(self, addressed: Addressed) -> MixtureAddress:
        weights = addressed.weights
        return MixtureAddress(addressed.scores.log_softmax(-1), weights.mu_w, weights.Sigma_w, addressed.R)

    def _m_step(self, slots: lg.Slots, moments: lg.Moments, prior: lg.NaturalPrior) -> lg.Slots:
        return lg.maximise(slots, moments, prior, self.noise_var)

    def _fit(self, addressed: lg.Slots, moments: lg.Moments, slots: lg.Slots) -> Tensor:
        return lg.expected_fit(addressed, moments, slots, self.noise_var).sum(-1)

    def _state(self, slots: lg.Slots) -> MixtureState:
        return MixtureState.from_slots(slots)


def agreed_clusters(num_clusters: int | None, *states: Any) -> int | None:
    """The number of clusters on which a request and the states given with it agree; None if none says."""
    sizes = {state.R.shape[-3] for state in states if isinstance(state, lg.SlotState | MixtureAddress)}
    sizes |= set() if num_clusters is None else {num_clusters}
    if len(sizes) > 1:
        raise ValueError(
            f"num_clusters: expected prior, init and num_clusters to agree, got {sorted(sizes)}; "
            "a memory keeps the clusters it was first written with"
        )
    return next(iter(sizes), None)


def _mix(scores: Tensor) -> Tensor:
    """log mean_h exp(score_h). Shapes: (*B, T, H) -> (*B, T)"""
    return scores.logsumexp(-1) - math.log(scores.shape[-1])
