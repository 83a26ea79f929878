"""The variational autoencoder: the memory that remembers nothing. Its state counts the items shown."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from mnemon.core.episode import Codes
from mnemon.core.protocol import Terms
from mnemon.core.state import State, rank
from mnemon.distributions.gaussian import DiagonalGaussian, standard_normal_like
from mnemon.memories.frames import Frames
from mnemon.models.codec_model import CodeModel, Writing, full_precision, log_normal


@dataclass(frozen=True, eq=False)
class CountState(State):
    """How many items were shown. Shapes: count (*B)"""

    count: Tensor = field(metadata=rank(0))


class VAE(CodeModel):
    """p(z) = N(0, I), p(x | z); joint and conditional bound are the same."""

    def _write(self, x: Tensor, how: Writing) -> CountState:
        leading = x.shape[: x.ndim - len(self.codec.image_shape)]
        item = torch.zeros((*leading, 1), dtype=x.dtype, device=x.device)
        count = Frames.gather("write", item, 1, how.mask, how.weights).total
        return CountState(count if how.prior is None else count + how.prior.count)

    def _terms(
        self, x: Tensor, mask: Tensor | None, write_mask: Tensor | None, generator: torch.Generator | None
    ) -> tuple[Terms, Any]:
        codes = self.codec.encode(x).map(full_precision)
        prior = DiagonalGaussian(torch.zeros_like(codes.mean), torch.ones_like(codes.std))
        code_kl = DiagonalGaussian(codes.mean, codes.std).kl(prior)
        reconstruction = self.codec.log_prob(codes.rsample(generator), x)
        nothing = torch.zeros_like(code_kl)
        counts = None if mask is None else mask.to(x.dtype)
        present = self._subset(mask, write_mask)
        shown = torch.ones_like(code_kl) if present is None else present.to(code_kl.dtype)
        state = CountState(shown.sum(-1))
        return Terms(reconstruction, code_kl, nothing, nothing.sum(-1), counts), state

    def prior_state(self, batch_shape: tuple[int, ...] = ()) -> CountState:
        """No item shown yet."""
        return CountState(self._like.new_zeros(batch_shape))

    def _sample_codes(self, state: CountState, n: int, generator: torch.Generator | None) -> Tensor:
        shape = torch.Size((*state.batch_shape, n, self.codec.code_dim))
        return standard_normal_like(next(self.parameters()), shape, generator)

    def _recall_codes(self, state: CountState, cue: Tensor, generator: torch.Generator | None) -> Tensor:
        codes = self.codec.encode(cue)
        return codes.mean if generator is None else codes.rsample(generator)

    def _mean_code(self, state: CountState) -> Tensor:
        return self._like.new_zeros(*state.batch_shape, self.codec.code_dim)

    def _log_weight(self, state: CountState, x: Tensor, codes: Codes, generator: torch.Generator | None) -> Tensor:
        z = codes.rsample(generator)
        one = torch.ones_like(codes.mean)
        log_ratio = log_normal(z, torch.zeros_like(z), one) - log_normal(z, codes.mean, codes.std.square())
        return self.codec.log_prob(z, x) + log_ratio
