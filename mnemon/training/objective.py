"""What a training step maximises, and what it reports: the four terms, in nats per frame."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from mnemon.core.episode import EVERY_ROLE, Roles
from mnemon.core.protocol import MemoryModel, Terms
from mnemon.data.corruptions import corrupt
from mnemon.models.codec_model import CodecModel, take_items
from mnemon.models.energy import EnergyModel
from mnemon.models.statistician import Statistician
from mnemon.objectives import Estimator
from mnemon.training.config import ObjectiveConfig
from mnemon.training.schedules import FULL_BOUND, BoundWeights

NAMES = (
    "loss", "reconstruction", "code_kl", "address_kl", "memory_kl", "choice_kl", "recall", "auxiliary", "agreement",
)  # fmt: skip
"""What every step reports; an absent part is 0. joint = reconstruction - code_kl - address_kl - memory_kl - choice_kl.
agreement: the share of episodes whose discrete choice is the known one."""
RECALL_NAMES = ("loss", "error", "error_of_cue", "wrong")
"""What a step of a model without a likelihood reports: squared error per pixel after reading and before it, and the
share of pixels that are read on the wrong side of 1/2."""

VIMCO_SAMPLES = 4
"""VMA, 4."""


@dataclass(frozen=True)
class StepResult:
    """A loss to differentiate, and the values of `names_of(model)` without gradient. Shapes: loss (), values (names)"""

    loss: Tensor
    values: Tensor


def names_of(model: MemoryModel) -> tuple[str, ...]:
    """What every step of a model's training reports, the loss first."""
    return RECALL_NAMES if isinstance(model, EnergyModel) else NAMES


def check_objective(model: MemoryModel, config: ObjectiveConfig) -> None:
    """Refuse an objective that the model cannot be trained with."""
    if isinstance(model, CodecModel):
        estimator_of(model, config)
        if config.membership_weight and not isinstance(model, Statistician):
            raise ValueError(
                f"objective.membership_weight: {type(model).__name__} has no context to compare items and episodes by; "
                "leave it out, or train a statistician"
            )
        return
    plain = ObjectiveConfig(corruption=config.corruption, level=config.level)
    for name, value in vars(config).items():
        if value != getattr(plain, name):
            raise ValueError(
                f"objective.{name}: {type(model).__name__} has no bound and is trained to read what it has written "
                "from damaged cues; it takes corruption and level only"
            )


def estimator_of(model: CodecModel, config: ObjectiveConfig) -> Estimator:
    """The configured estimator, or the model's own choice; one that the model cannot be trained with is refused."""
    kind = model.estimators[0] if config.estimator is None else config.estimator
    if kind not in model.estimators:
        raise ValueError(
            f"objective.estimator: {type(model).__name__} is trained with {' or '.join(model.estimators)}, got {kind}"
        )
    if kind == "terms" and config.num_samples not in (None, 1):
        raise ValueError(
            f"objective.num_samples: the terms of the bound are those of one sample, got {config.num_samples}"
        )
    own = VIMCO_SAMPLES if kind.startswith("vimco") else 1
    return Estimator(kind, own if config.num_samples is None else config.num_samples, config.temperature)  # type: ignore[arg-type]


def training_loss(
    model: MemoryModel,
    config: ObjectiveConfig,
    x: Tensor,
    mask: Tensor | None,
    generator: torch.Generator,
    weights: BoundWeights = FULL_BOUND,
    roles: Roles = EVERY_ROLE,
) -> StepResult:
    """What a training step minimises: the negative bound, or a model without one its error of recall. Shapes: x (B, T,
    *X)"""
    if isinstance(model, EnergyModel):
        return recall_loss(model, config, x, mask, generator, roles)
    assert isinstance(model, CodecModel)
    return bound_loss(model, config, x, mask, generator, weights, roles)


def recall_loss(
    model: EnergyModel,
    config: ObjectiveConfig,
    x: Tensor,
    mask: Tensor | None,
    generator: torch.Generator,
    roles: Roles = EVERY_ROLE,
) -> StepResult:
    """Squared error, summed over pixels and read steps, of what is read from damaged cues of written items; a mean
    over cues. Shapes: x (B, T, *X)"""
    subset = mask
    if roles.written is not None:
        subset = roles.write_mask(x.shape[: roles.written.ndim])
        subset = subset if mask is None else subset & mask
    targets, counts = x, mask
    if roles.scored is not None:
        targets, counts = take_items(x, roles.scored), None if mask is None else mask.gather(-1, roles.scored)
    cue, _ = corrupt(config.corruption, targets, config.level, generator)
    losses, read = model.recall_loss(x, cue, targets=targets, mask=subset)
    loss, last = _mean_per_frame(losses, counts), read[-1].detach()
    errors = ((last - targets).square(), (cue - targets).square(), ((last > 0.5) != (targets > 0.5)).to(x.dtype))
    pixels = [_mean_per_frame(error.flatten(2).mean(-1), counts) for error in errors]
    return StepResult(loss, torch.stack([loss.detach(), *pixels]).float())


def bound_loss(
    model: CodecModel,
    config: ObjectiveConfig,
    x: Tensor,
    mask: Tensor | None,
    generator: torch.Generator,
    weights: BoundWeights = FULL_BOUND,
    roles: Roles = EVERY_ROLE,
) -> StepResult:
    """Negative objective of a batch of episodes, averaged over episodes, per frame. Shapes: x (B, T, *X)

    `weights` scale the parts of the bound in the loss, address_kl by a power of its KL weight; what is reported is
    never scaled. With several samples, the loss is that of their bound, and the reported terms are means over them.
    """
    kl_weight = weights.latent / weights.reconstruction
    estimator = estimator_of(
        model, config if weights.estimator is None else replace(config, estimator=weights.estimator)
    )
    estimator = replace(estimator, codes=weights.codes)
    if weights.temperature is not None:
        estimator = replace(estimator, temperature=weights.temperature)
    write_mask = None
    if config.write_fraction < 1 or config.write_some:
        fraction = None if config.write_some else config.write_fraction
        write_mask = _subset(x, mask, fraction, generator)
    found = model.surrogate(
        x,
        estimator,
        mask=mask,
        write_mask=write_mask,
        roles=roles,
        kl_weight=kl_weight,
        generator=generator,
    )
    parts = per_frame(found.terms)
    if found.value is None:
        kl = weights.code * parts["code_kl"] + config.memory_weight * parts["memory_kl"]
        kl = kl_weight * kl + kl_weight**config.address_lag * parts["address_kl"]
        bound = parts["reconstruction"] - kl
    else:
        whole = _mean_per_frame(found.value, found.terms.counts)
        bound = whole - kl_weight * config.memory_weight * parts["memory_kl"]
    objective = config.bound_weight * (weights.reconstruction * bound - weights.choice * parts["choice_kl"])
    zero = torch.zeros((), dtype=objective.dtype, device=objective.device)
    recall = auxiliary = zero
    if config.recall_weight > 0:
        recall = _recall(model, config, found.state, x, mask, generator, roles.scored)
        objective = objective + config.recall_weight * recall
    extra = model.auxiliary(x, mask=mask) if found.extra is None else found.extra
    if extra is not None:
        auxiliary = extra.mean()
        objective = objective + auxiliary
    if config.membership_weight > 0:
        assert isinstance(model, Statistician)
        assert write_mask is not None
        membership = _membership(model, found.state, x, mask, write_mask)
        objective, auxiliary = objective + config.membership_weight * membership, auxiliary + membership
    agreement = zero if found.agreement is None else found.agreement
    reported = {**parts, "loss": -objective, "recall": recall, "auxiliary": auxiliary, "agreement": agreement}
    return StepResult(-objective, torch.stack([reported[name].detach().float() for name in NAMES]))


def per_frame(terms: Terms) -> dict[str, Tensor]:
    """The terms and the conditional bound, per frame, averaged over episodes. Shapes: -> () each"""
    return {name: values.mean() for name, values in per_frame_of_each(terms).items()}


def per_frame_of_each(terms: Terms) -> dict[str, Tensor]:
    """The same for each episode by itself. Shapes: -> (*B) each"""
    counts = torch.ones_like(terms.reconstruction) if terms.counts is None else terms.counts
    total = counts.sum(-1)
    names = ("reconstruction", "code_kl", "address_kl")
    parts = {name: (counts * getattr(terms, name)).sum(-1) / total for name in names}
    for name in ("memory_kl", "choice_kl"):
        whole = getattr(terms, name)
        parts[name] = torch.zeros_like(total) if whole is None else whole / total
    parts["conditional"] = parts["reconstruction"] - parts["code_kl"] - parts["address_kl"]
    return parts


def joint(values: Mapping[str, float]) -> float:
    """The joint bound per frame, from its terms."""
    return values["reconstruction"] - sum(values[name] for name in ("code_kl", "address_kl", "memory_kl", "choice_kl"))


def _subset(x: Tensor, mask: Tensor | None, fraction: float | None, generator: torch.Generator) -> Tensor:
    """A random part of each episode, at least one item; of any size, equally likely, without a fraction.

    Shapes: -> (B, T)
    """
    shape = x.shape[:2] if mask is None else mask.shape
    keys = torch.rand(shape, device=x.device, generator=generator)
    present = torch.ones(shape, dtype=torch.bool, device=x.device) if mask is None else mask
    keys = torch.where(present, keys, 2.0)
    total = present.sum(-1, keepdim=True)
    if fraction is None:
        wanted = 1 + (torch.rand(total.shape, device=x.device, generator=generator) * total).floor()
    else:
        wanted = (total * fraction).round().clamp(min=1)
    rank = keys.argsort(-1).argsort(-1)
    return (rank < wanted) & present


def _mean_per_frame(values: Tensor, counts: Tensor | None) -> Tensor:
    """Per frame, averaged over episodes. Shapes: (*B, T) both -> ()"""
    return values.mean() if counts is None else ((values * counts).sum(-1) / counts.sum(-1)).mean()


def _membership(model: Statistician, state: Any, x: Tensor, mask: Tensor | None, written: Tensor) -> Tensor:
    """`Statistician.log_membership` of the first item of each episode that was not written, averaged over the episodes
    that have one. Items of an episode come in a random order. Shapes: x (B, T, *X), written (B, T) -> ()"""
    left = ~written if mask is None else mask & ~written
    items = take_items(x, left.int().argmax(-1, keepdim=True)).squeeze(1)
    found, counts = model.log_membership(state, items), left.any(-1)
    return (found * counts).sum() / counts.sum().clamp(min=1)


def _recall(
    model: CodecModel,
    config: ObjectiveConfig,
    state: Any,
    x: Tensor,
    mask: Tensor | None,
    generator: torch.Generator,
    scored: Tensor | None,
) -> Tensor:
    """log p(x | what the memory recalls of a corrupted x), per frame: one read, erased pixels being 0 in the cue."""
    if scored is not None:
        x, mask = take_items(x, scored), None if mask is None else mask.gather(-1, scored)
    cue, _ = corrupt(config.corruption, x, config.level, generator)
    values = model.recall_log_prob(state, cue, x, generator if config.recall_draws else None)
    return _mean_per_frame(values, mask)
