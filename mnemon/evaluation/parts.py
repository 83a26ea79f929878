"""The parts of an evaluation by name, as `mnemon eval --part` takes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from mnemon.core.protocol import MemoryModel
from mnemon.evaluation import (
    capacity,
    context_space,
    denoising,
    experiments,
    factor_sets,
    fewshot_experiments,
    memory_use,
)
from mnemon.evaluation.experiments import Evaluation
from mnemon.models.recall_model import RecallModel

PARTS: dict[str, Callable[[Evaluation], Iterable[dict[str, Any]]]] = {
    "bounds": experiments.bounds,
    "groups": experiments.groups,
    "recall": experiments.recall,
    "novelty": experiments.novelty_scores,
    "resize": experiments.resized,
    "prior": experiments.prior,
    "fewshot": fewshot_experiments.fewshot,
    "classification": fewshot_experiments.classification,
    "lengths": memory_use.lengths,
    "denoise": denoising.denoise,
    "shared-noise": memory_use.shared_noise,
    "capacity": capacity.capacity,
    "contexts": context_space.context_space,
    "factors": factor_sets.factor_sets,
}
ON_REQUEST = (
    "prior", "fewshot", "classification", "lengths", "denoise", "shared-noise", "capacity", "contexts", "factors",
)  # fmt: skip
"""Parts that take long with the papers' numbers of samples, or that not every model has: where they are asked for."""
WITHOUT_LIKELIHOOD = ("recall", "capacity")
"""What a model without a likelihood is measured by."""


def default_parts(model: MemoryModel) -> list[str]:
    """What is measured when nothing is asked for."""
    if isinstance(model, RecallModel):
        return list(WITHOUT_LIKELIHOOD)
    return [part for part in PARTS if part not in ON_REQUEST]
