"""Choosing a memory's variances from data, by the bound."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor

from mnemon.core.checks import check_finite
from mnemon.core.episode import Codes
from mnemon.memories.base import LatentMemory

SMALLEST = 1e-8
"""Variances are looked for between this and its inverse."""

Memory = TypeVar("Memory", bound=LatentMemory)


def choose_variances(
    memory: Memory,
    codes: Tensor | Codes,
    *,
    names: Sequence[str] = ("noise_var", "slot_var"),
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    num_steps: int | None = None,
    seed: int = 0,
) -> Memory:
    """The same memory with the variances under which it explains these codes best.

    Pattern search on the logarithms: each named variance is tried larger and smaller by a factor (4, then 2,
    then its roots down to 1.09), keeping what raises the joint bound of a fresh write. Every write starts from
    the same seed, so the search is deterministic. With several episodes their mean bound per frame counts.

    names      "noise_var", "slot_var", and where the memory has them "location_var", "address_var"
    num_steps  sweeps of each write; the bound favours too much noise where the sweeps have not converged
    """
    for name in names:
        if not isinstance(getattr(memory, name, None), int | float | Tensor):
            raise ValueError(f"choose_variances: {type(memory).__name__} has no variance {name!r}")

    def score(candidate: Memory) -> float:
        device = (codes.mean if isinstance(codes, Codes) else codes).device
        generator = torch.Generator(device).manual_seed(seed)
        written = candidate.write(codes, mask=mask, weights=weights, num_steps=num_steps, generator=generator)
        bound = candidate.terms(codes, written).per_frame.mean()
        check_finite("choose_variances: bound", bound, "scale the codes to unit size")
        return float(bound)

    with torch.no_grad():
        best, value = memory, score(memory)
        log_factor = math.log(4)
        while log_factor > math.log(1.05):
            moved = False
            for name in names:
                for step in (log_factor, -log_factor):
                    trial = float(getattr(best, name)) * math.exp(step)
                    if not SMALLEST < trial < 1 / SMALLEST:
                        continue  # codes without any noise would have it shrink for ever
                    candidate = best.replace(**{name: trial})
                    attempt = score(candidate)
                    if attempt > value:
                        best, value, moved = candidate, attempt, True
                        break
            if not moved:
                log_factor /= 2
    return best
