"""The Dynamic Kanerva Machine with its nets: what the memory recalls is what the decoder sees.

    M ~ MN(R0, U0, I),  w_t ~ N(0, I),  x_t ~ p(x | M'w_t);  the encoding e(x_t) only infers M and w_t

The code is no latent variable here, so code_kl is 0. VBM, table 1; section 6 of the design.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from mnemon.core.protocol import Terms
from mnemon.distributions.gaussian import standard_normal_like
from mnemon.memories.draws import draw_slots
from mnemon.memories.frames import Frames
from mnemon.memories.kanerva import KanervaMemory, KanervaState
from mnemon.models.codec_model import CodeModel, full_precision, no_autocast
from mnemon.nets.codec import Codec

PRIOR_STD = 0.05


class KanervaMachine(CodeModel):
    """Encoder, Kanerva memory, decoder. Items are written, then addressed anew in the final memory.

    codec               made with head=False and encoding_dim = code_dim: encodings are what is written
    memory              sizes, variances, online or batched; its address_var is where the learned one starts
    autoencoder_weight  of log p(x | e(x)), which `auxiliary` gives to training
    trainable_prior     learn R0, which otherwise stays as drawn: slot_mean + N(0, 0.05^2), or the given tensor
    num_steps           rounds of a batched write; the memory's own number when None
    seed                of R0
    """

    slot_mean: Tensor

    def __init__(
        self,
        codec: Codec,
        memory: KanervaMemory,
        autoencoder_weight: float = 1.0,
        trainable_prior: bool = False,
        *,
        num_steps: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(codec)
        sizes = (memory.code_dim, codec.encoding_dim or memory.code_dim)
        if codec.head is not None or sizes != (codec.code_dim, codec.code_dim):
            raise ValueError(
                f"KanervaMachine: expected a codec without head whose encodings have the codes' size {codec.code_dim}, "
                f"and a memory over them, got encoding_dim={codec.encoding_dim} and a memory of "
                f"code_dim={memory.code_dim}; make the codec with head=False, encoding_dim={codec.code_dim}"
            )
        self.memory, self.autoencoder_weight, self.num_steps = memory, autoencoder_weight, num_steps
        slot_mean = torch.as_tensor(memory.slot_mean, dtype=torch.get_default_dtype()).detach().clone()
        if slot_mean.ndim == 0:
            generator = torch.Generator().manual_seed(seed)
            slot_mean = slot_mean + PRIOR_STD * torch.randn(memory.num_slots, memory.code_dim, generator=generator)
        if trainable_prior:
            self.slot_mean = nn.Parameter(slot_mean)
        else:
            self.register_buffer("slot_mean", slot_mean)
        self.log_address_std = nn.Parameter(torch.tensor(0.5 * math.log(float(memory.address_var))))

    def _current(self) -> KanervaMemory:
        """The memory with the learned address variance and R0."""
        return self.memory.replace(address_var=self.log_address_std.mul(2).exp(), slot_mean=self.slot_mean)

    def write(
        self,
        x: Tensor,
        *,
        prior: KanervaState | None = None,
        mask: Tensor | None = None,
        weights: Tensor | None = None,
        num_steps: int | None = None,
        generator: torch.Generator | None = None,
    ) -> KanervaState:
        self.codec.check("write", x)
        codes = self._encodings(self._present(x, mask))
        steps = self.num_steps if num_steps is None else num_steps
        with no_autocast(x):
            return self._current().write(codes, prior=prior, mask=mask, weights=weights, num_steps=steps).state

    def prior_state(self, batch_shape: tuple[int, ...] = ()) -> KanervaState:
        """MN(R0, slot_var I, I)."""
        return self._current().prior(batch_shape, dtype=self._like.dtype, device=self._like.device)

    def terms_and_state(
        self,
        x: Tensor,
        *,
        mask: Tensor | None = None,
        write_mask: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> tuple[Terms, Any]:
        """One draw of M per episode, one of w per item, addressed under the final R."""
        self.codec.check("terms", x)
        x = self._present(x, mask)
        codes, memory = self._encodings(x), self._current()
        with no_autocast(x):
            subset = self._subset(mask, write_mask)
            # what is written does not depend on the learned address variance, and a graph could not follow it
            fixed = self.memory.replace(slot_mean=self.slot_mean)
            state = fixed.write(codes, mask=subset, num_steps=self.num_steps, graphs=self._graphs).state
            M = draw_slots(state, generator).R
            w_mean, w = self._draw_weights(memory, state, codes, generator)
            code = w @ M
            address_kl = self._address_kl(w_mean)
            memory_kl = state.kl(memory.prior(dtype=codes.dtype, device=codes.device))
        reconstruction = self.codec.log_prob(code, x)
        counts = None if mask is None else mask.to(codes.dtype)
        return Terms(reconstruction, torch.zeros_like(address_kl), address_kl, memory_kl, counts), state

    def auxiliary(self, x: Tensor, *, mask: Tensor | None = None) -> Tensor | None:
        """autoencoder_weight times the mean over items of log p(x | e(x)): it keeps codes decodable while the
        memory is still poor. Part of training, never of the bound. Shapes: (*B, T, *X) -> (*B)"""
        if self.autoencoder_weight == 0:
            return None
        self.codec.check("auxiliary", x)
        x = self._present(x, mask)
        values = self.codec.log_prob(self._encodings(x), x)
        frames = Frames.gather("auxiliary", values[..., None], 1, mask)
        return self.autoencoder_weight * frames.count(frames.mean).sum((-2, -1)) / frames.total

    def _encodings(self, x: Tensor) -> Tensor:
        return full_precision(self.codec.encodings(x))

    def _address_kl(self, w: Tensor) -> Tensor:
        """KL(N(w, std^2 I) || N(0, I)). Shapes: (*B, T, K) -> (*B, T)"""
        variance = self.log_address_std.mul(2).exp()
        constant = w.shape[-1] * (variance - 1 - 2 * self.log_address_std)
        return 0.5 * (w.square().sum(-1) + constant)

    def _draw_weights(
        self, memory: KanervaMemory, state: KanervaState, codes: Tensor, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor]:
        """Mean of q(w_t) and a draw of it. Shapes: (*B, T, C) -> (*B, T, K) both"""
        mean = memory.address(state, codes).w
        return mean, mean + self.log_address_std.exp() * standard_normal_like(mean, mean.shape, generator)

    def _draw_code(self, state: KanervaState, w: Tensor, generator: torch.Generator | None) -> Tensor:
        """M'w with a draw of M for every item: N(R'w, (w'Uw) I). Shapes: (*B, n, K) -> (*B, n, C)"""
        mean = w @ state.R
        std = torch.linalg.vector_norm(w @ state.U_chol, dim=-1, keepdim=True)
        return mean + std * standard_normal_like(mean, mean.shape, generator)

    def _recall_codes(self, state: KanervaState, cue: Tensor, generator: torch.Generator | None) -> Tensor:
        codes, memory = self._encodings(cue), self._current()
        with no_autocast(cue):
            if generator is None:
                return memory.recall(state, codes)
            _, w = self._draw_weights(memory, state, codes, generator)
            return self._draw_code(state, w, generator)

    def _sample_codes(self, state: KanervaState, n: int, generator: torch.Generator | None) -> Tensor:
        with no_autocast(state.R):
            return self._current().sample(state, n, noise=False, generator=generator)

    def _mean_code(self, state: Any) -> Tensor:
        return self.memory._mean_code(state)

    def _log_weight(self, state: KanervaState, x: Tensor, generator: torch.Generator | None) -> Tensor:
        """log p(x | M'w) + log p(w) / q(w): M'w given w is drawn exactly, item by item."""
        codes, memory = self._encodings(x), self._current()
        with no_autocast(x):
            w_mean, w = self._draw_weights(memory, state, codes, generator)
            noise = (w - w_mean) / self.log_address_std.exp()
            log_det = 2 * w.shape[-1] * self.log_address_std
            log_ratio = 0.5 * (noise.square().sum(-1) - w.square().sum(-1) + log_det)
            code = self._draw_code(state, w, generator)
        return self.codec.log_prob(code, x) + log_ratio
