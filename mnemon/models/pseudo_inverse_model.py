"""The generative pseudo-inverse memory with nets: two least-squares fits write it, the decoder sees M'w.

    e_t = e(x_t),  W0 = E M0^+,  M = W0^+ E;  w_t ~ N(0, I),  x_t ~ p(x | M'w_t),  q(w_t) = N(e_t M^+, std^2 I)

M0 is learned. M is computed, not inferred: there is a bound on log p(episode | memory), and none on log p(episode).
With as many slots as frames, M can hold every code: what is scored then is how much fits into it, not what it
generalises to.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mnemon.core.protocol import Terms
from mnemon.memories.pseudo_inverse import PseudoInverseMemory, PseudoInverseState
from mnemon.models.codec_model import no_autocast
from mnemon.models.linear_readout import LinearReadout
from mnemon.nets.codec import Codec


class PseudoInverseModel(LinearReadout):
    """Encoder, pseudo-inverse memory, decoder; options as of `LinearReadout`.

    shared_noise  train with one number as the noise of all addresses of an episode, as the published code does. `terms`
                  in training mode is then no bound; in evaluation, and everything else, is as without it

    The noise on written codes (the memory's input_var) is part of training alone: nothing is drawn in a write
    otherwise. q(w) draws every address and slot by itself, so `terms` and `log_likelihood` are bounds.

    Differs from paper: the noise that its published code shares between all addresses of an episode makes what it
    reports no bound; `shared_noise_terms` computes it so, for comparison. Nor is there noise on codes when reading:
    that of the address does the same.
    """

    def __init__(
        self,
        codec: Codec,
        memory: PseudoInverseMemory,
        autoencoder_weight: float = 1.0,
        trainable_prior: bool = True,
        *,
        encode_together: bool = False,
        shared_noise: bool = False,
        seed: int = 0,
    ) -> None:
        if memory.shared_noise:
            raise ValueError(
                "PseudoInverseModel: expected a memory with independent noise, got shared_noise=True, with which "
                "nothing is a bound; leave it out, and ask shared_noise_terms for its published numbers, or "
                "give shared_noise to the model to train as it does"
            )
        super().__init__(
            codec,
            memory,
            autoencoder_weight=autoencoder_weight,
            trainable_prior=trainable_prior,
            prior_std=memory.code_dim**-0.5,  # codes of size one get addresses of size one
            encode_together=encode_together,
            num_steps=None,
            seed=seed,
        )
        self.shared_noise = shared_noise

    @torch.no_grad()
    def shared_noise_terms(self, x: Tensor, *, generator: torch.Generator | None = None) -> Terms:
        """The same terms with one number as the noise of all addresses of an episode. NO BOUND: see `shared_noise` of
        the memory. For comparison with published numbers only. Shapes: (*B, T, *X)"""
        self.codec.check("shared_noise_terms", x)
        codes = self._written_codes(x, None)
        with no_autocast(x):
            state = self._writer().write(codes, generator=generator).state
            w_mean, w = self._draw_together(state, codes, generator)
            code, address_kl = w @ state.R, self._address_kl(w_mean)
        reconstruction = self.codec.log_prob(code, x)
        return Terms(reconstruction, torch.zeros_like(address_kl), address_kl, None)

    def _writer(self) -> Any:
        return super()._writer().replace(input_var=self.memory.input_var if self.training else 0.0)

    def _draw_for_terms(
        self, state: PseudoInverseState, codes: Tensor, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor]:
        draw = self._draw_together if self.shared_noise and self.training else self._draw_weights
        return draw(state, codes, generator)

    def _draw_together(
        self, state: PseudoInverseState, codes: Tensor, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor]:
        """As `_draw_weights`, all addresses moved by one draw."""
        memory = self._current().replace(shared_noise=True)
        address = memory.address(state, codes)
        return address.w, memory.draw_weights(address, generator=generator)

    def _draw_memory(self, state: PseudoInverseState, generator: torch.Generator | None) -> Tensor:
        return state.R

    def _draw_code(self, state: PseudoInverseState, w: Tensor, generator: torch.Generator | None) -> Tensor:
        return w @ state.R

    def _memory_kl(self, state: PseudoInverseState) -> None:
        return None
