"""What a training step maximises, and what it reports: the four terms, in nats per frame."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mnemon.core.protocol import Terms
from mnemon.data.corruptions import corrupt
from mnemon.models.codec_model import CodecModel
from mnemon.training.config import ObjectiveConfig

NAMES = ("loss", "reconstruction", "code_kl", "address_kl", "memory_kl", "recall", "auxiliary")
"""What every step reports; an absent part is 0. joint = reconstruction - code_kl - address_kl - memory_kl."""


@dataclass(frozen=True)
class StepResult:
    """A loss to differentiate, and the values of `NAMES` without gradient. Shapes: loss (), values (len(NAMES),)"""

    loss: Tensor
    values: Tensor


def training_loss(
    model: CodecModel,
    config: ObjectiveConfig,
    x: Tensor,
    mask: Tensor | None,
    generator: torch.Generator,
    kl_weight: float = 1.0,
) -> StepResult:
    """Negative objective of a batch of episodes, averaged over episodes, per frame. Shapes: x (B, T, *X)

    kl_weight scales the KL terms in the loss (a warm-up); what is reported is never scaled.
    """
    write_mask = None
    if config.write_fraction < 1:
        write_mask = _subset(x, mask, config.write_fraction, generator)
    terms, state = model.terms_and_state(x, mask=mask, write_mask=write_mask, generator=generator)
    parts = per_frame(terms)
    kl = parts["code_kl"] + parts["address_kl"] + config.memory_weight * parts["memory_kl"]
    objective = config.bound_weight * (parts["reconstruction"] - kl_weight * kl)
    zero = torch.zeros((), dtype=objective.dtype, device=objective.device)
    recall = auxiliary = zero
    if config.recall_weight > 0:
        recall = _recall(model, config, state, x, mask, generator)
        objective = objective + config.recall_weight * recall
    extra = model.auxiliary(x, mask=mask)
    if extra is not None:
        auxiliary = extra.mean()
        objective = objective + auxiliary
    reported = {**parts, "loss": -objective, "recall": recall, "auxiliary": auxiliary}
    return StepResult(-objective, torch.stack([reported[name].detach().float() for name in NAMES]))


def per_frame(terms: Terms) -> dict[str, Tensor]:
    """The four terms and the conditional bound, per frame, averaged over episodes. Shapes: -> () each"""
    return {name: values.mean() for name, values in per_frame_of_each(terms).items()}


def per_frame_of_each(terms: Terms) -> dict[str, Tensor]:
    """The same for each episode by itself. Shapes: -> (*B) each"""
    counts = torch.ones_like(terms.reconstruction) if terms.counts is None else terms.counts
    total = counts.sum(-1)
    names = ("reconstruction", "code_kl", "address_kl")
    parts = {name: (counts * getattr(terms, name)).sum(-1) / total for name in names}
    parts["memory_kl"] = torch.zeros_like(total) if terms.memory_kl is None else terms.memory_kl / total
    parts["conditional"] = parts["reconstruction"] - parts["code_kl"] - parts["address_kl"]
    return parts


def joint(values: Mapping[str, float]) -> float:
    """The joint bound per frame, from the four terms."""
    return values["reconstruction"] - values["code_kl"] - values["address_kl"] - values["memory_kl"]


def _subset(x: Tensor, mask: Tensor | None, fraction: float, generator: torch.Generator) -> Tensor:
    """A random part of each episode, at least one item. Shapes: -> (B, T)"""
    shape = x.shape[:2] if mask is None else mask.shape
    keys = torch.rand(shape, device=x.device, generator=generator)
    present = torch.ones(shape, dtype=torch.bool, device=x.device) if mask is None else mask
    keys = torch.where(present, keys, 2.0)
    wanted = (present.sum(-1, keepdim=True) * fraction).round().clamp(min=1)
    rank = keys.argsort(-1).argsort(-1)
    return (rank < wanted) & present


def _recall(
    model: CodecModel, config: ObjectiveConfig, state: Any, x: Tensor, mask: Tensor | None, generator: torch.Generator
) -> Tensor:
    """log p(x | what the memory recalls of a corrupted x), per frame: one read, erased pixels being 0 in the cue."""
    cue, _ = corrupt(config.corruption, x, config.level, generator)
    values = model.recall_log_prob(state, cue, x)
    return values.mean() if mask is None else ((values * mask).sum(-1) / mask.sum(-1)).mean()
