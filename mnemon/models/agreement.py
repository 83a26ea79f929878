"""How often inferred patterns of constant contexts are the true ones, whatever the order of the contexts."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor


def agreements(inferred: Tensor, known: Tensor) -> Tensor:
    """The share of episodes whose pattern is the known one, for every order of the contexts.

    Shapes: (E, K) both -> (K!)
    """
    orders = list(itertools.permutations(range(known.shape[-1])))
    known = known.to(inferred.dtype).flatten(0, -2)
    columns = inferred.flatten(0, -2).unbind(-1)
    found = [torch.stack([columns[place] for place in order], -1) == known for order in orders]
    return torch.stack([same.all(-1).float().mean() for same in found])


def best_agreement(inferred: Tensor, known: Tensor) -> Tensor:
    """The share for the best order: contexts have no order of their own. Shapes: (*B, K) both -> (). Thesis, 6.4.3

    The best order of each batch: by chance a little above 1 / 2 for two contexts.
    """
    return agreements(inferred, known).amax()
