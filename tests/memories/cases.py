"""Every latent memory in a small size, and what each of them cannot promise."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from mnemon.memories import (
    CategoricalMemory,
    GaussianMemory,
    KanervaMemory,
    MixtureMemory,
    TreeMemory,
)
from mnemon.memories.base import LatentMemory

C = 6


@dataclass(frozen=True)
class Case:
    name: str
    memory: LatentMemory
    num_steps: int = 4
    rises: bool = True  # the joint bound never falls
    ordered: bool = False  # the result depends on the order of the items
    chunks: bool = True


def _slots(K: int) -> torch.Tensor:
    return torch.randn(K, C, dtype=torch.float64, generator=torch.Generator().manual_seed(7))


CASES = [
    Case("gaussian-span", GaussianMemory(C, 3, 0.7, 0.5)),  # T < C: sweeps in the span of the codes
    Case("gaussian", GaussianMemory(C, 3, 0.7, 0.5, _slots(3))),
    Case("gaussian-shift", GaussianMemory(C, 3, 0.7, 0.5, shift=True, location_var=1.5, location_mean=0.3)),
    Case("categorical", CategoricalMemory(C, 4, 0.7, 0.5)),
    Case("mixture", MixtureMemory(C, 2, 0.7, 0.5, num_clusters=3, location_var=2.0)),
    Case("tree", TreeMemory(C, 2, 0.7, 0.5, num_segments=2, num_clusters=3, location_var=2.0)),
    Case("kanerva-online", KanervaMemory(C, 3, 0.7, 0.5, online=True), 1, False, True, False),
    Case("kanerva-batched", KanervaMemory(C, 3, 0.7, 0.5, online=False), rises=False, chunks=False),
]


def cases(keep=lambda case: True):
    """Parametrise a test over the cases, or over those that promise what it asks for."""
    return pytest.mark.parametrize("case", [pytest.param(c, id=c.name) for c in CASES if keep(c)])


def episode(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Codes with structure: a few clusters, away from the origin."""
    generator = torch.Generator().manual_seed(seed)
    centres = 2 * torch.randn(4, C, dtype=torch.float64, generator=generator) + 0.5
    pick = torch.randint(4, shape, generator=generator)
    noise = torch.randn(*shape, C, dtype=torch.float64, generator=generator)
    return (centres[pick] + noise).to(dtype)


def num_items(case: Case) -> int:
    return 5 if case.name == "gaussian-span" else 9


def start(case: Case, codes: torch.Tensor, seed: int = 1):
    """A state to start from: what a short write of these codes leaves."""
    generator = torch.Generator().manual_seed(seed)
    return case.memory.write(codes, num_steps=1, generator=generator).state


def assert_close(left, right, tol: float = 1e-10) -> None:
    """Equal in every tensor of two records."""
    assert left.tensors().keys() == right.tensors().keys()
    for name, tensor in left.tensors().items():
        torch.testing.assert_close(tensor, getattr(right, name), atol=tol, rtol=tol, msg=lambda m, n=name: f"{n}: {m}")
