"""What the contexts of data sets tell: the family of a set by its neighbours, its moments by a straight line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mnemon.core.random import stream
from mnemon.data.episodes import SetEpisodes
from mnemon.data.synthetic import FAMILIES
from mnemon.evaluation.experiments import Evaluation
from mnemon.evaluation.likelihood import Estimate, TestSet
from mnemon.models.statistician import Statistician

CONTEXTS = 21
"""The random stream of this file."""
NEIGHBOURS = 5


class EmbeddedSets(NamedTuple):
    """Contexts of test sets, the family of each, and the moments of its items.

    Shapes: contexts (S, D), family (S), mean and variance (S)
    """

    contexts: Tensor
    family: Tensor
    mean: Tensor
    variance: Tensor


@torch.no_grad()
def embed_sets(model: Statistician, test: TestSet, *, set_size: int, batch_size: int = 16) -> EmbeddedSets:
    """The mean of q(c | X) for every test set; the sets' groups are their families. Thesis, 5.3.1"""
    data = test.data
    if data.labels is None or data.groups is None:
        raise ValueError(f"--part contexts: expected data sets in families, but {data.name} has none; take families")
    number = data.num_classes
    batch_size = next(size for size in range(min(batch_size, number), 0, -1) if number % size == 0)
    index = SetEpisodes(set_size, batch_size).epoch(data, seed=0, epoch=0).index
    found = []
    for i, part in enumerate(index):
        x = test.draw(part, stream(0, CONTEXTS, i, device=str(test.device)))
        found.append((model.write(x).mean, x.flatten(2).mean((-2, -1)), x.flatten(2).var((-2, -1))))
    contexts, mean, variance = (torch.cat(parts).double().cpu() for parts in zip(*found, strict=True))
    family = data.groups[index[..., 0].flatten().to(test.device)].cpu()
    return EmbeddedSets(contexts, family, mean, variance)


def neighbour_vote(contexts: Tensor, labels: Tensor, neighbours: int = NEIGHBOURS) -> Tensor:
    """Whether the most frequent label among the nearest others is a point's own. Shapes: (S, D), (S) -> bool (S)"""
    distances = torch.cdist(contexts, contexts)
    distances.fill_diagonal_(torch.inf)
    nearest = distances.topk(min(neighbours, len(contexts) - 1), largest=False).indices
    return labels[nearest].mode(-1).values == labels


def explained(contexts: Tensor, values: Tensor) -> float:
    """R^2 of a linear regression, each half of the sets being predicted from the other. Shapes: (S, D), (S) -> ()"""
    inputs = torch.cat((contexts, torch.ones_like(contexts[:, :1])), 1)
    predicted = torch.empty_like(values)
    even = torch.arange(len(values)) % 2 == 0
    for part in (even, ~even):
        weights = torch.linalg.lstsq(inputs[~part], values[~part, None]).solution
        predicted[part] = (inputs[part] @ weights)[:, 0]
    return float(1 - (values - predicted).square().sum() / (values - values.mean()).square().sum())


def context_space(evaluation: Evaluation) -> Iterable[dict[str, Any]]:
    """The vote on the family, and R^2 of mean and variance with one regression for each family."""
    if not isinstance(evaluation.model, Statistician):
        raise ValueError(f"--part contexts: expected a statistician, got {evaluation.config.model.kind}")
    sets = embed_sets(evaluation.model, evaluation.test, set_size=evaluation.length)
    right = neighbour_vote(sets.contexts, sets.family)
    note = f"{NEIGHBOURS} nearest of the other {len(right) - 1} test sets"
    yield evaluation.record(Estimate.of(right.double()), "family_vote", "share", note=note)
    for number in sets.family.unique().tolist():
        mine = sets.family == number
        name = FAMILIES[number] if evaluation.test.data.name == "families" else f"family {number}"
        for moment in ("mean", "variance"):
            value = explained(sets.contexts[mine], getattr(sets, moment)[mine])
            estimate = Estimate(value, float("nan"), int(mine.sum()))
            yield evaluation.record(estimate, f"r2_{moment}", "share", note=f"of the set's own {moment}; {name}")
