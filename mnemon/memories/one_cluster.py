"""What the memories with one set of slots share: a weighted sum of all rows explains every code.

Sampling, densities and the KL are those of the linear-Gaussian algebra with a cluster dimension of one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mnemon.memories import linear_gaussian as lg
from mnemon.memories.base import LatentMemory
from mnemon.memories.draws import draw_slots
from mnemon.memories.fitting import unknown_start
from mnemon.memories.frames import Frames

START_STD = 0.05
"""Of slots at a random start (published code)."""


class OneClusterMemory(LatentMemory):
    """A subclass says how codes are addressed, and how a memory follows from addresses."""

    def _memory_kl(self, state: Any, prior: Any) -> Tensor:
        kl: Tensor = state.kl(prior)
        return kl

    def _sample(self, state: Any, n: int, noise_var: float | Tensor, generator: torch.Generator | None) -> Tensor:
        cluster = torch.zeros((*state.batch_shape, n), dtype=torch.long, device=state.R.device)
        return lg.sample_codes(state.cluster, cluster, noise_var, generator)

    def _density_scores(self, state: Any, codes: Tensor) -> Tensor:
        return lg.log_density(state.cluster, codes, self.noise_var)[..., 0]

    def _draw(self, state: Any, generator: torch.Generator | None) -> Any:
        return draw_slots(state, generator)

    def _start(self, init: str, prior: Any, frames: Frames, generator: torch.Generator | None) -> Any:
        """ "prior": q = p. "random": R0 + N(0, 0.05^2), and the rest as the memory says."""
        if init == "prior":
            return prior
        if init != "random":
            raise unknown_start(init, ("prior", "random"))
        shape = (*frames.batch_shape, self.num_slots, self.code_dim)
        noise = torch.randn(shape, dtype=prior.R.dtype, device=prior.R.device, generator=generator)
        return self._scattered(prior, prior.R + START_STD * noise)

    def _scattered(self, prior: Any, R: Tensor) -> Any:
        """A start with these slots. Shapes: R (*B, K, C)"""
        return type(prior).from_slots(lg.Slots(R, prior.U, prior.mu_b, prior.v_b))
