"""The contexts and codes of a data set's items, once it is said which contexts are constant: inferred, or drawn anew.

Constant contexts are the same for all items of a set, varying ones and codes are each item's own. A code here is what
the decoder takes: all contexts of an item, then its z. Shapes: q (*B, K, D), chosen (..., *B, K), 1 where constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from mnemon.distributions.gaussian import DiagonalGaussian
from mnemon.nets.context_mixture import ContextPriors
from mnemon.nets.contexts import Contexts, standard_like


class Latents(NamedTuple):
    """Contexts and codes of items, and what they cost; `varying` is q of each item's own contexts.

    Shapes: code (..., T, C), kls (..., T), constant_kl (...), varying (..., T, K, D)
    """

    code: Tensor
    code_kl: Tensor
    varying_kl: Tensor
    constant_kl: Tensor
    log_ratio: Tensor
    varying: DiagonalGaussian


def infer_latents(
    nets: Contexts,
    encodings: Tensor,
    q: DiagonalGaussian,
    chosen: Tensor,
    generator: torch.Generator | None,
    *,
    at_mean: bool = False,
    codes: bool = True,
    priors: ContextPriors | None = None,
) -> Latents:
    """Contexts and codes of items under given patterns, which all use the same noise.

    codes    without them z is 0 and costs nothing, and its nets have gradients of 0
    priors   of contexts; those of the nets when absent
    Shapes: encodings (*B, T, width), q (*B, K, D), chosen (..., *B, K) with values in [0, 1]
    """
    scale, used = 0.0 if at_mean else 1.0, 1.0 if codes else 0.0
    chosen = chosen.to(q.mean.dtype)
    fixed = q.mean + scale * q.std * _noise(q.mean, q.mean.shape, generator)
    if priors is not None and not at_mean:
        fixed = torch.where(_unknown(q), priors.constant.sample(tuple(fixed.shape[:-2]), generator), fixed)
    shared = chosen[..., None] * fixed
    q_v = nets.varying(encodings, shared, chosen)
    shape = (*encodings.shape[:-1], *q.mean.shape[-2:])
    varying = q_v.mean + scale * q_v.std * _noise(q.mean, shape, generator)
    free = 1 - chosen[..., None, :]
    c = shared[..., None, :, :] + free[..., None] * varying
    q_z, p_z = nets.code(encodings, c), nets.code_prior(c)
    z = q_z.mean + scale * q_z.std * _noise(q.mean, (*encodings.shape[:-1], nets.code_dim), generator)  # type: ignore[arg-type]
    if priors is None:
        p_v = nets.varying_prior(shared, chosen)
        log_prior, varying_kl, constant_kl = p_v.log_prob(varying), q_v.kl(p_v), q.kl(standard_like(q))
    else:
        log_prior, varying_kl = priors.varying.log_prob(varying), priors.varying.kl(q_v)
        constant_kl = priors.constant.kl(q)
    ratio = (free * (log_prior - q_v.log_prob(varying))).sum(-1) + p_z.log_prob(z) - q_z.log_prob(z)
    return Latents(
        code=torch.cat((c.flatten(-2), used * z.expand(*c.shape[:-2], -1)), -1),
        code_kl=used * q_z.kl(p_z).expand(c.shape[:-2]),
        varying_kl=(free * varying_kl).sum(-1),
        constant_kl=(chosen * constant_kl).sum(-1),
        log_ratio=ratio,
        varying=q_v,
    )


def draw_codes(
    nets: Contexts,
    q: DiagonalGaussian,
    chosen: Tensor,
    n: int,
    generator: torch.Generator | None,
    *,
    at_mean: bool = False,
    settled: bool = False,
    priors: ContextPriors | None = None,
) -> Tensor:
    """Codes of n new items: constant contexts from q, or its means, once for the set; the rest from the prior.

    settled  draw varying contexts like constant ones, from their mixture; without priors it changes nothing
    priors   of contexts, from which constant ones of which nothing is known are drawn as well; those of the nets when
             absent

    Shapes: q (*B, K, D), chosen (*B, K) -> (*B, n, C)
    """
    chosen = chosen.to(q.mean.dtype)
    fixed = q.mean if at_mean else q.rsample(generator=generator)
    shape = (*chosen.shape[:-1], n, *q.mean.shape[-2:])
    if priors is not None:
        fixed = torch.where(_unknown(q), priors.constant.sample(tuple(fixed.shape[:-2]), generator), fixed)
        shared, prior = chosen[..., None] * fixed, priors.constant if settled else priors.varying
        varying = prior.sample(shape[:-2], generator)
    else:
        shared = chosen[..., None] * fixed
        p_v = nets.varying_prior(shared, chosen)
        varying = p_v.mean + p_v.std * _noise(fixed, shape, generator)
    c = shared[..., None, :, :] + (1 - chosen)[..., None, :, None] * varying
    return torch.cat((c.flatten(-2), nets.code_prior(c).rsample(generator=generator)), -1)


def mean_code(nets: Contexts, q: DiagonalGaussian, chosen: Tensor, priors: ContextPriors | None = None) -> Tensor:
    """The code of an item at the means of all latents. Shapes: q (*B, K, D), chosen (*B, K) -> (*B, C)"""
    chosen = chosen.to(q.mean.dtype)
    shared = chosen[..., None] * q.mean
    varying = nets.varying_prior(shared, chosen).mean[..., 0, :, :] if priors is None else priors.varying.mean
    c = shared + (1 - chosen)[..., None] * varying
    return torch.cat((c.flatten(-2), nets.code_prior(c).mean), -1)


def combine_contexts(
    whole: DiagonalGaussian, parts: Sequence[DiagonalGaussian], constants: Sequence[Tensor]
) -> tuple[DiagonalGaussian, Tensor]:
    """The contexts of each part that are constant in it, the others from `whole`, and which are from a part.

    Where several give a context, the last one counts. Shapes: (*B, K, D) each, constants (*B, K) each
    """
    mean, std, together = whole.mean, whole.std, torch.zeros((), dtype=torch.bool, device=whole.mean.device)
    for q, constant in zip(parts, constants, strict=True):
        given = constant.bool()
        mean = torch.where(given[..., None], q.mean, mean)
        std = torch.where(given[..., None], q.std, std)
        together = together | given
    return DiagonalGaussian(mean, std), together


def _unknown(q: DiagonalGaussian) -> Tensor:
    """Contexts whose posterior is still N(0, I): nothing was written about them. Shapes: (*B, K, D) -> (*B, K, 1)"""
    return ((q.mean == 0) & (q.std == 1)).all(-1, keepdim=True)


def _noise(like: Tensor, shape: Sequence[int], generator: torch.Generator | None) -> Tensor:
    return torch.randn(tuple(shape), dtype=like.dtype, device=like.device, generator=generator)
