"""What changes in the course of a stage: the learning rate, and the weight of the KL terms."""

from __future__ import annotations

import math

from mnemon.training.config import StageConfig

ONE_CYCLE_START = 1 / 25
"""Where the rise of a one-cycle schedule begins, of the stage's rate: the first step moves already."""


def learning_rate(stage: StageConfig, fraction: float) -> float:
    """Constant, or half a cosine from the stage's rate down to 0; of one_cycle, after a linear rise up to that rate.

    fraction: of the stage, from 0 to 1
    """
    if stage.decay == "constant":
        return stage.learning_rate
    if stage.decay == "one_cycle":
        if fraction < stage.warmup:
            return stage.learning_rate * (ONE_CYCLE_START + (1 - ONE_CYCLE_START) * fraction / stage.warmup)
        fraction = (fraction - stage.warmup) / (1 - stage.warmup)
    return stage.learning_rate * 0.5 * (1 + math.cos(math.pi * fraction))


def kl_weight(stage: StageConfig, epochs: float) -> float:
    """From 0 to 1 in the warm-up's epochs, then 1. epochs: since the stage began, with fractions"""
    return min(1.0, epochs / stage.kl_warmup) if stage.kl_warmup else 1.0
