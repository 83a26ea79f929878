"""Few-shot classification without training: whose examples explain an image best?

Every model with a likelihood can be asked: one memory per class, and the class under whose memory the image is most
likely. A model that knows better brings its own scorer (`ScoresClasses`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from mnemon.core.checks import check_size
from mnemon.core.protocol import MemoryModel
from mnemon.core.random import stream
from mnemon.data.episodes import ClassEpisodes
from mnemon.data.images import ImageSet
from mnemon.evaluation.likelihood import Estimate, TestSet, frames_at_once, importance_bound

FEWSHOT = 15
LIKELIHOOD = "likelihood"
"""The scorer that every model has."""

Scorer = Callable[[Tensor, Tensor, torch.Generator], Tensor]
"""Scores of a batch of episodes. Shapes: support (B, W, S, *X), queries (B, Q, *X) -> (B, Q, W)"""


@runtime_checkable
class ScoresClasses(Protocol):
    """What a model has that brings scorers of its own, such as the sums of q(a | x) over the slots of a class."""

    @property
    def class_scorers(self) -> tuple[str, ...]:
        """Their names; the first is used where none is named."""
        ...

    def class_log_scores(
        self,
        support: Tensor,
        queries: Tensor,
        *,
        scorer: str,
        num_samples: int = 1,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """log p(class | query, support), up to what is common to all classes.

        Shapes: support (*B, W, S, *X), queries (*B, Q, *X) -> (*B, Q, W)
        """
        ...


def scorers_of(model: MemoryModel) -> tuple[str, ...]:
    """The names of the scorers that a model can be asked for; the first is used where none is named."""
    return (*(model.class_scorers if isinstance(model, ScoresClasses) else ()), LIKELIHOOD)


def class_log_scores(
    model: MemoryModel,
    support: Tensor,
    queries: Tensor,
    *,
    scorer: str | None = None,
    num_samples: int = 1,
    generator: torch.Generator | None = None,
) -> Tensor:
    """How well each of W classes, given by S examples each, explains the queries; the largest is the answer.

    Shapes: support (*B, W, S, C, H, V), queries (*B, Q, C, H, V) -> (*B, Q, W)
    """
    check_size("num_samples", num_samples)
    known = scorers_of(model)
    scorer = known[0] if scorer is None else scorer
    if scorer not in known:
        raise ValueError(
            f"class_log_scores: expected a scorer of {type(model).__name__} ({', '.join(known)}), got {scorer!r}"
        )
    if support.ndim < 5 or support.ndim != queries.ndim + 1 or support.shape[:-5] != queries.shape[:-4]:
        raise ValueError(
            "class_log_scores: expected support (*B, ways, shots, C, H, W) and queries (*B, Q, C, H, W), got "
            f"{tuple(support.shape)} and {tuple(queries.shape)}"
        )
    if scorer != LIKELIHOOD and isinstance(model, ScoresClasses):
        return model.class_log_scores(support, queries, scorer=scorer, num_samples=num_samples, generator=generator)
    return likelihood_scores(model, support, queries, num_samples=num_samples, generator=generator)


def likelihood_scores(
    model: MemoryModel,
    support: Tensor,
    queries: Tensor,
    *,
    num_samples: int = 1,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Bound on log p(query | memory of a class), for one memory per class.

    Shapes: support (*B, W, S, C, H, V), queries (*B, Q, C, H, V) -> (*B, Q, W)
    """
    state = model.write(support, generator=generator)
    asked = queries.unsqueeze(-5).expand(*support.shape[:-4], *queries.shape[-4:])
    return importance_bound(model, state, asked, num_samples=num_samples, generator=generator).mT


def nearest_neighbour_scores(support: Tensor, queries: Tensor) -> Tensor:
    """Minus the distance in pixels to the nearest example of each class: what needs no model.

    Shapes: support (*B, W, S, *X), queries (*B, Q, *X) -> (*B, Q, W)
    """
    leading = queries.ndim - 4
    flat = support.flatten(leading + 2).flatten(leading, leading + 1)
    # by differences: the faster products round, and binary images have many neighbours at equal distance
    exact = "donot_use_mm_for_euclid_dist"
    distances = torch.cdist(queries.flatten(leading + 1), flat, compute_mode=exact)
    return -distances.unflatten(-1, support.shape[leading : leading + 2]).amin(-1)


class FewShotEpisodes(NamedTuple):
    """Places in the data: examples of each class, and other images of it.

    Shapes: support (E, W, S), queries (E, W, Q)
    """

    support: Tensor
    queries: Tensor


def fewshot_episodes(
    data: ImageSet, *, ways: int, shots: int, queries: int, num_episodes: int, seed: int
) -> FewShotEpisodes:
    """`ways` different classes, `shots + queries` different images of each; all from the seed."""
    for name, value in (("ways", ways), ("shots", shots), ("queries", queries), ("num_episodes", num_episodes)):
        check_size(name, value)
    drawn = ClassEpisodes(ways, shots + queries, num_episodes, batches_per_epoch=1).epoch(data, seed=seed, epoch=0)
    index = drawn.index[0].unflatten(-1, (ways, shots + queries))
    return FewShotEpisodes(index[..., :shots], index[..., shots:])


@torch.no_grad()
def fewshot_accuracy(
    score: Scorer,
    test: TestSet,
    *,
    ways: int,
    shots: int,
    queries: int = 1,
    num_episodes: int = 1000,
    seed: int = 0,
) -> Estimate:
    """Share of queries given to their own class, with its 95% interval over episodes.

    queries  images asked about, of each class
    """
    episodes = fewshot_episodes(
        test.data, ways=ways, shots=shots, queries=queries, num_episodes=num_episodes, seed=seed
    )
    block = max(1, frames_at_once(test.device) // (ways * ways * queries))
    answer = torch.arange(ways, device=test.device).repeat_interleave(queries)
    right = []
    for start in range(0, num_episodes, block):
        part = slice(start, start + block)
        generator = stream(seed, FEWSHOT, start, device=str(test.device))
        support = test.draw(episodes.support[part], generator)
        asked = test.draw(episodes.queries[part].flatten(1), generator)
        scores = score(support, asked, generator)
        if bool(scores.isnan().any()):
            raise ValueError(f"fewshot_accuracy: a score is NaN in the episodes from {start} on; look at the model")
        right.append((scores.argmax(-1) == answer).double().mean(-1).cpu())
    return Estimate.of(torch.cat(right))
