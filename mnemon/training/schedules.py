"""What changes in the course of a stage: the learning rate, and the weight of the KL terms."""

from __future__ import annotations

import math

from mnemon.training.config import StageConfig


def learning_rate(stage: StageConfig, fraction: float) -> float:
    """Constant, or half a cosine from the stage's rate down to 0. fraction: of the stage, from 0 to 1"""
    if stage.decay == "constant":
        return stage.learning_rate
    return stage.learning_rate * 0.5 * (1 + math.cos(math.pi * fraction))


def kl_weight(stage: StageConfig, epochs: float) -> float:
    """From 0 to 1 in the warm-up's epochs, then 1. epochs: since the stage began, with fractions"""
    return min(1.0, epochs / stage.kl_warmup) if stage.kl_warmup else 1.0
