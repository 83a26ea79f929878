"""Novelty: does log p(x | memory) - log p(x | prior) tell what was written from what was not?"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor

from mnemon.core.protocol import MemoryModel
from mnemon.core.random import stream
from mnemon.data.episodes import novelty_episodes
from mnemon.evaluation.likelihood import WRITES, Estimate, TestSet, scored_groups


def memory_gain(model: MemoryModel, state: object, x: Tensor, generator: torch.Generator, samples: int = 4) -> Tensor:
    """Bound on log p(x | memory) less that on log p(x | prior state): what the memory adds. Shapes: -> (*B, Q)"""
    seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))

    def bound(of: object) -> Tensor:
        # common random numbers: the difference is what counts
        same = torch.Generator(x.device).manual_seed(seed)
        return model.log_likelihood(of, x, num_samples=samples, generator=same).value

    return bound(state) - bound(model.prior_state(x.shape[:-4]))


def memory_bound(model: MemoryModel, state: object, x: Tensor, generator: torch.Generator, samples: int = 4) -> Tensor:
    """Bound on log p(x | memory), for models that have no memory before the first write. Shapes: -> (*B, Q)"""
    return model.log_likelihood(state, x, num_samples=samples, generator=generator).value


def has_prior(model: MemoryModel) -> bool:
    """Whether log p(x) is defined before anything was written."""
    try:
        model.prior_state()
    except ValueError:
        return False
    return True


def auroc(known: Tensor, novel: Tensor) -> float:
    """Chance that a known item scores above a novel one."""
    labels = np.r_[np.ones(known.numel()), np.zeros(novel.numel())]
    return float(roc_auc_score(labels, torch.cat((known.flatten(), novel.flatten())).double().numpy()))


def novelty(
    model: MemoryModel,
    test: TestSet,
    *,
    num_classes: int = 8,
    per_class: int = 8,
    num_episodes: int = 64,
    seed: int = 0,
) -> dict[str, Estimate]:
    """AUROC per episode, averaged: written and same_class against unseen classes, and for pixel nearest neighbours."""
    sizes: dict[str, Any] = {
        "num_classes": num_classes,
        "per_class": per_class,
        "num_episodes": num_episodes,
        "seed": seed,
    }
    score = memory_gain if has_prior(model) else memory_bound
    model_scores = scored_groups(model, test, score=score, **sizes)
    pixel_scores = _nearest_neighbour_scores(test, **sizes)
    found = {}
    for scorer, scores in (("model", model_scores), ("pixels", pixel_scores)):
        for known in ("written", "same_class"):
            values = [auroc(a, b) for a, b in zip(scores[known], scores["unseen"], strict=True)]
            found[f"{scorer}_{known}"] = Estimate.of(torch.tensor(values))
    return found


def _nearest_neighbour_scores(
    test: TestSet, *, num_classes: int, per_class: int, num_episodes: int, seed: int
) -> dict[str, Tensor]:
    """Minus the distance to the nearest written image, in pixels. Shapes: -> (num_episodes, frames) each"""
    episodes = novelty_episodes(
        test.data, num_classes=num_classes, per_class=per_class, num_episodes=num_episodes, seed=seed
    )
    generator = stream(seed, WRITES, device=str(test.device))
    written = test.draw(episodes.written, generator).flatten(2)
    scores = {}
    for name in ("written", "same_class", "unseen"):
        frames = written if name == "written" else test.draw(getattr(episodes, name), generator).flatten(2)
        scores[name] = -torch.cdist(frames, written).min(-1).values.cpu()
    return scores
