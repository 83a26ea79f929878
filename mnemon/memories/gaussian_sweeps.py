"""Two ways to sweep a linear-Gaussian memory over an episode, both free of T once the codes are gathered.

`ScatterSweeps` works on the count, mean and centred scatter of the codes, `SpanSweeps` on their T x T Gram
matrix, for short episodes of long codes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from mnemon.core.linalg import as_scalar, inverse_alone, spd_inverse
from mnemon.core.state import Record, State, rank
from mnemon.memories import linear_gaussian as lg
from mnemon.memories.base import LatentMemory
from mnemon.memories.frames import Frames


@dataclass(frozen=True, eq=False)
class GaussianState(lg.SlotState):
    """q(M) = MN(R, U, I), q(b) = N(mu_b, v_b I).

    Shapes: R (*B, K, C), U_chol (*B, K, K), mu_b (*B, C), v_b (*B); the last two None without shift
    """

    R: Tensor = field(metadata=rank(2))
    U_chol: Tensor = field(metadata=rank(2))
    mu_b: Tensor | None = field(default=None, metadata=rank(1))
    v_b: Tensor | None = field(default=None, metadata=rank(0))


@dataclass(frozen=True, eq=False)
class GaussianAddress(State):
    """q(w_t) = N(mu_w_t, Sigma_w). With a shift it keeps the slots' mean R, against which b is updated.

    Shapes: mu_w (*B, T, K), Sigma_w (*B, K, K), R (*B, K, C)
    """

    mu_w: Tensor = field(metadata=rank(2))
    Sigma_w: Tensor = field(metadata=rank(2))
    R: Tensor | None = field(default=None, metadata=rank(2))


@dataclass(frozen=True, eq=False)
class ScatterCarry(Record):
    """The slots after a sweep, and those under which it addressed."""

    slots: lg.Slots
    addressed: lg.Slots | None = None


class ScatterSweeps:
    """Sweeps on n, the mean m and S = sum (z - m)(z - m)'; centring keeps float32 exact far from 0.

    With d = m - mu_b, the sums over items that the M step needs follow from R S and R d:
    sum mu_w (z - mu_b)' = Sigma_w (R S + n R d d') / s2. S is kept as its factor when T is small.
    """

    def __init__(
        self,
        memory: LatentMemory,
        frames: Frames,
        prior: GaussianState,
        start: GaussianState,
        chunk_size: int | None,
    ) -> None:
        self.frames, self.prior, self.first, self.chunk_size = frames, prior, start, chunk_size
        self.s2 = memory.noise_var
        self.natural = lg.NaturalPrior.of(prior)
        self.count = frames.total
        self.mean = torch.stack([chunk.count(chunk.mean).sum(-2) for chunk in frames.chunks(chunk_size)]).sum(0)
        self.mean = self.mean / self.count[..., None]
        self.scatter: Tensor | None = None
        if chunk_size is None and 2 * frames.num_items < memory.code_dim:
            self.factor = frames.mean - self.mean[..., None, :]
            self.square = frames.count(self.factor.square().sum(-1)).sum(-1)
        else:
            self.scatter = self._gather_scatter()
            self.square = self.scatter.diagonal(dim1=-2, dim2=-1).sum(-1)
        self.constant = frames.count(frames.constant(self.s2)).sum(-1)

    def _gather_scatter(self) -> Tensor:
        scatter = self.mean.new_zeros(*self.mean.shape, self.mean.shape[-1])
        for chunk in self.frames.chunks(self.chunk_size):
            centred = chunk.mean - self.mean[..., None, :]
            scatter = scatter + chunk.count(centred).mT @ centred
        return scatter

    def _times_scatter(self, R: Tensor) -> Tensor:
        if self.scatter is not None:
            return R @ self.scatter
        projected = self.factor @ R.mT
        return self.frames.count(projected).mT @ self.factor

    def start(self) -> ScatterCarry:
        return ScatterCarry(self.first.slots)

    def sweep(self, carry: ScatterCarry, want_bound: bool) -> tuple[ScatterCarry, Tensor | None]:
        moments = self._moments(carry.slots, want_bound)
        slots = lg.maximise(carry.slots, moments, self.natural, self.s2)
        bound = None
        if want_bound:
            fit = lg.expected_fit(carry.slots, moments, slots, self.s2)
            bound = self.constant + fit - GaussianState.from_slots(slots).kl(self.prior)
        return ScatterCarry(slots, carry.slots), bound

    def _moments(self, slots: lg.Slots, want_bound: bool) -> lg.Moments:
        n, K = self.count, slots.R.shape[-2]
        eye = torch.eye(K, dtype=slots.R.dtype, device=slots.R.device)
        precision, log_det_precision = eye + slots.second_moment / self.s2, None
        if want_bound:
            Sigma_w, log_det_precision = spd_inverse(precision)
        else:
            Sigma_w = inverse_alone(precision)
        d = self.mean if slots.mu_b is None else self.mean - slots.mu_b
        readout = Sigma_w @ slots.R / self.s2
        w_mean = readout @ d[..., None]
        wz = Sigma_w @ self._times_scatter(slots.R) / self.s2 + n[..., None, None] * w_mean * d[..., None, :]
        ww = wz @ readout.mT + n[..., None, None] * Sigma_w
        moments = lg.Moments(count=n, w=n[..., None] * w_mean[..., 0], ww=ww, z=n[..., None] * d, wz=wz)
        if log_det_precision is None:
            return moments
        return moments.replace(
            square=self.square + n * d.square().sum(-1),
            address_kl=0.5 * (ww.diagonal(dim1=-2, dim2=-1).sum(-1) + n * (log_det_precision - K)),
        )

    def finish(self, carry: ScatterCarry) -> tuple[GaussianState, GaussianAddress | None]:
        state = GaussianState.from_slots(carry.slots)
        addressed = carry.addressed
        if self.chunk_size is not None or addressed is None:
            return state, None
        one_cluster = addressed.map(lambda tensor: tensor.unsqueeze(addressed.R.ndim - 2))
        weights, _ = lg.address(one_cluster, self.frames.mean, self.s2)
        R = None if addressed.mu_b is None else addressed.R
        return state, GaussianAddress(weights.mu_w[..., 0, :], weights.Sigma_w[..., 0, :, :], R)


@dataclass(frozen=True, eq=False)
class SpanCarry(Record):
    """The addresses of a sweep and the precision of the slots that it left: these say everything else.

    Shapes: mu_w (*B, K, T), Sigma_w, N = U^-1 (*B, K, K)
    """

    mu_w: Tensor
    Sigma_w: Tensor
    N: Tensor


class SpanSweeps:
    """Sweeps that keep R in the span of the codes (T < C, R0 = 0, no shift).

    After an update, U = N^-1 and R = U mu_w Z, so the next address follows from N, mu_w and the Gram matrix
    G = Z Z'; the codes themselves are needed only to write R down at the end. Codes and slots are measured in
    units of the noise, z / sigma and M / sigma, where s2 = 1.
    """

    def __init__(self, memory: LatentMemory, frames: Frames, prior: GaussianState, start: GaussianState) -> None:
        self.frames, self.first, self.C = frames, start, memory.code_dim
        self.s2 = as_scalar(memory.noise_var, dtype=frames.mean.dtype, device=frames.mean.device)
        self.sigma = self.s2.sqrt()
        self.prior_precision, self.prior_log_det = spd_inverse(prior.U / self.s2)
        self.eye = torch.eye(memory.num_slots, dtype=self.s2.dtype, device=self.s2.device)
        self.codes = frames.mean / self.sigma
        self.gram = self.codes @ self.codes.mT
        self.n = frames.total[..., None, None]
        squares = frames.count(self.gram.diagonal(dim1=-2, dim2=-1)).sum(-1)
        self.constant = frames.count(frames.constant(memory.noise_var)).sum(-1) - 0.5 * squares

    def start(self) -> SpanCarry | None:
        return None

    def sweep(self, carry: SpanCarry | None, want_bound: bool) -> tuple[SpanCarry, Tensor | None]:
        Sigma_w, mu_w = self._first_address() if carry is None else self._readdress(carry)
        counted = self._count(mu_w)
        N = self.prior_precision + torch.addcmul(counted @ mu_w.mT, Sigma_w, self.n)
        new = SpanCarry(mu_w, Sigma_w, N)
        return new, self._bound(new) if want_bound else None

    def _first_address(self) -> tuple[Tensor, Tensor]:
        R = self.first.R / self.sigma
        Sigma_w = inverse_alone(self.eye + R @ R.mT + self.C / self.s2 * self.first.U)
        return Sigma_w, Sigma_w @ (R @ self.codes.mT)

    def _readdress(self, carry: SpanCarry) -> tuple[Tensor, Tensor]:
        """Sigma_w = (I + R R' + C U)^-1. (N (N^2 + C N + mu_w G mu_w')^-1 N would save U's inverse, but its
        condition number is a square; float32 cannot afford that.)"""
        U, _, RR, RZ = self._slots(carry)
        Sigma_w = inverse_alone(self.eye + torch.add(RR, U, alpha=self.C))
        return Sigma_w, Sigma_w @ RZ

    def _slots(self, carry: SpanCarry) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """U, logdet N, R R' and R Z' as the sweep left them."""
        U, log_det_N = spd_inverse(carry.N)
        P = U @ self._count(carry.mu_w)
        RZ = P @ self.gram
        return U, log_det_N, RZ @ P.mT, RZ

    def _count(self, mu_w: Tensor) -> Tensor:
        return mu_w if self.frames.counts is None else mu_w * self.frames.counts[..., None, :]

    def _bound(self, carry: SpanCarry) -> Tensor:
        U, log_det_N, RR, RZ = self._slots(carry)
        K, ww = U.shape[-1], carry.N - self.prior_precision
        A = RR + self.C * U
        square = (A * ww).sum((-2, -1)) - 2 * (self._count(carry.mu_w) * RZ).sum((-2, -1))
        log_det_Sigma = spd_inverse(carry.Sigma_w)[1]
        address_kl = ww.diagonal(dim1=-2, dim2=-1).sum(-1) - self.n[..., 0, 0] * (log_det_Sigma + K)
        # KL(q(M) || p(M)) sees R only through R R', and A = R R' + C U holds its trace terms together
        memory_kl = (self.prior_precision * A).sum((-2, -1)) + self.C * (log_det_N + self.prior_log_det - K)
        return self.constant - 0.5 * (square + address_kl + memory_kl)

    def finish(self, carry: SpanCarry) -> tuple[GaussianState, GaussianAddress]:
        U = inverse_alone(carry.N)
        R = U @ self._count(carry.mu_w) @ self.codes
        state = GaussianState.from_slots(lg.Slots(R * self.sigma, U * self.s2))
        return state, GaussianAddress(carry.mu_w.mT, carry.Sigma_w)
