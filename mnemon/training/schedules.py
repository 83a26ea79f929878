"""What changes in the course of a stage: the learning rate, the weights of the bound's parts, a temperature."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from mnemon.objectives import EstimatorKind
from mnemon.training.config import StageConfig, Weighting

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


class BoundWeights(NamedTuple):
    """How a step weighs the parts of the bound that it maximises; what it reports is never weighted.

    latent: all KL terms but that of a discrete choice for the whole episode, which has `choice`. code: times this, that
    of the codes. temperature: of relaxed choices, and estimator: where the stage has one of its own. codes: whether
    there are any.
    """

    reconstruction: float | Tensor = 1.0
    latent: float | Tensor = 1.0
    choice: float | Tensor = 1.0
    code: float | Tensor = 1.0
    temperature: float | None = None
    estimator: EstimatorKind | None = None
    codes: bool = True

    @property
    def numbers(self) -> tuple[float, ...]:
        """The four weights."""
        return tuple(float(weight) for weight in (self.reconstruction, self.latent, self.choice, self.code))


FULL_BOUND = BoundWeights()
WEIGHTINGS: dict[Weighting, Callable[[float], BoundWeights]] = {
    "none": lambda omega: FULL_BOUND,
    "thesis_5_14": lambda omega: BoundWeights(omega, 1 / omega, 1 / omega),
    "thesis_6_13": lambda omega: BoundWeights(omega, 1 / omega**2, 1 / omega**2),
    "thesis_6_14": lambda omega: BoundWeights(1.0, omega, 1 / omega),
}
"""By omega = 1 + alpha. The first two make all latents cheap at the beginning; 6.14 makes all dear but the choice."""


def geometric_weights(stage: StageConfig, epochs: float) -> BoundWeights:
    """6.14 with an omega that goes from one value to another in the course of the stage, by the same factor each step.

    Below 1 latents are cheap, and the choice has its own weight of 1.
    """
    assert stage.latent_weights is not None
    first, last = stage.latent_weights
    done = min(1.0, epochs / stage.epochs) if stage.epochs else 1.0
    omega = first * (last / first) ** done
    return BoundWeights(1.0, omega, 1 / max(1.0, omega))


def bound_weights(stage: StageConfig, epochs: float) -> BoundWeights:
    """The stage's weighting, times its warm-up of the KL terms. epochs: since the stage began, with fractions

    alpha begins at `alpha` and is multiplied by `alpha_factor` after each epoch. Thesis, 5.14, 6.13 and 6.14.
    """
    alpha = stage.alpha * stage.alpha_factor ** math.floor(epochs)
    geometric = stage.weighting == "geometric"
    weights = geometric_weights(stage, epochs) if geometric else WEIGHTINGS[stage.weighting](1 + alpha)
    warm = kl_weight(stage, epochs)
    temperature = None
    if stage.temperature_from is not None:
        done = min(1.0, epochs / stage.epochs) if stage.epochs else 1.0
        temperature = stage.temperature_from + done * (stage.temperature_to - stage.temperature_from)
    latent, choice = warm * weights.latent, warm * weights.choice
    return BoundWeights(
        weights.reconstruction, latent, choice, stage.code_weight, temperature, stage.estimator, stage.codes
    )


def kl_weight(stage: StageConfig, epochs: float) -> float:
    """From 0 to 1 in the warm-up's epochs, then 1. epochs: since the stage began, with fractions"""
    return min(1.0, epochs / stage.kl_warmup) if stage.kl_warmup else 1.0
