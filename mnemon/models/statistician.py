"""The neural statistician: an episode is summed up in one Gaussian vector, its context.

    c ~ N(0, I),  z_t | c ~ N(mu(c), std(c)^2),  x_t ~ p(x | z_t);  q(c | X) from pooled encodings, q(z_t | x_t, c)

The basic model of Edwards and Storkey (2017) as the VBM paper ran it (section 4.3, appendix F.1).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from mnemon.core.checks import check_size
from mnemon.core.protocol import Terms
from mnemon.core.state import State, rank
from mnemon.distributions.gaussian import DiagonalGaussian
from mnemon.memories.frames import Frames
from mnemon.models.codec_model import CodeModel, full_precision, log_normal
from mnemon.nets.codec import Codec
from mnemon.nets.conv import GaussianHead


@dataclass(frozen=True, eq=False)
class ContextState(State):
    """q(c | X) = N(mean, std^2), and the pooled encodings it came from, so that a write can be continued.

    Shapes: mean, std (*B, D), pooled (*B, W), count (*B)
    """

    mean: Tensor = field(metadata=rank(1))
    std: Tensor = field(metadata=rank(1))
    pooled: Tensor = field(metadata=rank(1))
    count: Tensor = field(metadata=rank(0))


class NeuralStatistician(CodeModel):
    """The basic neural statistician.

    codec        made with head=False: q(z | x, c) is this model's own
    context_dim  size of the context c
    hidden       width of the pooled statistic; that of the encodings when None

    Differs from paper: its rule for widths (twice the size of what a net parametrises) would give the layers
    before the context 12,800 units; they have `hidden`.
    """

    def __init__(self, codec: Codec, context_dim: int = 6400, hidden: int | None = None) -> None:
        super().__init__(codec)
        check_size("context_dim", context_dim)
        if codec.head is not None or codec.encoding_dim is None:
            raise ValueError(
                "NeuralStatistician: expected a codec without head, of known encoding_dim, got another; make it with "
                "head=None (Codec.convolutional: head=False) and encoding_dim="
            )
        width, code_dim = codec.encoding_dim, codec.code_dim
        pooled = width if hidden is None else hidden
        check_size("hidden", pooled)
        self.context_dim, self.pooled_dim = context_dim, pooled
        self.statistic = nn.Sequential(nn.Linear(width, pooled), nn.ReLU(), nn.Linear(pooled, pooled))
        self.context = nn.Sequential(nn.ReLU(), nn.Linear(pooled, 2 * context_dim))
        self.code_prior = GaussianHead(context_dim, code_dim, improved=False)
        # the first layer of an MLP on [e(x), c], in two parts: c is wide, and often the same for all items
        self.from_encoding = nn.Linear(width, 2 * code_dim)
        self.from_context = nn.Linear(context_dim, 2 * code_dim, bias=False)
        self.to_code = nn.Sequential(nn.ReLU(), nn.Linear(2 * code_dim, 2 * code_dim))

    def write(
        self,
        x: Tensor,
        *,
        prior: ContextState | None = None,
        mask: Tensor | None = None,
        weights: Tensor | None = None,
        num_steps: int | None = None,
        generator: torch.Generator | None = None,
    ) -> ContextState:
        """q(c | X) in one pass; there are no sweeps for `num_steps` to count.

        A weighted mean is a sum and a count, both additive: writing on from `prior` gives exactly the state of
        writing both episodes at once.
        """
        self.codec.check("write", x)
        if prior is not None:
            self._check_state("write: prior", prior)
        return self._pool("write", self.codec.encodings(self._present(x, mask)), prior, mask, weights)

    def prior_state(self, batch_shape: tuple[int, ...] = ()) -> ContextState:
        """p(c) = N(0, I), nothing pooled. Writing on from it is writing afresh."""
        context = self._like.new_zeros(*batch_shape, self.context_dim)
        pooled = self._like.new_zeros(*batch_shape, self.pooled_dim)
        return ContextState(context, torch.ones_like(context), pooled, self._like.new_zeros(batch_shape))

    def terms_and_state(
        self,
        x: Tensor,
        *,
        mask: Tensor | None = None,
        write_mask: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> tuple[Terms, Any]:
        """One draw of c per episode, one of z per item; code_kl is KL(q(z | x, c) || p(z | c)) at that c."""
        self.codec.check("terms", x)
        x = self._present(x, mask)
        encodings = self.codec.encodings(x)
        state = self._pool("terms", encodings, None, self._subset(mask, write_mask), None)
        q_c = DiagonalGaussian(state.mean, state.std)
        c = q_c.rsample(generator=generator)[..., None, :]
        q_z = self._posterior(encodings, c)
        code_kl = q_z.kl(self._code_prior(c))
        memory_kl = q_c.kl(DiagonalGaussian(torch.zeros_like(state.mean), torch.ones_like(state.std)))
        reconstruction = self.codec.log_prob(q_z.rsample(generator=generator), x)
        counts = None if mask is None else mask.to(code_kl.dtype)
        return Terms(reconstruction, code_kl, torch.zeros_like(code_kl), memory_kl, counts), state

    def _pool(
        self,
        where: str,
        encodings: Tensor,
        prior: ContextState | None,
        mask: Tensor | None,
        weights: Tensor | None,
    ) -> ContextState:
        """Mean of the statistic over items, a nonlinearity, a linear layer. VBM, 4.3.

        Shapes: encodings (*B, T, width)
        """
        statistic = full_precision(self.statistic(encodings))
        frames = Frames.gather(where, statistic, self.pooled_dim, mask, weights)
        total, count = frames.count(frames.mean).sum(-2), frames.total
        if prior is not None:
            total, count = total + prior.count[..., None] * prior.pooled, count + prior.count
        pooled = total / count[..., None]
        mean, std = _moments(self.context(pooled))
        return ContextState(mean, std, pooled, count)

    def _code_prior(self, c: Tensor) -> DiagonalGaussian:
        """p(z | c). Shapes: (..., D) -> (..., C)"""
        mean, std = self.code_prior(c)
        return DiagonalGaussian(full_precision(mean), full_precision(std))

    def _posterior(self, encodings: Tensor, c: Tensor) -> DiagonalGaussian:
        """q(z | x, c). Shapes: encodings (*B, T, width), c (*B, T or 1, D) -> (*B, T, C)"""
        mean, std = _moments(self.to_code(self.from_encoding(encodings) + self.from_context(c)))
        if self.codec.code_var is not None:
            std = torch.full_like(mean, self.codec.code_var**0.5)
        return DiagonalGaussian(mean, std)

    def _draw_contexts(self, state: ContextState, n: int, generator: torch.Generator | None) -> Tensor:
        """n contexts of each episode. Shapes: -> (*B, n, D)"""
        shape = (*state.batch_shape, n, self.context_dim)
        return (
            DiagonalGaussian(state.mean[..., None, :], state.std[..., None, :])
            .map(lambda tensor: tensor.expand(shape))
            .rsample(generator=generator)
        )

    def _recall_codes(self, state: ContextState, cue: Tensor, generator: torch.Generator | None) -> Tensor:
        encodings = self.codec.encodings(cue)
        if generator is None:
            return self._posterior(encodings, state.mean[..., None, :]).mean
        c = self._draw_contexts(state, encodings.shape[-2], generator)
        return self._posterior(encodings, c).rsample(generator=generator)

    def _sample_codes(self, state: ContextState, n: int, generator: torch.Generator | None) -> Tensor:
        return self._code_prior(self._draw_contexts(state, n, generator)).rsample(generator=generator)

    def _mean_code(self, state: ContextState) -> Tensor:
        return self._code_prior(state.mean).mean

    def _log_weight(self, state: ContextState, x: Tensor, generator: torch.Generator | None) -> Tensor:
        """A context of its own for every item: each is scored under the integral over c."""
        encodings = self.codec.encodings(x)
        c = self._draw_contexts(state, encodings.shape[-2], generator)
        p_z, q_z = self._code_prior(c), self._posterior(encodings, c)
        z = q_z.rsample(generator=generator)
        log_ratio = log_normal(z, p_z.mean, p_z.std.square()) - log_normal(z, q_z.mean, q_z.std.square())
        return self.codec.log_prob(z, x) + log_ratio

    def _check_state(self, where: str, state: ContextState) -> None:
        if not isinstance(state, ContextState) or state.mean.shape[-1] != self.context_dim:
            got = tuple(state.mean.shape) if isinstance(state, ContextState) else type(state).__name__
            raise ValueError(f"{where}: expected a ContextState with mean (*B, {self.context_dim}), got {got}")


def _moments(outputs: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation, one half each. Shapes: (..., 2 D) -> (..., D) both"""
    mean, log_std = full_precision(outputs).chunk(2, dim=-1)
    return mean, log_std.clamp(-8, 8).exp()
