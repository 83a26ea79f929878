"""MemoryVAE: an encoder, any latent memory, and a decoder. The five VBM models are five memories in it.

Writing encodes the episode and runs the memory's sweeps on the codes; nothing is trained. Reading encodes a
cue, addresses the memory with its code, and decodes what the memory makes of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mnemon.core.checks import check_size
from mnemon.core.episode import Codes
from mnemon.core.protocol import Terms
from mnemon.memories.base import LatentMemory, Written
from mnemon.models.codec_model import CodecModel, log_normal
from mnemon.nets.codec import Codec


@dataclass(frozen=True)
class StochasticRegulariser:
    """After writing, the mean of q(z_t) moves towards what the memory expects: t mz + (1 - t) E[M'w + b].

    t = gamma - epsilon + delta Beta(alpha, beta), one per frame. The bound of the moved q(z) is still a bound.
    VBM, 3.2.3.
    """

    gamma: float = 0.5
    epsilon: float = 0.1
    delta: float = 0.2
    alpha: float = 8.0
    beta: float = 8.0

    def __call__(self, codes: Codes, expected: Tensor) -> Codes:
        leading = codes.mean.shape[:-1]
        draw = torch.distributions.Beta(self.alpha, self.beta).sample(leading).to(codes.mean)
        t = (self.gamma - self.epsilon + self.delta * draw)[..., None]
        return Codes(t * codes.mean + (1 - t) * expected, codes.std)


class MemoryVAE(CodecModel):
    """Encoder + latent memory + decoder.

    memory       any `LatentMemory` over the codec's codes
    num_steps    sweeps per write; the memory's own number when None
    regulariser  applied to the codes after writing, in training mode only (Differs from paper: its published
                 code leaves it on when evaluating)
    """

    def __init__(
        self,
        codec: Codec,
        memory: LatentMemory,
        *,
        num_steps: int | None = None,
        regulariser: StochasticRegulariser | None = None,
    ) -> None:
        super().__init__(codec)
        if memory.code_dim != codec.code_dim:
            raise ValueError(
                f"MemoryVAE: expected a memory over codes of size {codec.code_dim}, got code_dim={memory.code_dim}"
            )
        self.memory, self.num_steps, self.regulariser = memory, num_steps, regulariser

    def write(
        self,
        x: Tensor,
        *,
        prior: Any = None,
        mask: Tensor | None = None,
        weights: Tensor | None = None,
        num_steps: int | None = None,
        num_clusters: int | None = None,
        generator: torch.Generator | None = None,
    ) -> Any:
        self.codec.check("write", x)
        return self.memory.write(
            self._codes(self._present(x, mask)),
            prior=prior,
            mask=mask,
            weights=weights,
            num_steps=self.num_steps if num_steps is None else num_steps,
            num_clusters=num_clusters,
            generator=generator,
        ).state

    def sample(self, state: Any, n: int = 1, *, generator: torch.Generator | None = None) -> Tensor:
        check_size("n", n)
        return self.codec.image(self.memory.sample(state, n, generator=generator))

    def terms(
        self,
        x: Tensor,
        *,
        mask: Tensor | None = None,
        write_mask: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Terms:
        self.codec.check("terms", x)
        x = self._present(x, mask)
        codes = self._codes(x)
        written = self.memory.write(
            codes, mask=mask if write_mask is None else write_mask, num_steps=self.num_steps, generator=generator
        )
        if write_mask is not None:  # items that were not written have no address yet: all are addressed anew
            written = Written(written.state, counts=None if mask is None else mask.to(x.dtype))
        if self.training and self.regulariser is not None:
            expected = self.memory.recall(written.state, codes)
            codes = self.regulariser(codes, expected)
        parts = self.memory.terms(codes, written)
        return parts.replace(reconstruction=self.codec.log_prob(codes.rsample(generator), x))

    def _codes(self, x: Tensor) -> Codes:
        codes = self.codec.encode(x)
        return codes.to(torch.float32) if codes.mean.dtype in (torch.bfloat16, torch.float16) else codes

    def _recall_codes(self, state: Any, cue: Tensor, generator: torch.Generator | None) -> Tensor:
        codes = self._codes(cue)
        if generator is None:
            return self.memory.recall(state, codes)
        drawn = self.memory.explain(state, codes, generator=generator)
        noise = torch.randn(drawn.mean.shape, dtype=drawn.mean.dtype, device=drawn.mean.device, generator=generator)
        return drawn.mean + drawn.variance.sqrt() * noise

    def _blank(self, state: Any) -> Tensor:
        code = self.memory._mean_code(state)
        return self.codec.image(code.unsqueeze(-2)).squeeze(code.ndim - 1)

    def _log_weight(self, state: Any, x: Tensor, generator: torch.Generator | None) -> Tensor:
        codes = self._codes(x)
        z = codes.rsample(generator)
        drawn = self.memory.explain(state, codes, generator=generator)
        log_ratio = log_normal(z, drawn.mean, drawn.variance) - log_normal(z, codes.mean, codes.std.square())
        return self.codec.log_prob(z, x) + log_ratio + drawn.log_ratio
