"""Models whose decoder sees what an address mixes of the memory's slots, and nothing else.

    w_t ~ N(0, I),  x_t ~ p(x | M'w_t);  the encoding e(x_t) only infers M and q(w_t) = N(w(e_t, M), std^2 I)

The code is no latent variable here, so code_kl is 0.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from mnemon.core.protocol import Terms
from mnemon.distributions.gaussian import standard_normal_like
from mnemon.memories.frames import Frames
from mnemon.models.codec_model import CodeModel, Writing, full_precision, no_autocast
from mnemon.nets.codec import Codec
from mnemon.nets.resnet_tsm import TSMResNet


class LinearReadout(CodeModel):
    """Encoder, slots, decoder. Items are written, then addressed anew in the final memory.

    codec               made with head=False and encoding_dim = code_dim: encodings are what is written
    memory              over the encodings; its address_var is where the learned one starts
    autoencoder_weight  of log p(x | e(x)), which `auxiliary` gives to training
    trainable_prior     learn the slots before the first write, which otherwise stay as drawn:
                        slot_mean + N(0, prior_std^2), or the given tensor
    encode_together     `write` and `terms` encode the frames of an episode together, which needs a `TSMResNet`; a cue,
                        and what `log_weights` scores, stays an episode of one
    num_steps           rounds of a write; the memory's own number when None
    seed                of the drawn slots
    """

    slot_mean: Tensor

    def __init__(
        self,
        codec: Codec,
        memory: Any,
        *,
        autoencoder_weight: float,
        trainable_prior: bool,
        prior_std: float,
        encode_together: bool,
        num_steps: int | None,
        seed: int,
    ) -> None:
        super().__init__(codec)
        sizes = (memory.code_dim, codec.encoding_dim or memory.code_dim)
        if codec.head is not None or sizes != (codec.code_dim, codec.code_dim):
            raise ValueError(
                f"{type(self).__name__}: expected a codec without head whose encodings have the codes' size "
                f"{codec.code_dim}, and a memory over them, got encoding_dim={codec.encoding_dim} and a memory of "
                f"code_dim={memory.code_dim}; make the codec with head=False, encoding_dim={codec.code_dim}"
            )
        if encode_together and not isinstance(codec.encoder, TSMResNet):
            raise ValueError(
                f"encode_together: expected a TSMResNet as encoder, got {type(codec.encoder).__name__}, which takes "
                "images one by one; make the codec with tsm_codec"
            )
        self.memory, self.autoencoder_weight, self.num_steps = memory, autoencoder_weight, num_steps
        self.encode_together = encode_together
        slot_mean = torch.as_tensor(memory.slot_mean, dtype=torch.get_default_dtype()).detach().clone()
        if slot_mean.ndim == 0:
            generator = torch.Generator().manual_seed(seed)
            slot_mean = slot_mean + prior_std * torch.randn(memory.num_slots, memory.code_dim, generator=generator)
        if trainable_prior:
            self.slot_mean = nn.Parameter(slot_mean)
        else:
            self.register_buffer("slot_mean", slot_mean)
        self.log_address_std = nn.Parameter(torch.tensor(0.5 * math.log(float(memory.address_var))))

    @abstractmethod
    def _draw_memory(self, state: Any, generator: torch.Generator | None) -> Tensor:
        """M for a whole episode. Shapes: -> (*B, K, C)"""

    @abstractmethod
    def _draw_code(self, state: Any, w: Tensor, generator: torch.Generator | None) -> Tensor:
        """M'w, with an M of its own for every item. Shapes: (*B, n, K) -> (*B, n, C)"""

    @abstractmethod
    def _memory_kl(self, state: Any) -> Tensor | None:
        """KL of the memory from its prior; None where it has no posterior. Shapes: -> (*B)"""

    @property
    def encodes_together(self) -> bool:
        return self.encode_together

    def _check_state(self, where: str, state: Any) -> None:
        self.memory._check_state(where, state)

    def _writer(self) -> Any:
        """The memory as it writes: what is written does not depend on the learned address variance."""
        return self.memory.replace(slot_mean=self.slot_mean)

    def _current(self) -> Any:
        """The memory as it reads, with the learned address variance and slots."""
        return self._writer().replace(address_var=self.log_address_std.mul(2).exp())

    def _write(self, x: Tensor, how: Writing) -> Any:
        codes = self._written_codes(self._present(x, how.mask), how.mask)
        options = {**vars(how), "num_steps": self.num_steps if how.num_steps is None else how.num_steps}
        with no_autocast(x):
            return self._writer().write(codes, **options).state

    def prior_state(self, batch_shape: tuple[int, ...] = ()) -> Any:
        """The slots before anything was written."""
        return self._current().prior(batch_shape, dtype=self._like.dtype, device=self._like.device)

    def _terms(
        self, x: Tensor, mask: Tensor | None, write_mask: Tensor | None, generator: torch.Generator | None
    ) -> tuple[Terms, Any]:
        return self._terms_of(self._written_codes(x, mask), x, mask, write_mask, generator)

    def _terms_and_extra(
        self, x: Tensor, mask: Tensor | None, write_mask: Tensor | None, generator: torch.Generator | None
    ) -> tuple[Terms, Any, Tensor | None]:
        """Both from the same encodings."""
        codes = self._written_codes(x, mask)
        extra = self._autoencoded(codes, x, mask) if self.autoencoder_weight else None
        return *self._terms_of(codes, x, mask, write_mask, generator), extra

    def _terms_of(
        self,
        codes: Tensor,
        x: Tensor,
        mask: Tensor | None,
        write_mask: Tensor | None,
        generator: torch.Generator | None,
    ) -> tuple[Terms, Any]:
        """One draw of M per episode, one of w per item, addressed under the final memory.

        With `write_mask`, frames that are encoded together are encoded once more without those that are not written.
        """
        subset = self._subset(mask, write_mask)
        written = self._written_codes(x, subset) if self.encode_together and write_mask is not None else codes
        with no_autocast(x):
            writer = self._writer()
            state = writer.write(
                written, mask=subset, num_steps=self.num_steps, graphs=self._graphs, generator=generator
            ).state
            M = self._draw_memory(state, generator)
            w_mean, w = self._draw_for_terms(state, codes, generator)
            code, address_kl, memory_kl = w @ M, self._address_kl(w_mean), self._memory_kl(state)
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
        return self._autoencoded(self._written_codes(x, mask), x, mask)

    def _autoencoded(self, codes: Tensor, x: Tensor, mask: Tensor | None) -> Tensor:
        """Shapes: codes (*B, T, C), x (*B, T, *X) -> (*B)"""
        values = self.codec.log_prob(codes, x)
        frames = Frames.gather("auxiliary", values[..., None], 1, mask)
        return self.autoencoder_weight * frames.count(frames.mean).sum((-2, -1)) / frames.total

    def _encodings(self, x: Tensor) -> Tensor:
        """Of each image alone."""
        return full_precision(self.codec.encodings(x))

    def _written_codes(self, x: Tensor, present: Tensor | None) -> Tensor:
        """Encodings of an episode that is written. Shapes: (*B, T, *X), (*B, T) -> (*B, T, C)"""
        if not self.encode_together:
            return self._encodings(x)
        assert isinstance(self.codec.encoder, TSMResNet)
        return full_precision(self.codec.encoder.encode_episodes(x, present))

    def _address_kl(self, w: Tensor) -> Tensor:
        """KL(N(w, std^2 I) || N(0, I)). Shapes: (*B, T, K) -> (*B, T)"""
        variance = self.log_address_std.mul(2).exp()
        constant = w.shape[-1] * (variance - 1 - 2 * self.log_address_std)
        return 0.5 * (w.square().sum(-1) + constant)

    def _draw_weights(self, state: Any, codes: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        """Mean of q(w_t) and a draw of it. Shapes: (*B, T, C) -> (*B, T, K) both"""
        mean = self._current().address(state, codes).w
        return mean, mean + self.log_address_std.exp() * standard_normal_like(mean, mean.shape, generator)

    def _draw_for_terms(self, state: Any, codes: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        """As `_draw_weights`; a subclass may train with another draw."""
        return self._draw_weights(state, codes, generator)

    def _recall_codes(self, state: Any, cue: Tensor, generator: torch.Generator | None) -> Tensor:
        codes = self._encodings(cue)
        with no_autocast(cue):
            if generator is None:
                return self._current().recall(state, codes)
            _, w = self._draw_weights(state, codes, generator)
            return self._draw_code(state, w, generator)

    def _sample_codes(self, state: Any, n: int, generator: torch.Generator | None) -> Tensor:
        with no_autocast(state.R):
            return self._current().sample(state, n, noise=False, generator=generator)

    def _mean_code(self, state: Any) -> Tensor:
        return self.memory._mean_code(state)

    def _encoded(self, x: Tensor) -> Tensor:
        return self._encodings(x)

    def _log_weight(self, state: Any, x: Tensor, codes: Tensor, generator: torch.Generator | None) -> Tensor:
        """log p(x | M'w) + log p(w) / q(w): M'w given w is drawn exactly, item by item."""
        with no_autocast(x):
            w_mean, w = self._draw_weights(state, codes, generator)
            noise = (w - w_mean) / self.log_address_std.exp()
            log_det = 2 * w.shape[-1] * self.log_address_std
            log_ratio = 0.5 * (noise.square().sum(-1) - w.square().sum(-1) + log_det)
            code = self._draw_code(state, w, generator)
        return self.codec.log_prob(code, x) + log_ratio
