"""Generative Matching Networks: prior, posterior and decoder each go over the stored items in steps of soft attention.

    z ~ p(z | X),  x ~ p(x | z, X);  q(z | x, X)

Each has a matching of its own (see `Matcher`): the prior's starts from a learned state, the posterior's from x, the
decoder's from z. A learned pseudo-input always stands beside the items, so that there may be none of them, and so that
a matching may look away from all. Bartunov and Vetrov, 2016; compared with VMA in VMA, table 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mnemon import objectives
from mnemon.core.checks import check_size
from mnemon.distributions.gaussian import DiagonalGaussian
from mnemon.memories.slots import ItemState, Similarity, scale_keys
from mnemon.models.codec_model import full_precision, no_autocast
from mnemon.models.slot_model import SlotModel
from mnemon.nets.codec import images_at_once
from mnemon.nets.conditional import Content
from mnemon.nets.matching import Matcher, MatchingCodec
from mnemon.objectives import Request, Surrogate

START_STD = 0.5
"""Of the state that the prior's matching starts from, and of the item that stands for an empty memory."""


@dataclass(frozen=True, eq=False)
class _Opened:
    """A memory with the pseudo-input in its last slot, and what the nets make of its items, computed once.

    visible: which items each query may see; None: all of them

    Shapes: content (*B, M + 1, ...), values (*B, M + 1, H), visible (*B, Q, M + 1)
    """

    state: ItemState
    content: Content
    values: Tensor
    visible: Tensor | None

    def read_out(self, weights: Tensor, values: Tensor) -> Tensor:
        """sum_t a_t v_t, in the nets' own precision. Shapes: (*B, N, M + 1), (*B, M + 1, ...) -> (*B, N, ...)"""
        depth = self.state.items.ndim - 1
        return (weights.to(values.dtype) @ values.flatten(depth)).unflatten(-1, values.shape[depth:])


class _Draws(NamedTuple):
    """Drawn codes and what they are worth. Shapes: reconstruction, log_ratio (S, *B, Q), kl (*B, Q)"""

    reconstruction: Tensor
    log_ratio: Tensor
    kl: Tensor


class MatchingModel(SlotModel):
    """A conditional VAE whose three parts attend to the stored items, in several matching steps.

    codec, item_net, similarity: see `SlotModel`; the codec is also given the matchings' last states
    value_net    last feature of a content (N, ...) to the item features psi that matchings read, (N, H)
    start_net    images (N, *X) to the states that the posterior's matching starts from, (N, H)
    code_net     codes (N, C) to those of the decoder's, (N, H)
    embedding_dim, state_dim, num_matching_steps  sizes of the keys (E) and states (H); 1 step: simple matching
    vary_items   in training, each target is explained from a random part of the written items, of any size from none to
                 all of them, as the targets of a sequence are from those before

    Scoring holds the nets' features of every item: a memory may be as large as these fit.

    Differs from paper: the nets are the VMA paper's, so the decoder also reads the maps of the items' way down, and the
    posterior the items themselves, by the weights of the last step.
    """

    estimators = ("terms", "importance")
    takes_empty = True
    codec: MatchingCodec

    def __init__(
        self,
        codec: MatchingCodec,
        item_net: nn.Module,
        value_net: nn.Module,
        start_net: nn.Module,
        code_net: nn.Module,
        embedding_dim: int,
        *,
        state_dim: int | None = None,
        num_matching_steps: int = 4,
        similarity: Similarity = "normalised",
        vary_items: bool = False,
    ) -> None:
        super().__init__(codec, item_net, similarity=similarity)
        check_size("embedding_dim", embedding_dim)
        check_size("num_matching_steps", num_matching_steps)
        size = embedding_dim if state_dim is None else state_dim
        self.value_net, self.start_net, self.code_net, self.vary_items = value_net, start_net, code_net, vary_items
        self.prior_matcher, self.posterior_matcher, self.decoder_matcher = (
            Matcher(size, embedding_dim, num_matching_steps) for _ in range(3)
        )
        self.prior_start = nn.Parameter(START_STD * torch.randn(size))
        self.pseudo_input = nn.Parameter(START_STD * torch.randn(math.prod(codec.content_shape)))
        self.pseudo_key = nn.Parameter(torch.randn(embedding_dim))

    def prior_state(self, batch_shape: tuple[int, ...] = ()) -> ItemState:
        """The memory with no item: the model is then a VAE without any condition."""
        empty = self._like.new_empty
        sizes = (self.pseudo_input.numel(), self.pseudo_key.numel())
        return ItemState(*(empty(*batch_shape, 0, size) for size in sizes))

    # -- matching ----------------------------------------------------------------------------------

    def _open(self, state: ItemState, visible: Tensor | None = None) -> _Opened:
        """Shapes: visible (*B, Q, M)"""
        state = self._with_pseudo_input(state)
        content = self.codec.content(self._shaped(state.items))
        last = content.features[-1]
        values = self._embed(self.value_net, last, last.ndim - state.items.ndim + 1)
        if visible is not None:
            visible = torch.cat((visible, torch.ones_like(visible[..., :1])), -1)  # the pseudo-input always is
        return _Opened(state, content, values, visible)

    def _with_pseudo_input(self, state: ItemState) -> ItemState:
        key = scale_keys(full_precision(self.pseudo_key), self.similarity)
        return state.append(ItemState(full_precision(self.pseudo_input)[None], key[None]))

    def _match(self, matcher: Matcher, memory: _Opened, start: Tensor) -> tuple[Tensor, Tensor]:
        """Weights of the items, and the state at the end. Shapes: (*B, N, H) -> (*B, N, M + 1), (*B, N, H)"""

        def attend(queries: Tensor) -> Tensor:
            log_weights = self._find(memory.state, queries).log_probs()
            if memory.visible is None:
                return log_weights.exp()
            samples = queries.shape[-2] // memory.visible.shape[-2]  # each is shown what its target is shown
            repeated = memory.visible.repeat(*(1,) * (memory.visible.ndim - 2), samples, 1)
            return log_weights.masked_fill(~repeated, -torch.inf).softmax(-1)

        with no_autocast(start):
            return matcher(full_precision(start), memory.values, attend)

    def _prior(self, memory: _Opened) -> DiagonalGaussian:
        """p(z | X), one for all queries that see the same items. Shapes: -> (*B, 1 or Q, C)"""
        rows = 1 if memory.visible is None else memory.visible.shape[-2]
        start = self.prior_start.expand(*memory.state.batch_shape, rows, -1)
        weights, state = self._match(self.prior_matcher, memory, start)
        last = memory.read_out(weights, memory.content.features[-1])
        return self.codec.prior(Content(memory.read_out(weights, memory.content.m), (last, state)))

    def _posterior(self, memory: _Opened, x: Tensor) -> DiagonalGaussian:
        """q(z | x, X). Shapes: (*B, Q, *X) -> (*B, Q, C)"""
        start = self._embed(self.start_net, x, len(self.codec.image_shape))
        weights, state = self._match(self.posterior_matcher, memory, start)
        return self.codec.posterior(Content(memory.read_out(weights, memory.content.m), (state,)), x)

    def _decode(self, memory: _Opened, z: Tensor) -> Tensor:
        """Outputs of p(x | z, X). Shapes: (*B, N, C) -> (*B, N, *outputs)"""
        weights, state = self._match(self.decoder_matcher, memory, self._embed(self.code_net, z, 1))
        features = [memory.read_out(weights, feature) for feature in memory.content.features]
        return self.codec.decode(z, Content(memory.content.m, (*features, state)))

    # -- bounds ------------------------------------------------------------------------------------

    def _draw(self, memory: _Opened, x: Tensor, num_samples: int, generator: torch.Generator | None) -> _Draws:
        """Samples stand beside the queries, so that one product reads the items for all of them; in blocks where there
        is nothing to be learned. Shapes: x (*B, Q, *X)"""
        q, p = self._posterior(memory, x), self._prior(memory)
        leading = q.mean.shape[:-1]
        noise = self._noise(leading, num_samples, generator).to(q.mean.dtype)
        z = (q.mean + q.std * noise).movedim(0, -3)  # (*B, S, Q, C)
        size = num_samples if torch.is_grad_enabled() else images_at_once(x, leading.numel())
        where, found = len(leading) - 1, []
        targets = x.unsqueeze(len(self._leading(x)) - 1)
        for part in z.split(size, where):
            outputs = self._decode(memory, part.flatten(where, where + 1)).unflatten(where, part.shape[where:-1])
            found.append(self.codec.likelihood.log_prob(outputs, targets).movedim(where, 0))
        z = z.movedim(-3, 0)
        return _Draws(torch.cat(found), p.log_prob(z) - q.log_prob(z), q.kl(p))

    def _prepared(self, state: ItemState) -> _Opened:
        self._check_state("log_weights", state)
        return self._open(state)

    def _log_weights(self, state: _Opened, x: Tensor, num_samples: int, generator: torch.Generator | None) -> Tensor:
        draws = self._draw(state, x, num_samples, generator)
        return draws.reconstruction + draws.log_ratio

    def _score(
        self, state: ItemState, x: Tensor, num_samples: int, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Attention is no latent variable: there is no address, and address_kl is 0."""
        draws = self._draw(self._open(state), x, num_samples, generator)
        return draws.reconstruction, draws.kl[None], torch.zeros_like(draws.kl)

    def _surrogate(self, x: Tensor, asked: Request, generator: torch.Generator | None) -> Surrogate:
        """The bound itself, or with "importance" that of several samples."""
        estimator, kl_weight = asked.estimator, asked.kl_weight
        state, x, counts = self._prepare(x, asked.mask, asked.write_mask, asked.roles)
        visible = self._some_items(state, x, generator) if self.training and self.vary_items else None
        num_samples = 1 if estimator.kind == "terms" else estimator.num_samples
        draws = self._draw(self._open(state, visible), x, num_samples, generator)
        terms = self._reported(draws.reconstruction, draws.kl[None], torch.zeros_like(draws.kl), counts)
        if estimator.kind == "terms":
            return Surrogate(None, terms, state)
        log_weights = draws.reconstruction + kl_weight * draws.log_ratio
        return Surrogate(objectives.importance_weighted(log_weights), terms, state)

    def _some_items(self, state: ItemState, x: Tensor, generator: torch.Generator | None) -> Tensor:
        """For each target, any number of the items that are there, and any such choice, equally likely.

        Shapes: x (*B, Q, *X) -> bool (*B, Q, M)
        """
        shape = (*self._leading(x), state.num_slots)
        order, share = (
            torch.rand(drawn, dtype=state.keys.dtype, device=state.keys.device, generator=generator)
            for drawn in (shape, (*shape[:-1], 1))
        )
        present = torch.ones_like(order, dtype=torch.bool)
        if state.counts is not None:
            present = present & (state.counts > 0)[..., None, :]
        rank = torch.where(present, order, 2.0).argsort(-1).argsort(-1)
        return rank < (share * (present.sum(-1, keepdim=True) + 1)).floor()

    # -- reading and generating --------------------------------------------------------------------

    def _recall_piece(self, state: ItemState, cue: Tensor, generator: torch.Generator | None) -> Tensor:
        memory = self._open(state)
        q = self._posterior(memory, cue)
        return self._decode(memory, q.mean if generator is None else q.rsample(generator=generator))

    def _generate(self, state: ItemState, n: int, generator: torch.Generator | None) -> Tensor:
        self._check_state("sample", state)
        memory = self._open(state)
        p = self._prior(memory)
        noise = self._noise(torch.Size((*state.batch_shape, n)), 1, generator)[0].to(p.mean.dtype)
        pieces = (p.mean + p.std * noise).split(images_at_once(noise, state.batch_shape.numel()), -2)
        return torch.cat([self._decode(memory, part) for part in pieces], len(state.batch_shape))

    def _blank(self, state: ItemState) -> Tensor:
        """The image of the prior's mean code."""
        self._check_state("read", state)
        memory = self._open(state)
        return self.codec.likelihood.mean(self._decode(memory, self._prior(memory).mean))

    def _check_state(self, where: str, state: ItemState) -> None:
        super()._check_state(where, state)
        if state.keys.shape[-1] != self.pseudo_key.numel():
            raise ValueError(
                f"{where}: expected an ItemState with keys (*B, M, {self.pseudo_key.numel()}), got "
                f"{tuple(state.keys.shape)}; keys of another size belong to another model"
            )
