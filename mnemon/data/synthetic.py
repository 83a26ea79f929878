"""Episodes drawn from the linear-Gaussian model itself, with their true density attached."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from mnemon.core.checks import check_positive, check_size
from mnemon.core.state import STATIC, Record
from mnemon.distributions.gaussian import LOG_2PI


@dataclass(frozen=True, eq=False)
class LinearGaussianEpisode(Record):
    """Codes z_t = M'w_t + noise, with the M and w_t that made them.

    Shapes: codes (T, C), slots M (K, C), weights (T, K), slot_mean R0 (K, C)
    """

    codes: Tensor
    slots: Tensor
    weights: Tensor
    slot_mean: Tensor
    noise_var: float = field(default=1.0, metadata=STATIC)

    def log_density(self, codes: Tensor | None = None) -> Tensor:
        """log p(z | M) of codes under the true slots, w integrated out: N(0, M'M + noise_var I).

        Computed through the C x C covariance, unlike the memories. Shapes: (T, C) -> (T)
        """
        codes = self.codes if codes is None else codes
        C = codes.shape[-1]
        eye = torch.eye(C, dtype=codes.dtype, device=codes.device)
        chol = torch.linalg.cholesky(self.slots.mT @ self.slots + self.noise_var * eye)
        white = torch.linalg.solve_triangular(chol, codes.mT, upper=False)
        log_det = 2 * chol.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return -0.5 * (white.square().sum(-2) + C * LOG_2PI + log_det)


def linear_gaussian_episode(
    *, num_slots: int, code_dim: int, num_items: int, noise_var: float = 1.0, slot_var: float = 1.0, seed: int = 0
) -> LinearGaussianEpisode:
    """Draw R0 ~ N(0, 1), M ~ MN(R0, slot_var I, I), then w_t ~ N(0, I) and z_t per item, in float64.

    The draws come from NumPy's legacy stream in this order, so that a seed means the same episode everywhere.
    VBM, appendix E.1.
    """
    for name, value in (("num_slots", num_slots), ("code_dim", code_dim), ("num_items", num_items)):
        check_size(name, value)
    check_positive("noise_var", noise_var)
    check_positive("slot_var", slot_var)
    stream = np.random.RandomState(seed)
    slot_mean = stream.randn(num_slots, code_dim)
    slots = slot_mean + np.sqrt(slot_var) * stream.randn(num_slots, code_dim)
    draws = [(stream.randn(num_slots), stream.randn(code_dim)) for _ in range(num_items)]
    weights, noise = (np.stack(part) for part in zip(*draws, strict=True))
    codes = weights @ slots + np.sqrt(noise_var) * noise
    return LinearGaussianEpisode(
        codes=torch.from_numpy(codes),
        slots=torch.from_numpy(slots),
        weights=torch.from_numpy(weights),
        slot_mean=torch.from_numpy(slot_mean),
        noise_var=noise_var,
    )


FAMILIES = ("mixture", "laplace", "exponential", "reverse exponential")
SET_SIZE = 200
HALF_GAP = 0.9
"""The two Gaussians of a standardised mixture lie at -0.9 and 0.9, so each has a deviation of sqrt(1 - 0.81) = 0.436:
they are 4.1 of these apart, with little between them. The thesis does not say how far apart its own are."""


@dataclass(frozen=True, eq=False)
class FamilySets(Record):
    """One-dimensional data sets, each of one family, with the moments of the distribution it was drawn from.

    Shapes: values (S, N), family int64 (S), mean and variance (S)
    """

    values: Tensor
    family: Tensor
    mean: Tensor
    variance: Tensor


def family_sets(num_sets: int, set_size: int = SET_SIZE, *, seed: int = 0) -> FamilySets:
    """Mixtures of two Gaussians, Laplace, exponential and reversed exponential distributions, in float32.

    The family is uniform, the mean in [-1, 1] and the variance in [0.5, 2]. Thesis, 5.3.1
    """
    check_size("num_sets", num_sets)
    check_size("set_size", set_size)
    draws = np.random.default_rng(seed)
    family = draws.integers(len(FAMILIES), size=num_sets)
    mean, variance = draws.uniform(-1, 1, num_sets), draws.uniform(0.5, 2, num_sets)
    shape = (num_sets, set_size)
    side, within = np.where(draws.random(shape) < 0.5, -HALF_GAP, HALF_GAP), np.sqrt(1 - HALF_GAP**2)
    exponential = draws.exponential(1.0, shape) - 1
    standard = np.stack([
        side + within * draws.standard_normal(shape),
        draws.laplace(0, np.sqrt(0.5), shape),
        exponential,
        -exponential,
    ])  # fmt: skip
    chosen = standard[family, np.arange(num_sets)]
    values = mean[:, None] + np.sqrt(variance)[:, None] * chosen
    return FamilySets(
        values=torch.from_numpy(values.astype(np.float32)),
        family=torch.from_numpy(family.astype(np.int64)),
        mean=torch.from_numpy(mean),
        variance=torch.from_numpy(variance),
    )
