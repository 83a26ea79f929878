"""Bounds from log-weights alone: log p(x, latents) / q(latents), one row per sample. And what to differentiate where a
latent is discrete: VIMCO."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from mnemon.core.checks import check_size
from mnemon.core.episode import Roles
from mnemon.core.protocol import Bound, Terms

Baseline = Literal["arithmetic", "geometric"]
EstimatorKind = Literal[
    "terms", "importance", "vimco", "vimco_geometric", "gumbel",
    "enumerate", "posterior", "balanced", "held", "concrete",
]  # fmt: skip


@dataclass(frozen=True)
class Estimator:
    """How a training step estimates the gradient of its bound.

    kind         "terms": the parts of the bound, differentiated as they are. "importance": the bound of `num_samples`
                 reparameterised draws. "vimco", "vimco_geometric": that bound with discrete addresses among the draws.
                 "gumbel": the mean of `num_samples` draws, discrete latents relaxed in the backward pass only.
                 "enumerate": every value of a discrete latent of the episode, weighted by what a net says; "posterior":
                 weighted by the bound under each value, which the net is taught; "balanced": likewise, but every value
                 equally often in a batch; "held": weighted by the net, which learns nothing. "concrete": that latent
                 relaxed
    temperature  of the relaxation
    codes        False: the codes of a model that also has contexts are 0 and cost nothing
    """

    kind: EstimatorKind = "terms"
    num_samples: int = 1
    temperature: float = 1.0
    codes: bool = True

    def __post_init__(self) -> None:
        check_size("num_samples", self.num_samples)
        if self.kind not in get_args(EstimatorKind):
            raise ValueError(f"estimator: expected one of {', '.join(get_args(EstimatorKind))}, got {self.kind!r}")
        if self.kind.startswith("vimco"):
            _check_others(self.num_samples)
        if not self.temperature > 0:
            raise ValueError(f"temperature: expected a positive number, got {self.temperature}")


@dataclass(frozen=True, eq=False)
class Request:
    """What a training step asks of a model beside its images: see `CodecModel.surrogate`."""

    estimator: Estimator
    mask: Tensor | None
    write_mask: Tensor | None
    roles: Roles
    kl_weight: float | Tensor


@dataclass(frozen=True, eq=False)
class Surrogate:
    """What a training step maximises, item by item, the parts of the bound that it reports, and the memory.

    value None: the terms are themselves what is differentiated. agreement: the share of episodes whose inferred
    discrete choice is the known one, where it is known. extra: what is maximised beside the bound, and is no part of
    it. Shapes: value (*B, Q), and the terms likewise; agreement (); extra (*B)
    """

    value: Tensor | None
    terms: Terms
    state: Any
    agreement: Tensor | None = None
    extra: Tensor | None = None


def elbo(log_weights: Tensor) -> Tensor:
    """Mean of the log-weights. Shapes: (num_samples, *B) -> (*B)"""
    return log_weights.mean(0)


def importance_weighted(log_weights: Tensor) -> Tensor:
    """log mean_k w_k, accumulated in float64: a bound that tightens with the number of samples.

    Shapes: (num_samples, *B) -> (*B)
    """
    total = log_weights.double().logsumexp(0) - math.log(log_weights.shape[0])
    return total.to(log_weights.dtype)


def bound(log_weights: Tensor) -> Bound:
    """The importance-weighted bound; with one sample it is the ELBO. Shapes: (num_samples, *B) -> (*B)"""
    num_samples = log_weights.shape[0]
    check_size("num_samples", num_samples)
    kind = "elbo" if num_samples == 1 else "iwae"
    return Bound(importance_weighted(log_weights), kind, num_samples)  # type: ignore[arg-type]


def leave_one_out(log_weights: Tensor, baseline: Baseline = "arithmetic") -> Tensor:
    """The bound that the other samples give in place of each: what sample k adds is measured against entry k.

    arithmetic: log mean_{j != k} w_j (VMA, equation 8). geometric: log mean_j w_j with w_k replaced by the geometric
    mean of the others (Mnih and Rezende, 2016).

    Shapes: (K, *B) -> (K, *B), K >= 2
    """
    if baseline not in get_args(Baseline):
        raise ValueError(f"baseline: expected arithmetic or geometric, got {baseline!r}")
    num_samples = log_weights.shape[0]
    _check_others(num_samples)
    wide = log_weights.double()
    none = torch.full_like(wide[:1], -math.inf)
    # sums over those before and those after, which unlike differences lose nothing, however large one weight is
    before = torch.cat((none, wide[:-1].logcumsumexp(0)))
    after = torch.cat((wide[1:].flip(0).logcumsumexp(0).flip(0), none))
    others = torch.logaddexp(before, after)
    if baseline == "arithmetic":
        others = others - math.log(num_samples - 1)
    else:
        instead = (wide.sum(0) - wide) / (num_samples - 1)
        others = torch.logaddexp(others, instead) - math.log(num_samples)
    return others.to(log_weights.dtype)


def vimco(log_weights: Tensor, log_q: Tensor, baseline: Baseline = "arithmetic") -> Tensor:
    """The importance-weighted bound L, with a gradient that also counts how the addresses were drawn.

        L + sum_k sg[L - L_-k] log q(a_k)

    L is differentiated through everything, - log q(a_k) in its weights included: that is the - w_k / sum w of VMA's
    equation 8, which must not be written a second time. The sum is subtracted again without gradient, so that the
    value is the bound itself.

    log_q: log q(a_k) of the addresses that were drawn, with gradient. Shapes: (K, *B) both -> (*B). VMA, equation 8
    """
    if log_q.shape != log_weights.shape:
        raise ValueError(
            f"vimco: expected log_q of shape {tuple(log_weights.shape)}, one for every weight, got {tuple(log_q.shape)}"
        )
    total = importance_weighted(log_weights)
    gain = (total - leave_one_out(log_weights, baseline)).detach()
    return total + (gain * (log_q - log_q.detach())).sum(0)


def _check_others(num_samples: int) -> None:
    if num_samples < 2:
        raise ValueError(
            f"vimco: expected at least 2 samples, got {num_samples}; the baseline of a sample is the bound of the "
            "others, and one sample leaves out the only one there is. Take num_samples=2 or more, or estimator gumbel"
        )
