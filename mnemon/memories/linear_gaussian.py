"""The algebra shared by the linear-Gaussian memories: M'w + b explains a code, M, b and w are Gaussian.

Everything here works on clusters: batch dims, then H of them. A single memory is the case H = 1.
s2 is the code noise variance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from mnemon.core.linalg import (
    as_scalar,
    inverse_alone,
    inverse_from_cholesky,
    log_det_from_cholesky,
    safe_cholesky,
    spd_inverse,
)
from mnemon.core.state import Record
from mnemon.distributions.categorical import draw_category
from mnemon.distributions.gaussian import standard_normal_like
from mnemon.memories.base import LatentMemory
from mnemon.memories.frames import Frames
from mnemon.memories.records import Explanation
from mnemon.memories.slot_state import Slots, SlotState
from mnemon.memories.sweeps import Sums


@dataclass(frozen=True, eq=False)
class Weights(Record):
    """q(w_t | cluster) = N(mu_w_t, Sigma_w): the mean differs per item, the covariance does not.

    The means are kept whitened, mu_w = F'y with Sigma_w = F'F: that is how addressing finds them, and sums
    over items can be taken of y and turned into sums of mu_w afterwards. F is None where y is mu_w itself.

    Shapes: y (*B, T, H, K), Sigma_w, F (*B, H, K, K), log_det (*B, H)
    """

    y: Tensor
    Sigma_w: Tensor
    log_det: Tensor
    F: Tensor | None = None

    @classmethod
    def of(cls, mu_w: Tensor, Sigma_w: Tensor) -> Weights:
        return cls(mu_w, Sigma_w, spd_inverse(Sigma_w)[1])

    @property
    def mu_w(self) -> Tensor:
        return self.y if self.F is None else torch.einsum("...thk,...hkl->...thl", self.y, self.F)

    @property
    def kl(self) -> Tensor:
        """KL(q(w) || N(0, I)). Shapes: -> (*B, T, H)"""
        trace = self.Sigma_w.diagonal(dim1=-2, dim2=-1).sum(-1)
        constant = trace - self.Sigma_w.shape[-1] - self.log_det
        return 0.5 * (self.mu_w.square().sum(-1) + constant[..., None, :])


def project(codes: Tensor, rows: Tensor, mu_b: Tensor | None, centre: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Rows times (z - mu_b), and |z - mu_b|^2, for every item and cluster, by one matrix product.

    Codes and locations are first centred on the mean code, so float32 keeps its digits when all of them stand
    far from 0. (Clusters that stand a thousand noise deviations apart still want float64.)

    Shapes: codes (*B, T, C), rows (*B, H, K, C), mu_b (*B, H, C), centre (*B, 1, C) -> (*B, T, H, K), (*B, T, H)
    """
    H, K = rows.shape[-3:-1]
    if mu_b is None:
        products = (codes @ rows.flatten(-3, -2).mT).unflatten(-1, (H, K))
        return products, codes.square().sum(-1)[..., None].expand(*codes.shape[:-1], H)
    centre = codes.mean(-2, keepdim=True) if centre is None else centre
    codes, location = codes - centre, mu_b - centre
    products = (codes @ rows.flatten(-3, -2).mT).unflatten(-1, (H, K))
    offset = (rows @ location[..., None])[..., 0]
    distance = codes.square().sum(-1)[..., None] - 2 * codes @ location.mT + location.square().sum(-1)[..., None, :]
    return products - offset[..., None, :, :], distance


def address(slots: Slots, codes: Tensor, s2: float | Tensor, centre: Tensor | None = None) -> tuple[Weights, Tensor]:
    """q(w|cluster) of every item, and how well each cluster explains it.

    Sigma_w = (I + A/s2)^-1, mu_w = Sigma_w R (z - mu_b) / s2. The score is
    -E||z - M'w - b||^2 / (2 s2) - KL(q(w) || N(0, I)), which at its maximum over q(w) is
    1/2 mu_w' Sigma_w^-1 mu_w - (|z - mu_b|^2 + C v_b) / (2 s2) + 1/2 logdet Sigma_w.

    Shapes: codes (*B, T, C) -> mu_w (*B, T, H, K), scores (*B, T, H)

    VBM, theorems 1, 3 and 4 (eq. 195).
    """
    eye = torch.eye(slots.R.shape[-2], dtype=codes.dtype, device=codes.device)
    chol = safe_cholesky(eye + slots.second_moment / s2)
    F = torch.linalg.solve_triangular(chol, eye, upper=False)
    y, distance = project(codes, F @ slots.R / s2, slots.mu_b, centre)
    log_det = -log_det_from_cholesky(chol)
    if slots.v_b is not None:
        distance = distance + slots.R.shape[-1] * slots.v_b[..., None, :]
    scores = 0.5 * (y.square().sum(-1) - distance / s2 + log_det[..., None, :])
    return Weights(y, F.mT @ F, log_det, F), scores


def expected_square(slots: Slots, codes: Tensor, weights: Weights) -> Tensor:
    """E||z - M'w - b||^2 under any q(w), q(M), q(b), without the variance of z.

    Shapes: codes (*B, T, C) -> (*B, T, H)
    """
    A = slots.second_moment
    projected, distance = project(codes, slots.R, slots.mu_b)
    mu_w = weights.mu_w
    quadratic = (torch.einsum("...thk,...hkl->...thl", mu_w, A) * mu_w).sum(-1)
    constant = (A * weights.Sigma_w).sum((-2, -1))
    if slots.v_b is not None:
        constant = constant + slots.R.shape[-1] * slots.v_b
    return distance - 2 * (projected * mu_w).sum(-1) + quadratic + constant[..., None, :]


@dataclass(frozen=True, eq=False)
class Moments(Sums):
    """Sums over an episode's items that the M step and the bound need.

    Codes are measured from the location mu_b under which they were addressed, each item counts as often
    as its cluster takes it: n = sum_t theta_t.

    Shapes: count, square, address_kl (...), w (..., K), ww (..., K, K), z (..., C), wz (..., K, C)
    """

    count: Tensor
    w: Tensor  # sum mu_w
    ww: Tensor  # sum E[w w'] = sum mu_w mu_w' + n Sigma_w
    z: Tensor  # sum (z - mu_b)
    wz: Tensor  # sum mu_w (z - mu_b)'
    square: Tensor | None = None  # sum |z - mu_b|^2; only the bound asks for it
    address_kl: Tensor | None = None  # sum KL of the whole address; likewise


def collect(slots: Slots, frames: Frames, weights: Weights, theta: Tensor, want_square: bool = True) -> Moments:
    """Sum addressed items into moments; theta (*B, T, H) says how much of an item a cluster takes.

    Shapes: -> fields (*B, H, ...)
    """
    theta = frames.count(theta)
    taken = theta[..., None] * weights.y
    codes = frames.mean
    location = None
    if slots.mu_b is not None:
        codes, location = codes - frames.centre, slots.mu_b - frames.centre
    count, w = theta.sum(-2), taken.sum(-3)
    z = theta.mT @ codes
    wz = (taken.flatten(-2).mT @ codes).unflatten(-2, taken.shape[-2:])
    ww = taken.movedim(-3, -1) @ weights.y.movedim(-3, -2)  # a sum of squares: positive whatever the rounding
    square = (theta.mT @ codes.square().sum(-1, keepdim=True))[..., 0] if want_square else None
    if location is not None:
        if square is not None:
            square = square - 2 * (z * location).sum(-1) + count * location.square().sum(-1)
        z = z - count[..., None] * location
        wz = wz - w[..., None] * location[..., None, :]
    if weights.F is not None:
        w, wz, ww = (weights.F.mT @ w[..., None])[..., 0], weights.F.mT @ wz, weights.F.mT @ ww @ weights.F
    return Moments(count, w, ww + count[..., None, None] * weights.Sigma_w, z, wz, square)


@dataclass(frozen=True, eq=False)
class NaturalPrior(Record):
    """p(M), p(b) in the form the M step adds to: precisions, and precisions times means."""

    precision: Tensor  # U0^-1
    precision_mean: Tensor  # U0^-1 R0
    location_precision: Tensor | None = None  # 1 / v_b0
    location_precision_mean: Tensor | None = None  # mu_b0 / v_b0

    @classmethod
    def of(cls, prior: SlotState) -> NaturalPrior:
        precision = inverse_from_cholesky(prior.U_chol)
        if prior.mu_b is None or prior.v_b is None:
            return cls(precision, precision @ prior.R)
        return cls(precision, precision @ prior.R, 1 / prior.v_b, prior.mu_b / prior.v_b[..., None])


def maximise(addressed: Slots, moments: Moments, prior: NaturalPrior, s2: float | Tensor) -> Slots:
    """M step: q(b), then q(M), each the exact maximum of the bound given the rest.

    `addressed` are the slots under which the moments were taken: b is updated against their R.

    VBM, theorems 1, 3 and 4.
    """
    mu_b = v_b = None
    wz = moments.wz
    precision, precision_mean = prior.location_precision, prior.location_precision_mean
    if addressed.mu_b is not None and precision is not None and precision_mean is not None:
        v_b = 1 / (precision + moments.count / s2)
        unexplained = moments.z - (addressed.R.mT @ moments.w[..., None])[..., 0]
        total = (unexplained + moments.count[..., None] * addressed.mu_b) / s2
        mu_b = v_b[..., None] * (precision_mean + total)
        wz = wz - moments.w[..., None] * (mu_b - addressed.mu_b)[..., None, :]
    U = inverse_alone(prior.precision + moments.ww / s2)
    return Slots(U @ (prior.precision_mean + wz / s2), U, mu_b, v_b)


def update(
    frames: Frames,
    weights: Weights,
    theta: Tensor,
    R: Tensor | None,
    prior: NaturalPrior,
    s2: float | Tensor,
) -> Slots:
    """M step from addresses that need not be this algebra's own. R: the slots against which b is updated.

    Shapes: theta (*B, T, H), R (*B, H, K, C) -> fields (*B, H, ...)
    """
    mu_b = None
    if prior.location_precision is not None:
        if R is None:
            raise ValueError("update: expected an address with R (this memory has a shift), got none")
        mu_b = frames.centre.expand(*R.shape[:-2], R.shape[-1])
    addressed = Slots(prior.precision_mean if R is None else R, prior.precision, mu_b)
    moments = collect(addressed, frames, weights, theta, want_square=False)
    return maximise(addressed, moments, prior, s2)


def explain(slots: Slots, cluster: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and scalar variance of M'w + b in the given clusters, M and b integrated out.

    Shapes: cluster (*B, n), w (*B, n, K) -> (*B, n, C), (*B, n)
    """
    pick = cluster[..., None, None]
    K, C = slots.R.shape[-2:]
    R = slots.R.gather(-3, pick.expand(*cluster.shape, K, C))
    U = slots.U.gather(-3, pick.expand(*cluster.shape, K, K))
    mean = (w[..., None, :] @ R)[..., 0, :]
    variance = ((w[..., None, :] @ U)[..., 0, :] * w).sum(-1)
    if slots.mu_b is not None and slots.v_b is not None:
        mean = mean + slots.mu_b.gather(-2, cluster[..., None].expand(*cluster.shape, C))
        variance = variance + slots.v_b.gather(-1, cluster)
    return mean, variance


def sample_codes(slots: Slots, cluster: Tensor, noise_var: float | Tensor, generator: torch.Generator | None) -> Tensor:
    """Draw w, then z with M and b integrated out: N(R'w + mu_b, (w'Uw + v_b + noise_var) I).

    Shapes: cluster (*B, n) -> (*B, n, C)
    """
    K = slots.R.shape[-2]
    w = standard_normal_like(slots.R, torch.Size((*cluster.shape, K)), generator)
    mean, variance = explain(slots, cluster, w)
    return mean + (variance + noise_var).sqrt()[..., None] * standard_normal_like(mean, mean.shape, generator)


def draw_explanation(slots: Slots, codes: Tensor, s2: float | Tensor, generator: torch.Generator | None) -> Explanation:
    """Draw (s, w) from q(s, w | z) of every code, and say what it explains. Shapes: codes (*B, T, C)"""
    weights, scores = address(slots, codes, s2)
    log_theta = scores.log_softmax(-1)
    cluster = draw_category(log_theta, generator)
    K, H = slots.R.shape[-2], slots.R.shape[-3]
    mu_w = weights.mu_w.gather(-2, cluster[..., None, None].expand(*cluster.shape, 1, K))[..., 0, :]
    noise = standard_normal_like(mu_w, mu_w.shape, generator)
    factor = weights.F if weights.F is not None else safe_cholesky(weights.Sigma_w).mT
    factor = factor.gather(-3, cluster[..., None, None].expand(*cluster.shape, K, K))
    w = mu_w + (noise[..., None, :] @ factor)[..., 0, :]
    log_det = weights.log_det.gather(-1, cluster)
    log_prior_over_q = 0.5 * (noise.square().sum(-1) - w.square().sum(-1) + log_det)
    log_ratio = log_prior_over_q - log_theta.gather(-1, cluster[..., None])[..., 0] - math.log(H)
    mean, variance = explain(slots, cluster, w)
    return Explanation(mean, (variance + s2)[..., None], log_ratio)


def log_density(slots: Slots, codes: Tensor, s2: float | Tensor) -> Tensor:
    """log N(z; mu_b, R'R + s2 I) per cluster: the score of a memory without uncertainty, constants aside.

    Shapes: codes (*B, T, C) -> (*B, T, H)
    """
    certain = Slots(slots.R, torch.zeros_like(slots.U), slots.mu_b, None)
    return address(certain, codes, s2)[1]


def prior_slots(memory: LatentMemory, dtype: torch.dtype | None, device: torch.device | None) -> tuple[Tensor, Tensor]:
    """R0 and the Cholesky factor of U0 = slot_var I. Shapes: -> (K, C), (K, K)"""
    eye = torch.eye(memory.num_slots, dtype=dtype, device=device)
    slot_std = as_scalar(memory.slot_var, dtype=dtype, device=device).sqrt()
    return memory._mean_of_slots(dtype, device), slot_std * eye


def expected_fit(addressed: Slots, moments: Moments, slots: Slots, s2: float | Tensor) -> Tensor:
    """Sum over items of -E||z - M'w - b||^2 / (2 s2) - address KL, from the moments alone.

    Shapes: -> (..., ) one per cluster
    """
    square, wz = moments.square, moments.wz
    if square is None or moments.address_kl is None:
        raise ValueError("expected_fit: expected moments with square and address_kl, got none")
    if slots.mu_b is not None and slots.v_b is not None and addressed.mu_b is not None:
        moved = slots.mu_b - addressed.mu_b
        square = square - 2 * (moved * moments.z).sum(-1) + moments.count * moved.square().sum(-1)
        square = square + moments.count * slots.R.shape[-1] * slots.v_b
        wz = wz - moments.w[..., None] * moved[..., None, :]
    square = square - 2 * (slots.R * wz).sum((-2, -1)) + (slots.second_moment * moments.ww).sum((-2, -1))
    return -0.5 * square / s2 - moments.address_kl
