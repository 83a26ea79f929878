"""What a statistic network does between its two halves: many items become one vector, in any order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from mnemon.core.checks import check_size

PoolingKind = Literal["mean", "attention", "relation"]


class Pooling(nn.Module, ABC):
    """Items to one vector of the same size. Counts are multiplicities; an item of count 0 is not there.

    additive: the vectors of two parts and their counts give that of the whole, so that a write can be continued
    """

    additive = False

    @abstractmethod
    def forward(self, values: Tensor, counts: Tensor | None) -> Tensor:
        """Shapes: values (*B, T, W), counts (*B, T) -> (*B, W)"""


class MeanPooling(Pooling):
    """The mean of the items. Thesis, 5.2"""

    additive = True

    def forward(self, values: Tensor, counts: Tensor | None) -> Tensor:
        if counts is None:
            return values.mean(-2)
        return (counts[..., None] * values).sum(-2) / counts.sum(-1, keepdim=True)


class AttentionPooling(Pooling):
    """Heads that each look for something: softmax over the items of a learned score, then a weighted mean.

    The scores see the item and the mean of all, so that an item can count for being unlike the others.
    """

    def __init__(self, width: int, num_heads: int = 4) -> None:
        super().__init__()
        check_size("num_heads", num_heads)
        if width % num_heads:
            raise ValueError(f"AttentionPooling: expected a width divisible by {num_heads} heads, got {width}")
        self.num_heads = num_heads
        self.values = nn.Linear(width, width)
        self.score_item, self.score_mean = nn.Linear(width, width), nn.Linear(width, width, bias=False)
        self.score = nn.Linear(width, num_heads)
        self.out = nn.Linear(width, width)

    def forward(self, values: Tensor, counts: Tensor | None) -> Tensor:
        mean = MeanPooling()(values, counts)
        hidden = torch.relu(self.score_item(values) + self.score_mean(mean)[..., None, :])
        scores = self.score(hidden)
        if counts is not None:
            scores = scores + counts.log()[..., None]
        weights = scores.softmax(-2)[..., None]
        heads = self.values(values).unflatten(-1, (self.num_heads, -1))
        return mean + self.out((weights * heads).sum(-3).flatten(-2))


class RelationPooling(Pooling):
    """The mean over all pairs of items of what a net makes of the pair: whether items agree is a matter of pairs.

    Santoro et al., 2017, which the thesis suggests in 7.2.1. Work and memory grow with T^2.
    """

    def __init__(self, width: int, hidden: int = 128) -> None:
        super().__init__()
        # the first layer of a net on [v_i, v_j], in two parts: each item goes through it once
        self.one, self.other = nn.Linear(width, hidden), nn.Linear(width, hidden, bias=False)
        self.relation = nn.Sequential(nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.out = nn.Linear(hidden, width)

    def forward(self, values: Tensor, counts: Tensor | None) -> Tensor:
        pairs = self.relation(self.one(values)[..., :, None, :] + self.other(values)[..., None, :, :])
        if counts is None:
            related = pairs.mean((-3, -2))
        else:
            weights = counts[..., :, None] * counts[..., None, :]
            related = (weights[..., None] * pairs).sum((-3, -2)) / weights.sum((-2, -1))[..., None]
        return MeanPooling()(values, counts) + self.out(related)


def make_pooling(kind: PoolingKind, width: int) -> Pooling:
    """A pooling by name, for values of a given width."""
    if kind == "mean":
        return MeanPooling()
    if kind == "attention":
        return AttentionPooling(width)
    if kind == "relation":
        return RelationPooling(width)
    raise ValueError(f"pooling: expected one of {', '.join(get_args(PoolingKind))}, got {kind!r}")
