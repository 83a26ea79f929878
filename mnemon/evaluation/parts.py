"""The parts of an evaluation by name, as `mnemon eval --part` takes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from mnemon.evaluation import context_space, experiments, factor_sets, fewshot_experiments
from mnemon.evaluation.experiments import Evaluation

PARTS: dict[str, Callable[[Evaluation], Iterable[dict[str, Any]]]] = {
    "bounds": experiments.bounds,
    "groups": experiments.groups,
    "recall": experiments.recall,
    "novelty": experiments.novelty_scores,
    "resize": experiments.resized,
    "prior": experiments.prior,
    "fewshot": fewshot_experiments.fewshot,
    "classification": fewshot_experiments.classification,
    "contexts": context_space.context_space,
    "factors": factor_sets.factor_sets,
}
ON_REQUEST = ("prior", "fewshot", "classification", "contexts", "factors")
"""Parts that take long with the papers' numbers of samples, or that not every model has: where they are asked for."""
