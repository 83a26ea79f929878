"""Variational memory addressing: an address is drawn, what stands there is the context of a conditional VAE.

    a ~ p(a | M),  z ~ p(z | m_a),  x ~ p(x | z, m_a);  q(a | x) q(z | m_a, x)

Hard addresses: however large the memory is, only what was drawn goes through the decoder. VMA, equations 1 to 8.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mnemon import objectives
from mnemon.core.checks import check_size
from mnemon.memories.slots import ItemState, Similarity, SlotAddress
from mnemon.models.codec_model import no_autocast
from mnemon.models.slot_model import CONTENT_STD, SlotModel
from mnemon.nets.codec import images_at_once
from mnemon.nets.conditional import ConditionalCodec, Content
from mnemon.objectives import Estimator, Request, Surrogate

PRIOR_STD = 0.01
BASELINES: dict[str, objectives.Baseline] = {"vimco": "arithmetic", "vimco_geometric": "geometric"}


class _Codes(NamedTuple):
    """What drawn codes are worth: log p(x | z, m), KL(q(z) || p(z)), log p(z) - log q(z). Shapes: (S, *B, Q) each"""

    reconstruction: Tensor
    kl: Tensor
    log_ratio: Tensor

    @property
    def log_weight(self) -> Tensor:
        return self.reconstruction + self.log_ratio


class AddressingModel(SlotModel):
    """VMA, with a memory of stored items or a learned one.

    codec, item_net, similarity, num_slots, content_std: see `SlotModel`
    query_net      h^q(x): images (N, *X) to queries (N, E)
    learned_prior  p(a) by a learned query point e_p; False: flat, 1 / |M|
    """

    estimators = ("vimco", "vimco_geometric", "gumbel")
    class_scorers = ("address", "posterior")
    """Few-shot classification by q(a | x), and by the class posterior with z importance-sampled. VMA, 4.2"""

    def __init__(
        self,
        codec: ConditionalCodec,
        item_net: nn.Module,
        query_net: nn.Module,
        embedding_dim: int,
        *,
        similarity: Similarity = "normalised",
        learned_prior: bool = True,
        num_slots: int | None = None,
        content_std: float = CONTENT_STD,
    ) -> None:
        super().__init__(codec, item_net, similarity=similarity, num_slots=num_slots, content_std=content_std)
        check_size("embedding_dim", embedding_dim)
        self.query_net, self.embedding_dim = query_net, embedding_dim
        self.prior_query = nn.Parameter(PRIOR_STD * torch.randn(embedding_dim)) if learned_prior else None

    def address(self, state: ItemState, x: Tensor) -> SlotAddress:
        """q(a | x); its `log_probs()` are (*B, Q, M). VMA, equation 4. Shapes: (*B, Q, *X)"""
        self.codec.check("address", x)
        self._check_state("address", state)
        queries = self._embed(self.query_net, x, len(self.codec.image_shape))
        with no_autocast(x):
            return self._find(state, queries)

    def prior_address(self, state: ItemState) -> SlotAddress:
        """p(a), one query for all items."""
        if self.prior_query is None:
            return SlotAddress.of(state, state.keys.new_zeros(1, self.embedding_dim))
        return self._find(state, self.prior_query[None].to(state.keys.dtype))

    # -- bounds ------------------------------------------------------------------------------------

    def _log_weights(self, state: ItemState, x: Tensor, num_samples: int, generator: torch.Generator | None) -> Tensor:
        """All addresses of a piece are found in one search."""
        q, p = self.address(state, x), self.prior_address(state)
        with no_autocast(x):
            index = q.draw(num_samples, generator=generator)
            log_ratio = p.log_prob(index) - q.log_prob(index)
        size = images_at_once(x, index[0].numel())
        codes = [self._codes(self._contents_at(state, part), x, generator) for part in index.split(size)]
        return torch.cat([part.log_weight for part in codes]) + log_ratio

    def _codes(self, content: Content, x: Tensor, generator: torch.Generator | None) -> _Codes:
        """z drawn for given contents. Shapes: content (S, *B, Q, ...), x (*B, Q, *X)"""
        q, p = self.codec.posterior(content, x), self.codec.prior(content)
        z = q.mean + q.std * self._noise(q.mean.shape[1:-1], len(q.mean), generator).to(q.mean.dtype)
        return _Codes(self.codec.log_prob(z, content, x), q.kl(p), p.log_prob(z) - q.log_prob(z))

    def _score(
        self, state: ItemState, x: Tensor, num_samples: int, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        q, p = self.address(state, x), self.prior_address(state)
        with no_autocast(x):
            index, address_kl = q.draw(num_samples, generator=generator), q.kl(p)
        codes = self._codes(self._contents_at(state, index), x, generator)
        return codes.reconstruction, codes.kl, address_kl

    # -- training ----------------------------------------------------------------------------------

    def _surrogate(self, x: Tensor, asked: Request, generator: torch.Generator | None) -> Surrogate:
        """The K-sample bound by VIMCO (VMA, equations 7 and 8), or the one-sample bound by relaxed addresses.

        address_kl is exact, reconstruction and code_kl are means over the samples. `terms` alone are no objective:
        their gradient leaves out what the address does to reconstruction and code_kl.
        """
        estimator, kl_weight = asked.estimator, asked.kl_weight
        state, x, counts = self._prepare(x, asked.mask, asked.write_mask, asked.roles)
        q, p = self.address(state, x), self.prior_address(state)
        if estimator.kind == "gumbel":
            codes = self._codes(self._relaxed(state, q, estimator, generator), x, generator)
            with no_autocast(x):
                address_kl = q.kl(p)
            value = (codes.reconstruction - kl_weight * codes.kl).mean(0) - kl_weight * address_kl
        else:
            with no_autocast(x):
                index = q.draw(estimator.num_samples, generator=generator)
                log_q, log_p, address_kl = q.log_prob(index), p.log_prob(index), q.kl(p)
            codes = self._codes(self._contents_at(state, index), x, generator)
            log_weights = codes.reconstruction + kl_weight * (codes.log_ratio + log_p - log_q)
            value = objectives.vimco(log_weights, log_q, BASELINES[estimator.kind])
        return Surrogate(value, self._reported(codes.reconstruction, codes.kl, address_kl, counts), state)

    def _relaxed(
        self, state: ItemState, q: SlotAddress, estimator: Estimator, generator: torch.Generator | None
    ) -> Content:
        """Contents of drawn addresses, with the gradient of a relaxed draw (straight through).

        The bound is that of the drawn addresses; only its gradient is biased, the less the lower the temperature.
        """
        with no_autocast(q.keys):
            log_probs = q.log_probs()[..., None, :]
            shape = (*log_probs.shape[:-2], estimator.num_samples, log_probs.shape[-1])
            uniform = torch.rand(shape, dtype=log_probs.dtype, device=log_probs.device, generator=generator)
            tiny = torch.finfo(uniform.dtype).tiny
            gumbel = -torch.log((-torch.log(uniform.clamp(min=tiny))).clamp(min=tiny))
            soft = ((log_probs + gumbel) / estimator.temperature).softmax(-1)
            hard = F.one_hot(soft.argmax(-1), soft.shape[-1]).to(soft.dtype)
            weights = (hard + soft - soft.detach()).movedim(-2, 0)
            drawn = weights @ state.items.to(weights.dtype)
        return self.codec.content(self._shaped(drawn))

    # -- reading and generating --------------------------------------------------------------------

    def _recall_piece(self, state: ItemState, cue: Tensor, generator: torch.Generator | None) -> Tensor:
        """Without a generator: the most probable address, the mean code."""
        q = self.address(state, cue)
        with no_autocast(cue):
            index = q.best()[None] if generator is None else q.draw(1, generator=generator)
        content = self._contents_at(state, index)
        codes = self.codec.posterior(content, cue)
        z = codes.mean if generator is None else codes.rsample(generator=generator)
        return self.codec.decode(z, content)[0]

    def _generate(self, state: ItemState, n: int, generator: torch.Generator | None) -> Tensor:
        self._check_state("sample", state)
        p = self.prior_address(state)
        with no_autocast(state.keys):
            index = p.draw(n, generator=generator)[..., 0].movedim(0, -1)
        pieces = []
        for part in index[None].split(images_at_once(index, state.batch_shape.numel()), -1):
            content = self._contents_at(state, part)
            z = self.codec.prior(content).rsample(generator=generator)
            pieces.append(self.codec.decode(z, content)[0])
        return torch.cat(pieces, len(state.batch_shape))

    def _blank(self, state: ItemState) -> Tensor:
        """The stored items' average under p(a); of a learned memory, the image of the average content."""
        self._check_state("read", state)
        with no_autocast(state.keys):
            average = self._shaped(self.prior_address(state).log_probs().exp() @ state.items)
        if self.contents is None:
            return average
        content = self.codec.content(average)
        return self.codec.image(self.codec.prior(content).mean, content)

    # -- classification ----------------------------------------------------------------------------

    def class_log_scores(
        self,
        support: Tensor,
        queries: Tensor,
        *,
        scorer: str = "address",
        num_samples: int = 1,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """log sum of q(a | x) over the slots of each class; or, for "posterior", of p(a) p(x | m_a), with every slot
        decoded and z importance-sampled. Shapes: support (*B, W, S, *X), queries (*B, Q, *X) -> (*B, Q, W). VMA, 4.2
        """
        where = support.ndim - len(self.codec.image_shape) - 2
        classes = support.shape[where : where + 2]
        state = self.write(support.flatten(where, where + 1))
        if scorer == "address":
            found = self.address(state, queries)
            with no_autocast(queries):
                scores = found.log_probs()
        elif scorer == "posterior":
            scores = self.slot_log_likelihoods(state, queries, num_samples=num_samples, generator=generator)
        else:
            raise ValueError(f"class_log_scores: expected one of {', '.join(self.class_scorers)}, got {scorer!r}")
        return scores.unflatten(-1, classes).logsumexp(-1)

    def slot_log_likelihoods(
        self, state: ItemState, x: Tensor, *, num_samples: int = 1, generator: torch.Generator | None = None
    ) -> Tensor:
        """log p(a) + a bound on log p(x | m_a) for every slot: a decoder pass for each. Shapes: -> (*B, Q, M)"""
        check_size("num_samples", num_samples)
        leading = self._leading(x)
        size = images_at_once(x, leading.numel())
        found = []
        for start in range(0, state.num_slots, size):
            content = self.codec.content(self._shaped(state.items[..., start : start + size, :]))
            slots = torch.arange(min(size, state.num_slots - start), device=x.device)
            at_once = max(1, size // len(slots))
            total: Tensor | None = None
            for drawn in range(0, num_samples, at_once):
                draws = min(at_once, num_samples - drawn)
                index = slots.repeat(draws).reshape(-1, *(1,) * len(leading)).expand(-1, *leading)
                codes = self._codes(self._contents_of(content, index), x, generator)
                part = codes.log_weight.double().unflatten(0, (draws, len(slots))).logsumexp(0)
                total = part if total is None else torch.logaddexp(total, part)
            assert total is not None
            found.append(total - math.log(num_samples))
        with no_autocast(x):
            log_prior = self.prior_address(state).log_probs()
        return torch.cat(found).movedim(0, -1).to(state.keys.dtype) + log_prior
