"""What a judge's probabilities say of a whole set: is there one value that none of its items contradicts?

A judge that errs in 3 of 100 real images calls ten alike in 7 of 10 real sets: zeros at opposite angles look the same,
and so do some sixes and nines. So beside "all ten get one label" a set is asked a question that real sets pass: an
item contradicts a value v if another is likelier, and the judge gives v a lower probability than all but 0.2% of
held-out real images have for what they are. (These are conformal prediction sets: Vovk, Gammerman and Shafer, 2005.)
An image that shows nothing contradicts nothing, so `support` tells how probable the judge holds the set's value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

COVERAGE = 0.998
"""Of held-out real images that shall not contradict what they are: a set of ten then passes in 98% of cases. Of sets of
nine rotated digits and a foreign one 6% pass (2% at 0.995, where real sets fall to 92%; 10% at 0.999)."""


@dataclass(frozen=True, eq=False)
class Judged:
    """Sets before a judge. log_probs: of the values of each factor; least: below which an item contradicts a value.

    Shapes: log_probs (B, n, V_f) for each factor, least (F)
    """

    log_probs: Sequence[Tensor]
    least: Tensor

    @property
    def values(self) -> Tensor:
        """The most likely value of each item. Shapes: -> (B, n, F)"""
        return torch.stack([log_probs.argmax(-1) for log_probs in self.log_probs], -1)

    @cached_property
    def best(self) -> Tensor:
        """The value of a set: the one that fewest items contradict, and of these the likeliest. Shapes: -> (B, F)"""
        found = []
        for log_probs, least in zip(self.log_probs, self.least, strict=True):
            allowed = _allowed(log_probs, least).sum(1)
            together = log_probs.sum(1).masked_fill(allowed < allowed.amax(-1, keepdim=True), -torch.inf)
            found.append(together.argmax(-1))
        return torch.stack(found, -1)

    @property
    def fits(self) -> Tensor:
        """Items that do not contradict their set's value. Shapes: -> bool (B, n, F)"""
        allowed = [_allowed(log_probs, least) for log_probs, least in zip(self.log_probs, self.least, strict=True)]
        return self._of_best(allowed)

    @property
    def support(self) -> Tensor:
        """The probability of the set's value in each item. Shapes: -> (B, n, F)"""
        return self._of_best(self.log_probs).exp()

    def _of_best(self, tables: Sequence[Tensor]) -> Tensor:
        """Entries for the set's value. Shapes: (B, n, V_f) for each factor -> (B, n, F)"""
        pairs = zip(tables, self.best.unbind(-1), strict=True)
        return torch.stack([table.take_along_dim(best[:, None, None], -1)[..., 0] for table, best in pairs], -1)

    @classmethod
    def join(cls, parts: Sequence[Judged]) -> Judged:
        log_probs = [torch.cat(some) for some in zip(*(part.log_probs for part in parts), strict=True)]
        return cls(log_probs, parts[0].least)


def _allowed(log_probs: Tensor, least: Tensor) -> Tensor:
    """Values that an item does not contradict. Shapes: (B, n, V) -> bool (B, n, V)"""
    return (log_probs >= least) | (log_probs == log_probs.amax(-1, keepdim=True))


def least_evidence(log_probs: Sequence[Tensor], factors: Tensor, coverage: float = COVERAGE) -> Tensor:
    """log p(true value) that all but a share 1 - coverage of new images reach: an order statistic of held-out ones.

    With n of them it is the floor((1 - coverage) (n + 1))-th smallest, and the smallest where there are too few.
    Shapes: log_probs (N, V_f) for each factor, factors (N, F) -> (F)
    """
    rank = max(1, math.floor((1 - coverage) * (len(factors) + 1) + 1e-9))  # 1 - 0.9 is a little below 0.1
    true = torch.stack(
        [part.take_along_dim(values[:, None], -1)[:, 0] for part, values in zip(log_probs, factors.T, strict=True)], -1
    )
    return true.sort(0).values[rank - 1]
