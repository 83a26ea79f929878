"""The Dynamic Kanerva Machine with its nets: what the memory recalls is what the decoder sees.

    M ~ MN(R0, U0, I),  w_t ~ N(0, I),  x_t ~ p(x | M'w_t);  the encoding e(x_t) only infers M and w_t

VBM, table 1; Wu et al., 2018.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mnemon.distributions.gaussian import standard_normal_like
from mnemon.memories.draws import draw_slots
from mnemon.memories.kanerva import KanervaMemory, KanervaState
from mnemon.models.linear_readout import LinearReadout
from mnemon.nets.codec import Codec

PRIOR_STD = 0.05


class KanervaMachine(LinearReadout):
    """Encoder, Kanerva memory (online or batched), decoder; options as of `LinearReadout`."""

    def __init__(
        self,
        codec: Codec,
        memory: KanervaMemory,
        autoencoder_weight: float = 1.0,
        trainable_prior: bool = False,
        *,
        encode_together: bool = False,
        num_steps: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(
            codec,
            memory,
            autoencoder_weight=autoencoder_weight,
            trainable_prior=trainable_prior,
            prior_std=PRIOR_STD,
            encode_together=encode_together,
            num_steps=num_steps,
            seed=seed,
        )

    def _draw_memory(self, state: KanervaState, generator: torch.Generator | None) -> Tensor:
        return draw_slots(state, generator).R

    def _draw_code(self, state: KanervaState, w: Tensor, generator: torch.Generator | None) -> Tensor:
        """N(R'w, (w'Uw) I)."""
        mean = w @ state.R
        std = torch.linalg.vector_norm(w @ state.U_chol, dim=-1, keepdim=True)
        return mean + std * standard_normal_like(mean, mean.shape, generator)

    def _memory_kl(self, state: KanervaState) -> Tensor:
        return state.kl(self._current().prior(dtype=state.R.dtype, device=state.R.device))
