"""Stored items and categorical addresses over them: a slot for each item, found by the similarity of its key.

    q(a | x) = softmax_a s(e_a, e_q(x)),  p(a) = softmax_a s(e_a, e_p)

Every similarity is an inner product once keys and queries are scaled, so a state holds scaled keys. An item that is
stored n times has n times the probability, whether it takes n slots or one slot with the count n. No nets, no images.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from mnemon.core.checks import check_size
from mnemon.core.state import Record, State, rank

Similarity = Literal["normalised", "inner", "cosine"]
BLOCK = 1 << 22
"""Similarities that are held at a time: what a search needs does not grow with the memory."""
EMPTY = -1e30
"""What stands for log 0."""
BELOW_ONE = 1 - 1e-9
"""Keeps uniform draws under the last value of a distribution function that was summed up in float64."""
SUMMED_RIGHTLY = 1024
"""Rows of which PyTorch sums up an embedding's gradient on a GPU without a race: with more of them (up to 3,072, beyond
which it sorts) its kernel loads the next so many while it may still be reading these (pytorch/pytorch#199569), and sums
may come out otherwise each time."""


@dataclass(frozen=True, eq=False)
class ItemState(State):
    """Items as they came, flattened, and their keys, scaled as the similarity wants them.

    counts: how often each item is stored, 0 for an empty slot; None: once each.

    Shapes: items (*B, M, D), keys (*B, M, E), counts (*B, M)
    """

    items: Tensor = field(metadata=rank(2))
    keys: Tensor = field(metadata=rank(2))
    counts: Tensor | None = field(default=None, metadata=rank(1))

    @property
    def num_slots(self) -> int:
        return self.items.shape[-2]

    def append(self, other: ItemState) -> ItemState:
        """Both memories as one: these slots, then the other's. Batch dimensions broadcast."""
        if self.items.shape[-1] != other.items.shape[-1] or self.keys.shape[-1] != other.keys.shape[-1]:
            raise ValueError(
                f"append: expected items of size {self.items.shape[-1]} with keys of size {self.keys.shape[-1]}, got "
                f"{other.items.shape[-1]} and {other.keys.shape[-1]}; a memory holds items of one kind"
            )
        batch = torch.broadcast_shapes(self.batch_shape, other.batch_shape)
        both = [state.expand(batch) for state in (self, other)]
        counts = None
        if any(state.counts is not None for state in both):
            counts = torch.cat([_counts(state) for state in both], -1)
        return ItemState(
            torch.cat([state.items for state in both], -2), torch.cat([state.keys for state in both], -2), counts
        )

    def compact(self) -> ItemState:
        """Without the slots that are empty in every memory of the batch; the others keep their order."""
        if self.counts is None:
            return self
        present = self.counts > 0
        most = int(present.sum(-1).max())
        order = (~present).to(torch.uint8).sort(dim=-1, stable=True).indices[..., :most]
        counts = self.counts.gather(-1, order)
        parts = [
            torch.where(
                counts[..., None] > 0, part.gather(-2, order[..., None].expand(*order.shape, part.shape[-1])), 0
            )
            for part in (self.items, self.keys)
        ]
        once = bool((counts == 1).all())
        return ItemState(parts[0], parts[1], None if once else counts)


def scale_keys(keys: Tensor, similarity: Similarity) -> Tensor:
    """e_a / |e_a|, but for the plain inner product. VMA, equation 5. Shapes: (..., E) -> (..., E)"""
    _check_similarity(similarity)
    return keys if similarity == "inner" else F.normalize(keys, dim=-1)


def scale_queries(queries: Tensor, similarity: Similarity) -> Tensor:
    """e_q, or e_q / |e_q| for the cosine. Shapes: (..., E) -> (..., E)"""
    _check_similarity(similarity)
    return F.normalize(queries, dim=-1) if similarity == "cosine" else queries


@dataclass(frozen=True, eq=False)
class SlotAddress(Record):
    """softmax_a of <key_a, query> + log count_a, for many queries. A query of zeros gives the flat prior.

    Nothing but `log_probs` holds a similarity for every query and slot at once. Batch dimensions broadcast.

    Shapes: keys (*B, M, E), queries (*B, Q, E), counts (*B, M) or None
    """

    keys: Tensor
    queries: Tensor
    counts: Tensor | None = None

    @classmethod
    def of(cls, state: ItemState, queries: Tensor) -> SlotAddress:
        if queries.ndim < 2 or queries.shape[-1] != state.keys.shape[-1]:
            raise ValueError(
                f"address: expected queries (*B, Q, {state.keys.shape[-1]}) as the keys of this memory are, got "
                f"{tuple(queries.shape)}"
            )
        if state.num_slots == 0:
            raise ValueError("address: expected a memory with an item, got an empty one; write one first")
        return cls(state.keys, queries, state.counts)

    @property
    def num_slots(self) -> int:
        return self.keys.shape[-2]

    @property
    def batch_shape(self) -> torch.Size:
        return torch.broadcast_shapes(self.keys.shape[:-2], self.queries.shape[:-2])

    @property
    def num_queries(self) -> int:
        """Of all the batch."""
        return self.batch_shape.numel() * self.queries.shape[-2]

    def log_probs(self) -> Tensor:
        """log of the probability of every slot; some -1e30 where it is 0. Shapes: -> (*B, Q, M)"""
        return self._logits(slice(None)).log_softmax(-1)

    def log_normaliser(self, block: int | None = None) -> Tensor:
        """log sum_a exp of the similarities, in float64. Shapes: -> (*B, Q)"""
        total: Tensor | None = None
        for part in self._blocks(block):
            here = self._logits(part).double().logsumexp(-1)
            total = here if total is None else torch.logaddexp(total, here)
        assert total is not None
        return total

    def log_prob(self, index: Tensor, block: int | None = None) -> Tensor:
        """log of the probability of given slots. Shapes: (num_samples, *B, Q) -> (num_samples, *B, Q)"""
        similarity = (take_slots(self.keys, index) * self.queries).sum(-1)
        if self.counts is not None:
            similarity = similarity + take_slots(_log_counts(self.counts)[..., None], index)[..., 0]
        return (similarity.double() - self.log_normaliser(block)).to(similarity.dtype)

    @torch.no_grad()
    def draw(self, num_samples: int, *, generator: torch.Generator | None = None, block: int | None = None) -> Tensor:
        """Addresses, by the distribution function: one uniform number for each, however many slots there are.

        Shapes: -> int64 (num_samples, *B, Q)
        """
        check_size("num_samples", num_samples)
        shape = (*self.batch_shape, self.queries.shape[-2], num_samples)  # samples last: episodes are dealt out
        uniform = torch.rand(shape, dtype=torch.float64, device=self.keys.device, generator=generator) * BELOW_ONE
        total = self.log_normaliser(block)
        index = torch.zeros(shape, dtype=torch.int64, device=self.keys.device)
        reached = torch.zeros((*shape[:-1], 1), dtype=torch.float64, device=self.keys.device)
        for part in self._blocks(block):
            below = reached + (self._logits(part).double() - total[..., None]).exp().cumsum(-1)
            below = below.expand(*shape[:-1], below.shape[-1]).contiguous()
            # slots that lie below the draw; an empty one adds nothing to the function: it is never the first above
            index += torch.searchsorted(below, uniform, right=True)
            reached = below[..., -1:]
        # not a number counts as below nothing: the last slot then, where the loss will meet it
        return index.clamp(max=self.num_slots - 1).movedim(-1, 0)

    @torch.no_grad()
    def best(self, block: int | None = None) -> Tensor:
        """The most probable slot, the first of equals. Shapes: -> int64 (*B, Q)"""
        value: Tensor | None = None
        index = torch.zeros(())
        for part in self._blocks(block):
            here, place = self._logits(part).max(-1)
            if value is None:
                value, index = here, place
                continue
            index = torch.where(here > value, place + part.start, index)
            value = torch.maximum(value, here)
        return index

    def kl(self, other: SlotAddress, block: int | None = None) -> Tensor:
        """KL(self || other) over the same slots: how much a lookup tells, in nats. Shapes: -> (*B, Q)"""
        total, other_total = self.log_normaliser(block), other.log_normaliser(block)
        value = torch.zeros_like(total)
        for part in self._blocks(block):
            log_q = self._logits(part).double() - total[..., None]
            log_p = other._logits(part).double() - other_total[..., None]
            value = value + (log_q.exp() * (log_q - log_p)).sum(-1)
        return value.to(self.keys.dtype)

    def _logits(self, part: slice) -> Tensor:
        logits = self.queries @ self.keys[..., part, :].mT
        return logits if self.counts is None else logits + _log_counts(self.counts[..., None, part])

    def _blocks(self, block: int | None) -> Iterator[slice]:
        """Consecutive slots, of which the similarities to all queries are held at a time."""
        size = max(1, BLOCK // max(1, self.num_queries)) if block is None else block
        check_size("block", size)
        for start in range(0, self.num_slots, size):
            yield slice(start, min(start + size, self.num_slots))


def take_slots(values: Tensor, index: Tensor) -> Tensor:
    """What is in given slots, without a copy of the memory for every sample.

    Shapes: values (*B, M, D) or (M, D), index (S, *B, Q) -> (S, *B, Q, D)
    """
    num_slots, size = values.shape[-2:]
    episodes = values.shape[:-2].numel()
    if episodes > 1:
        first = num_slots * torch.arange(episodes, device=index.device)
        index = index + first.reshape(*values.shape[:-2], 1)
    return take_rows(values.reshape(-1, size), index, at_once=SUMMED_RIGHTLY if values.is_cuda else None)


def take_rows(table: Tensor, index: Tensor, *, at_once: int | None = None) -> Tensor:
    """Rows of a table, with a gradient that is summed up in one order; so many at a time, where that is given.

    As an embedding: on a CPU several threads sum up the gradient of plain indexing, in any order.

    Shapes: table (R, D), index (*N) -> (*N, D)
    """
    if at_once is None or index.numel() <= at_once or not (table.requires_grad and torch.is_grad_enabled()):
        return F.embedding(index, table)
    return torch.cat([F.embedding(part, table) for part in index.flatten().split(at_once)]).unflatten(0, index.shape)


def _log_counts(counts: Tensor) -> Tensor:
    """log n, finite for empty slots: a gradient must meet no infinity. exp still makes it 0."""
    return counts.log().clamp(min=EMPTY)


def _counts(state: ItemState) -> Tensor:
    if state.counts is not None:
        return state.counts
    return torch.ones(state.items.shape[:-1], dtype=state.keys.dtype, device=state.keys.device)


def _check_similarity(similarity: Similarity) -> None:
    if similarity not in get_args(Similarity):
        raise ValueError(f"similarity: expected one of {', '.join(get_args(Similarity))}, got {similarity!r}")
