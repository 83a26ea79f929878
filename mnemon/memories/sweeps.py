"""Coordinate ascent: the loop over sweeps, and the sweep that goes through the items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, Self

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from mnemon.core.checks import truth
from mnemon.core.state import Record, State
from mnemon.memories.frames import Frames


class Sweeps(Protocol):
    """One way to run a memory's sweeps over an episode; `carry` is whatever record it iterates on."""

    def start(self) -> Record | None: ...
    def sweep(self, carry: Any, want_bound: bool) -> tuple[Record, Tensor | None]: ...
    def finish(self, carry: Any) -> tuple[State, State | None]: ...


def ascend(
    sweeps: Sweeps, total: Tensor, *, num_steps: int, tol: float | None, return_trace: bool
) -> tuple[Any, Tensor | None]:
    """Run sweeps until all steps are done or no episode's bound gains `tol` nats per frame any more.

    An episode that has converged is frozen, so that a batch gives what its episodes give one by one.
    """
    carry: Any = sweeps.start()
    trace: list[Tensor] = []
    active: Tensor | None = None
    for _ in range(num_steps):
        proposal, bound = sweeps.sweep(carry, want_bound=return_trace or tol is not None)
        if active is None:
            carry = proposal
        else:
            carry = _select(active, proposal, carry)
            bound = torch.where(active, bound, trace[-1])  # type: ignore[arg-type]
        if bound is not None:
            trace.append(bound)
        if tol is not None and len(trace) > 1:
            active = (trace[-1] - trace[-2]) / total >= tol
            if truth(active.logical_not()):  # unseen inside compile and vmap: there, all steps run
                break
    return carry, torch.stack(trace) if return_trace else None


def _select(active: Tensor, new: Record, old: Record) -> Record:
    """The new record where `active` (*B) holds, the old one elsewhere; every tensor starts with *B."""
    leaves_new, spec = pytree.tree_flatten(new)
    leaves_old = pytree.tree_leaves(old)
    chosen = [
        torch.where(active.reshape(active.shape + (1,) * (a.ndim - active.ndim)), a, b)
        for a, b in zip(leaves_new, leaves_old, strict=True)
    ]
    return pytree.tree_unflatten(chosen, spec)


class Sums(Record):
    """Sums over items; those of two pieces of an episode add up to those of the whole."""

    def __add__(self, other: Self) -> Self:
        theirs = other.tensors()
        return self.replace(**{name: mine + theirs[name] for name, mine in self.tensors().items()})


class ItemSweeps:
    """Sweeps that go through the items, in chunks if asked: E step and sums per chunk, one M step."""

    def __init__(self, memory: Any, frames: Frames, prior: Any, start: Any, chunk_size: int | None) -> None:
        self.memory, self.frames, self.prior = memory, frames, prior
        self.first, self.chunk_size = start, chunk_size
        self.natural_prior = memory._natural(prior)
        self.constant = frames.count(frames.constant(memory.noise_var)).sum(-1)

    def start(self) -> Record:
        return Pass(self.memory._posterior(self.first))

    def sweep(self, carry: Pass, want_bound: bool) -> tuple[Record, Tensor | None]:
        moments: Any = None
        for chunk in self.frames.chunks(self.chunk_size):
            address, part = self.memory._e_step(carry.posterior, chunk, want_bound)
            moments = part if moments is None else moments + part
        posterior = self.memory._m_step(carry.posterior, moments, self.natural_prior)
        bound = None
        if want_bound:
            fit = self.memory._fit(carry.posterior, moments, posterior)
            bound = self.constant + fit - self.memory._memory_kl(self.memory._state(posterior), self.prior)
        return Pass(posterior, None if self.chunk_size else address), bound

    def finish(self, carry: Pass) -> tuple[Any, Any]:
        address = None if carry.address is None else self.memory._finished(carry.address)
        return self.memory._state(carry.posterior), address


@dataclass(frozen=True, eq=False)
class Pass(Record):
    """What one sweep hands to the next."""

    posterior: Any
    address: Any = None
