"""Soft attention over stored items, the baseline of the VMA paper: the code comes first and decides where to look.

    z ~ N(0, I),  w(z) = softmax_a of the similarity of z's query to the keys,  x ~ p(x | z, sum_a w_a m_a);  q(z | x)

The attention may depend on nothing but variables of the generative model, so finding an item costs code_kl. VMA, 4.2.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mnemon import objectives
from mnemon.distributions.gaussian import DiagonalGaussian
from mnemon.memories.slots import ItemState, Similarity
from mnemon.models.codec_model import no_autocast
from mnemon.models.slot_model import CONTENT_STD, SlotModel
from mnemon.nets.codec import images_at_once
from mnemon.nets.conditional import ConditionalCodec, Content
from mnemon.objectives import Request, Surrogate


class SoftAttentionModel(SlotModel):
    """A memory read by weights that the code gives.

    codec, item_net, similarity, num_slots, content_std: see `SlotModel`; the codec's prior and posterior must not see
    contents
    query_net  codes (N, C) to queries (N, E)
    """

    estimators = ("terms", "importance")

    def __init__(
        self,
        codec: ConditionalCodec,
        item_net: nn.Module,
        query_net: nn.Module,
        *,
        similarity: Similarity = "normalised",
        num_slots: int | None = None,
        content_std: float = CONTENT_STD,
    ) -> None:
        super().__init__(codec, item_net, similarity=similarity, num_slots=num_slots, content_std=content_std)
        if codec.prior_net is not None or codec.posterior_sees_content:
            raise ValueError(
                "SoftAttentionModel: expected a codec with p(z) and q(z | x), got one that shows them a content; make "
                "it with conditional_prior=False, conditional_posterior=False"
            )
        self.query_net = query_net

    def attention(self, state: ItemState, z: Tensor) -> Tensor:
        """log w(z). Shapes: (*N, Q, C) -> (*N, Q, M), where *N ends with the memory's *B"""
        self._check_state("attention", state)
        queries = self._embed(self.query_net, z, 1)
        with no_autocast(z):
            return self._find(state, queries).log_probs()

    def _attended(self, state: ItemState, z: Tensor) -> Content:
        """What the code sees: the weighted mean of the contents. Shapes: (S, *B, Q, C)"""
        log_weights = self.attention(state, z)
        with no_autocast(z):
            mean = log_weights.exp() @ state.items.to(log_weights.dtype)
        return self.codec.content(self._shaped(mean))

    def _codes(self, x: Tensor, num_samples: int, generator: torch.Generator | None) -> tuple[DiagonalGaussian, Tensor]:
        """q(z | x) and draws of it. Shapes: -> (*B, Q, C), (S, *B, Q, C)"""
        q = self.codec.posterior(None, x)
        return q, q.mean + q.std * self._noise(q.mean.shape[:-1], num_samples, generator).to(q.mean.dtype)

    def _log_weights(self, state: ItemState, x: Tensor, num_samples: int, generator: torch.Generator | None) -> Tensor:
        q, z = self._codes(x, num_samples, generator)
        standard = _standard(q)
        size = images_at_once(x, z[0, ..., 0].numel())
        found = [
            self.codec.log_prob(part, self._attended(state, part), x) + standard.log_prob(part) - q.log_prob(part)
            for part in z.split(size)
        ]
        return torch.cat(found)

    def _score(
        self, state: ItemState, x: Tensor, num_samples: int, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The code finds the items, so there is no address and no address_kl."""
        q, z = self._codes(x, num_samples, generator)
        reconstruction = self.codec.log_prob(z, self._attended(state, z), x)
        code_kl = q.kl(_standard(q))
        return reconstruction, code_kl.expand(reconstruction.shape), torch.zeros_like(code_kl)

    def _surrogate(self, x: Tensor, asked: Request, generator: torch.Generator | None) -> Surrogate:
        """The bound itself, or with "importance" that of several samples."""
        estimator, kl_weight = asked.estimator, asked.kl_weight
        state, x, counts = self._prepare(x, asked.mask, asked.write_mask, asked.roles)
        if estimator.kind == "terms":
            return Surrogate(None, self._reported(*self._score(state, x, 1, generator), counts), state)
        q, z = self._codes(x, estimator.num_samples, generator)
        standard = _standard(q)
        reconstruction = self.codec.log_prob(z, self._attended(state, z), x)
        log_weights = reconstruction + kl_weight * (standard.log_prob(z) - q.log_prob(z))
        code_kl = q.kl(standard)
        terms = self._reported(reconstruction, code_kl[None], torch.zeros_like(code_kl), counts)
        return Surrogate(objectives.importance_weighted(log_weights), terms, state)

    def _recall_piece(self, state: ItemState, cue: Tensor, generator: torch.Generator | None) -> Tensor:
        q = self.codec.posterior(None, cue)
        z = q.mean[None] if generator is None else q.rsample((1,), generator)
        return self.codec.decode(z, self._attended(state, z))[0]

    def _generate(self, state: ItemState, n: int, generator: torch.Generator | None) -> Tensor:
        self._check_state("sample", state)
        z = self._noise(torch.Size((*state.batch_shape, n)), 1, generator)
        pieces = z.split(images_at_once(z, state.batch_shape.numel()), -2)
        return torch.cat([self.codec.decode(part, self._attended(state, part))[0] for part in pieces], z.ndim - 3)

    def _blank(self, state: ItemState) -> Tensor:
        """The image of the mean code."""
        self._check_state("read", state)
        z = self._like.new_zeros(1, *state.batch_shape, 1, self.codec.code_dim)
        return self.codec.image(z, self._attended(state, z))[0]


def _standard(q: DiagonalGaussian) -> DiagonalGaussian:
    return DiagonalGaussian(torch.zeros_like(q.mean), torch.ones_like(q.std))
