"""The neural statistician: an episode is summed up in one Gaussian vector, its context.

    c ~ N(0, I),  z_t | c,  x_t ~ p(x | z_t);  q(c | X) from pooled encodings, q(z_t | x_t, c)

`Statistician` is what the basic model (here) and the full one (`full_statistician`) share.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mnemon.core.checks import check_size
from mnemon.core.protocol import Terms
from mnemon.core.state import State, rank
from mnemon.distributions.gaussian import DiagonalGaussian
from mnemon.memories.frames import Frames
from mnemon.models.codec_model import CodeModel, Writing, full_precision, log_normal
from mnemon.nets.codec import Codec
from mnemon.nets.conv import GaussianHead
from mnemon.nets.sets import MeanPooling, Pooling


@dataclass(frozen=True, eq=False)
class ContextState(State):
    """q(c | X) = N(mean, std^2), and the pooled encodings it came from, so that a write can be continued.

    Shapes: mean, std (*B, D), pooled (*B, W), count (*B)
    """

    mean: Tensor = field(metadata=rank(1))
    std: Tensor = field(metadata=rank(1))
    pooled: Tensor = field(metadata=rank(1))
    count: Tensor = field(metadata=rank(0))


class Inferred(NamedTuple):
    """Codes drawn from q(z | x, c): what the decoder takes, KL(q(z | x, c) || p(z | c)), log p(z | c) / q(z | x, c).

    Shapes: code (*B, T, C), kl and log_ratio (*B, T)
    """

    code: Tensor
    kl: Tensor
    log_ratio: Tensor


class Statistician(CodeModel):
    """Contexts: how they are written, drawn and compared. A subclass says what lies between a context and an item.

    statistic, pooling, context  the statistic network: before the pooling, the pooling, and after it
    """

    class_scorers = ("context_kl", "context_kl_reversed", "context_ratio")
    """Few-shot classification by -KL(q(c | class) || q(c | query)), by the KL the other way round, and by
    log int q(c | class) q(c | query) / p(c) dc: how much likelier both are with one context than with two."""
    statistic: nn.Module
    pooling: Pooling
    context: nn.Module

    def __init__(self, codec: Codec, context_dim: int, pooled_dim: int) -> None:
        super().__init__(codec)
        check_size("context_dim", context_dim)
        check_size("hidden", pooled_dim)
        if codec.head is not None or codec.encoding_dim is None:
            raise ValueError(
                f"{type(self).__name__}: expected a codec without head, of known encoding_dim, got another; make it "
                "with head=None (Codec.convolutional: head=False) and encoding_dim="
            )
        self.context_dim, self.pooled_dim = context_dim, pooled_dim

    # -- what a subclass says ----------------------------------------------------------------------

    @abstractmethod
    def _infer(self, encodings: Tensor, c: Tensor, generator: torch.Generator | None) -> Inferred:
        """One draw from q(z | x, c). Shapes: encodings (*B, T, width), c (*B, T or 1, D)"""

    @abstractmethod
    def _posterior_mean(self, encodings: Tensor, c: Tensor) -> Tensor:
        """What the decoder takes for the most likely z. Shapes: as `_infer` -> (*B, T, C)"""

    @abstractmethod
    def _draw_prior(self, c: Tensor, generator: torch.Generator | None) -> Tensor:
        """What the decoder takes for z drawn from p(z | c). Shapes: (*B, n, D) -> (*B, n, C)"""

    @abstractmethod
    def _prior_mean(self, c: Tensor) -> Tensor:
        """What the decoder takes for the most likely z before an item is seen. Shapes: (*B, D) -> (*B, C)"""

    # -- writing -----------------------------------------------------------------------------------

    def _write(self, x: Tensor, how: Writing) -> ContextState:
        """q(c | X) in one pass; there are no sweeps for `num_steps` to count.

        A weighted mean is a sum and a count, both additive: writing on from `prior` gives exactly the state of
        writing both episodes at once. Other poolings refuse a prior.
        """
        if how.prior is not None:
            self._check_state("write: prior", how.prior)
            if not self.pooling.additive:
                raise ValueError(
                    f"write: expected no prior, since {type(self.pooling).__name__} needs all items at once; write "
                    "them together, or use a model with pooling mean"
                )
        encodings = self.codec.encodings(self._present(x, how.mask))
        return self._pool("write", encodings, how.prior, how.mask, how.weights)

    def prior_state(self, batch_shape: tuple[int, ...] = ()) -> ContextState:
        """p(c) = N(0, I), nothing pooled. Writing on from it is writing afresh."""
        context = self._like.new_zeros(*batch_shape, self.context_dim)
        pooled = self._like.new_zeros(*batch_shape, self.pooled_dim)
        return ContextState(context, torch.ones_like(context), pooled, self._like.new_zeros(batch_shape))

    def _terms(
        self, x: Tensor, mask: Tensor | None, write_mask: Tensor | None, generator: torch.Generator | None
    ) -> tuple[Terms, Any]:
        """One draw of c per episode, one of z per item; code_kl is KL(q(z | x, c) || p(z | c)) at that c."""
        encodings = self.codec.encodings(x)
        state = self._pool("terms", encodings, None, self._subset(mask, write_mask), None)
        q_c = DiagonalGaussian(state.mean, state.std)
        c = q_c.rsample(generator=generator)[..., None, :]
        memory_kl = q_c.kl(DiagonalGaussian(torch.zeros_like(state.mean), torch.ones_like(state.std)))
        found = self._infer(encodings, c, generator)
        reconstruction = self.codec.log_prob(found.code, x)
        counts = None if mask is None else mask.to(found.kl.dtype)
        return Terms(reconstruction, found.kl, torch.zeros_like(found.kl), memory_kl, counts), state

    def _pool(
        self,
        where: str,
        encodings: Tensor,
        prior: ContextState | None,
        mask: Tensor | None,
        weights: Tensor | None,
    ) -> ContextState:
        """The statistic network: its first half on each item, the pooling, its second half.

        Shapes: encodings (*B, T, width)
        """
        statistic = full_precision(self.statistic(encodings))
        frames = Frames.gather(where, statistic, self.pooled_dim, mask, weights)
        pooled, count = full_precision(self.pooling(frames.mean, frames.counts)), frames.total
        if prior is not None:
            total = count[..., None] * pooled + prior.count[..., None] * prior.pooled
            count = count + prior.count
            pooled = total / count[..., None]
        return ContextState(*moments(self._context_of(pooled, count)), pooled, count)

    def _context_of(self, pooled: Tensor, count: Tensor) -> Any:
        """What the context's moments are made of. Shapes: (*B, W), (*B)"""
        return self.context(pooled)

    # -- reading and generating --------------------------------------------------------------------

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
            return self._posterior_mean(encodings, state.mean[..., None, :])
        return self._infer(encodings, self._draw_contexts(state, encodings.shape[-2], generator), generator).code

    def _sample_codes(self, state: ContextState, n: int, generator: torch.Generator | None) -> Tensor:
        return self._draw_prior(self._draw_contexts(state, n, generator), generator)

    def _mean_code(self, state: ContextState) -> Tensor:
        return self._prior_mean(state.mean)

    def _log_weight(
        self, state: ContextState, x: Tensor, encodings: Tensor, generator: torch.Generator | None
    ) -> Tensor:
        """A context of its own for every item: each is scored under the integral over c."""
        c = self._draw_contexts(state, encodings.shape[-2], generator)
        found = self._infer(encodings, c, generator)
        return self.codec.log_prob(found.code, x) + found.log_ratio

    # -- classification ----------------------------------------------------------------------------

    def class_log_scores(
        self,
        support: Tensor,
        queries: Tensor,
        *,
        scorer: str = "context_kl",
        num_samples: int = 1,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """By the context of a class and that of the query alone, as `class_scorers` says; nothing is drawn.

        Shapes: support (*B, W, S, *X), queries (*B, Q, *X) -> (*B, Q, W). Edwards and Storkey, 4.3
        """
        if scorer not in self.class_scorers:
            raise ValueError(f"class_log_scores: expected one of {', '.join(self.class_scorers)}, got {scorer!r}")
        alone = self.write(queries.unsqueeze(queries.ndim - len(self.codec.image_shape)))
        return _compare(self.write(support), alone, scorer)

    def log_membership(self, state: ContextState, items: Tensor) -> Tensor:
        """How surely an item is found to be of its own episode among those of a batch, by `context_ratio`: the log of
        that episode's share in int q(c | X_j) q(c | x) / p(c) dc over all j. Training may maximise it.

        Shapes: state of batch shape (B), items (B, *X), one for each episode -> (B)
        """
        alone = self._pool("log_membership", self.codec.encodings(items[:, None]), None, None, None)
        return _compare(state, alone, "context_ratio").log_softmax(-1).diagonal()

    def _check_state(self, where: str, state: ContextState) -> None:
        if not isinstance(state, ContextState) or state.mean.shape[-1] != self.context_dim:
            got = tuple(state.mean.shape) if isinstance(state, ContextState) else type(state).__name__
            raise ValueError(f"{where}: expected a ContextState with mean (*B, {self.context_dim}), got {got}")


class NeuralStatistician(Statistician):
    """The basic model of Edwards and Storkey (2017) as the VBM paper ran it (section 4.3, appendix F.1).

    codec        made with head=False: q(z | x, c) is this model's own
    context_dim  size of the context c
    hidden       width of the pooled statistic; that of the encodings when None

    Differs from paper: its rule for widths (twice the size of what a net parametrises) would give the layers
    before the context 12,800 units; they have `hidden`.
    """

    def __init__(self, codec: Codec, context_dim: int = 6400, hidden: int | None = None) -> None:
        pooled = codec.encoding_dim or 1 if hidden is None else hidden
        super().__init__(codec, context_dim, pooled)
        assert codec.encoding_dim is not None
        width, code_dim = codec.encoding_dim, codec.code_dim
        self.statistic = nn.Sequential(nn.Linear(width, pooled), nn.ReLU(), nn.Linear(pooled, pooled))
        self.pooling = MeanPooling()
        self.context = nn.Sequential(nn.ReLU(), nn.Linear(pooled, 2 * context_dim))
        self.code_prior = GaussianHead(context_dim, code_dim, improved=False)
        # the first layer of an MLP on [e(x), c], in two parts: c is wide, and often the same for all items
        self.from_encoding = nn.Linear(width, 2 * code_dim)
        self.from_context = nn.Linear(context_dim, 2 * code_dim, bias=False)
        self.to_code = nn.Sequential(nn.ReLU(), nn.Linear(2 * code_dim, 2 * code_dim))

    def _code_prior(self, c: Tensor) -> DiagonalGaussian:
        """p(z | c). Shapes: (..., D) -> (..., C)"""
        mean, std = self.code_prior(c)
        return DiagonalGaussian(full_precision(mean), full_precision(std))

    def _posterior(self, encodings: Tensor, c: Tensor) -> DiagonalGaussian:
        """q(z | x, c). Shapes: encodings (*B, T, width), c (*B, T or 1, D) -> (*B, T, C)"""
        mean, std = moments(self.to_code(self.from_encoding(encodings) + self.from_context(c)))
        if self.codec.code_var is not None:
            std = torch.full_like(mean, self.codec.code_var**0.5)
        return DiagonalGaussian(mean, std)

    def _infer(self, encodings: Tensor, c: Tensor, generator: torch.Generator | None) -> Inferred:
        p_z, q_z = self._code_prior(c), self._posterior(encodings, c)
        z = q_z.rsample(generator=generator)
        log_ratio = log_normal(z, p_z.mean, p_z.std.square()) - log_normal(z, q_z.mean, q_z.std.square())
        return Inferred(z, q_z.kl(p_z), log_ratio)

    def _posterior_mean(self, encodings: Tensor, c: Tensor) -> Tensor:
        return self._posterior(encodings, c).mean

    def _draw_prior(self, c: Tensor, generator: torch.Generator | None) -> Tensor:
        return self._code_prior(c).rsample(generator=generator)

    def _prior_mean(self, c: Tensor) -> Tensor:
        return self._code_prior(c).mean


def _compare(classes: ContextState, queries: ContextState, scorer: str) -> Tensor:
    """Every query with every class. Shapes: batch shapes (*B, W) and (*B, Q) -> (*B, Q, W)"""
    p = DiagonalGaussian(classes.mean[..., None, :, :], classes.std[..., None, :, :])
    q = DiagonalGaussian(queries.mean[..., :, None, :], queries.std[..., :, None, :])
    if scorer == "context_ratio":
        return p.log_overlap(q)
    return -p.kl(q) if scorer == "context_kl" else -q.kl(p)


def moments(outputs: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation, one half each. Shapes: (..., 2 D) -> (..., D) both"""
    mean, log_std = full_precision(outputs).chunk(2, dim=-1)
    return mean, log_std.clamp(-8, 8).exp()
