"""The context-aware learner: what is constant in a data set is told apart from what varies, and recombined.

    a ~ uniform over the allowed patterns in {0, 1}^K
    c_k ~ p(c_k) once for the set where a_k = 1;  c_k ~ p(c_k | constant ones) for every item where a_k = 0
    z ~ p(z | c),  x ~ p(x | z, c_1, ..., c_K)

Thesis, chapter 6. Parts of the bound: code_kl is that of z (L), address_kl that of the varying contexts (C_v),
memory_kl that of the constant ones (C_c), choice_kl that of a (A); see `constant_choice` and `context_latents`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mnemon.core.checks import check_size
from mnemon.core.patterns import Constant, constant_patterns
from mnemon.core.protocol import Terms
from mnemon.distributions.choices import uniform_kl
from mnemon.distributions.gaussian import DiagonalGaussian
from mnemon.memories.frames import Frames
from mnemon.models import constant_choice
from mnemon.models.agreement import best_agreement
from mnemon.models.codec_model import CodeModel, Writing, full_precision
from mnemon.models.context_latents import combine_contexts, draw_codes, infer_latents, mean_code
from mnemon.models.context_state import ContextsState, check_contexts, check_items
from mnemon.nets.codec import Codec
from mnemon.nets.context_mixture import ContextPriors
from mnemon.nets.contexts import Contexts, TiedContexts
from mnemon.nets.residual import ResidualMLP
from mnemon.nets.sets import PoolingKind, make_pooling
from mnemon.objectives import Estimator, Request, Surrogate

CHOICE_WIDTH = 128
FIT_WEIGHT = 0.01
"""Of the mixtures' fit in what is maximised. Steps of Adam do not depend on it, but the norm does that gradients of all
parameters are clipped by, and the nets shall not be clipped because of a mixture."""
OWN_ESTIMATORS = ("posterior", "balanced", "held", "enumerate", "gumbel", "concrete")


class ContextAwareLearner(CodeModel):
    """K contexts, of which some are constant in a data set.

    codec         made with head=False and code_dim = K x context_dim + the size of z; the decoder takes all of it
    contexts      how contexts are inferred: see `mnemon.nets.contexts`
    constant      "one": exactly one context is constant; "any": any of them, also none or all
    supervised    training is told a; q(a | X) is then not learned, and where a is not given it is what the bound says
    prior_components  of mixtures that are fitted to contexts and stand for p(c_k) in evaluation and in every draw (see
                  `ContextPriors`); None: N(0, I). For tied contexts, whose prior sees no other latent
    pooling       of the net of q(a | X), which sees the images themselves: encodings change with what contexts hold,
                  and what was found out about a would change with them
    """

    trains_without_codes = True

    def __init__(
        self,
        codec: Codec,
        contexts: Contexts,
        num_contexts: int,
        context_dim: int,
        *,
        constant: Constant = "one",
        supervised: bool = False,
        prior_components: int | None = None,
        pooling: PoolingKind = "mean",
    ) -> None:
        super().__init__(codec)
        check_size("context_dim", context_dim)
        if num_contexts < 2:
            raise ValueError(
                f"num_contexts: expected at least 2, got {num_contexts}; with one context there is nothing to tell "
                "apart: use the neural statistician (statistician-full)"
            )
        if codec.head is not None or codec.encoding_dim is None or codec.code_dim <= num_contexts * context_dim:
            raise ValueError(
                f"ContextAwareLearner: expected a codec without head, of known encoding_dim, whose code_dim is "
                f"{num_contexts} x {context_dim} for the contexts and the rest for z, got code_dim {codec.code_dim}"
            )
        self.num_contexts, self.context_dim, self.supervised = num_contexts, context_dim, supervised
        self.estimators = ("enumerate",) if supervised else OWN_ESTIMATORS  # type: ignore[misc]
        self.contexts = contexts
        self.priors: ContextPriors | None = None
        if prior_components is not None:
            if not isinstance(contexts, TiedContexts):
                raise ValueError(
                    f"prior_components: expected tied contexts, got {type(contexts).__name__}: their prior depends on "
                    "the constant ones; set model.contexts=tied, or leave prior_components out"
                )
            self.priors = ContextPriors(num_contexts, context_dim, prior_components)
        self.patterns: Tensor
        self.register_buffer("patterns", constant_patterns(num_contexts, constant).float(), persistent=False)
        self.pooled_dims = [contexts.pooled_dim]
        if not supervised:
            self.choice_before = ResidualMLP(math.prod(codec.image_shape), CHOICE_WIDTH, hidden=CHOICE_WIDTH)
            self.choice_pooling = make_pooling(pooling, CHOICE_WIDTH)
            self.choice_after = ResidualMLP(CHOICE_WIDTH, len(self.patterns))
            self.pooled_dims.append(CHOICE_WIDTH)

    # -- writing -----------------------------------------------------------------------------------

    def write(
        self,
        x: Tensor,
        *,
        prior: ContextsState | None = None,
        mask: Tensor | None = None,
        weights: Tensor | None = None,
        num_steps: int | None = None,
        generator: torch.Generator | None = None,
        constant: Tensor | None = None,
    ) -> ContextsState:
        """The posteriors of all contexts in one pass, and which of them are constant.

        constant: a where it is known, bool (*B, K), one of the allowed patterns. Poolings other than the mean refuse a
        prior. Where a is found by the bound, writing on multiplies what both parts say about it.
        """
        self.codec.check("write", x)
        mask = self._item_mask("write", "mask", x, mask)
        constant = self._told("write", x, constant)
        return self._write(x, Writing(prior, mask, weights, num_steps, generator), constant).contiguous()

    def _write(self, x: Tensor, how: Writing, constant: Tensor | None = None) -> ContextsState:
        if how.prior is not None:
            self._check_prior(how.prior)
        if constant is None:
            self._check_items("write", x, self._counts("write", x, how.mask, how.weights), how.prior)
        x = self._present(x, how.mask)
        return self._contexts_of("write", x, self.codec.encodings(x), how.prior, how.mask, how.weights, constant)

    def prior_state(self, batch_shape: tuple[int, ...] = ()) -> ContextsState:
        """p(c_k) = N(0, I), every allowed pattern equally likely. Sets that are sampled from it are new ones; with
        mixtures for p(c_k), they are drawn from these, which no state could hold."""
        zero = self._like.new_zeros(*batch_shape, self.num_contexts, self.context_dim)
        choice = self._like.new_full((*batch_shape, len(self.patterns)), -math.log(len(self.patterns)))
        pooled = self._like.new_zeros(*batch_shape, sum(self.pooled_dims))
        return ContextsState(zero, torch.ones_like(zero), choice, pooled, self._like.new_zeros(batch_shape))

    def _contexts_of(
        self,
        where: str,
        x: Tensor,
        encodings: Tensor,
        prior: ContextsState | None,
        mask: Tensor | None,
        weights: Tensor | None,
        constant: Tensor | None,
    ) -> ContextsState:
        parts, counts = [], None
        nets: list[tuple[Any, Any, Tensor]] = [(self.contexts.statistic, self.contexts.pooling, encodings)]
        if not self.supervised:
            pixels = x.flatten(-len(self.codec.image_shape))
            nets.append((self.choice_before, self.choice_pooling, pixels))
        for (net, pooling, seen), size in zip(nets, self.pooled_dims, strict=True):
            frames = Frames.gather(where, full_precision(net(seen)), size, mask, weights)
            parts.append(full_precision(pooling(frames.mean, frames.counts)))
            counts, count = frames.counts, frames.total
        pooled = torch.cat(parts, -1)
        if prior is not None:
            total = count[..., None] * pooled + prior.count[..., None] * prior.pooled
            count = count + prior.count
            pooled = total / count[..., None]
        first, *choice = pooled.split(self.pooled_dims, -1)
        q = self.contexts.constant(first, count)
        if constant is not None:
            log_choice = constant_choice.known_choice(where, constant, self.patterns, pooled)
        elif choice:
            log_choice = full_precision(self.choice_after(choice[0])).log_softmax(-1)
        else:
            log_choice = self._choice_by_bound(x, encodings, q, counts)
            if prior is not None:
                log_choice = (log_choice + prior.log_choice).log_softmax(-1)
        return ContextsState(q.mean, q.std, log_choice, pooled, count)

    @torch.no_grad()
    def _choice_by_bound(self, x: Tensor, encodings: Tensor, q: DiagonalGaussian, counts: Tensor | None) -> Tensor:
        """softmax of the bound under each pattern, at the means of all latents. Shapes: -> (*B, M)"""
        chosen = constant_choice.every_pattern(self.patterns, q.mean.shape[:-2])
        found = infer_latents(self.contexts, encodings, q, chosen, None, at_mean=True, priors=self._evaluated)
        per_item = self.codec.log_prob(found.code, x) - found.code_kl - found.varying_kl
        return constant_choice.choice_by_bound(per_item, found.constant_kl, counts)

    # -- the bound ---------------------------------------------------------------------------------

    def terms_and_state(
        self,
        x: Tensor,
        *,
        mask: Tensor | None = None,
        write_mask: Tensor | None = None,
        generator: torch.Generator | None = None,
        constant: Tensor | None = None,
        estimator: Estimator | None = None,
        kl_weight: float | Tensor = 1.0,
    ) -> tuple[Terms, ContextsState]:
        """The parts of the bound with a summed out or drawn, as the estimator says: see `constant_choice`.

        Without an estimator a is summed out. With a given, choice_kl is 0. An estimator without codes is for training
        alone: in evaluation there always are codes.
        """
        self.codec.check("terms", x)
        mask = self._item_mask("terms", "mask", x, mask)
        write_mask = self._item_mask("terms", "write_mask", x, write_mask)
        constant = self._told("terms", x, constant)
        return self._terms(
            self._present(x, mask), mask, write_mask, generator,
            constant=constant, estimator=estimator, kl_weight=kl_weight,
        )  # fmt: skip

    def _terms(
        self,
        x: Tensor,
        mask: Tensor | None,
        write_mask: Tensor | None,
        generator: torch.Generator | None,
        *,
        constant: Tensor | None = None,
        estimator: Estimator | None = None,
        kl_weight: float | Tensor = 1.0,
    ) -> tuple[Terms, ContextsState]:
        terms, state, _ = self._parts(
            x, mask, write_mask, generator, constant=constant, estimator=estimator, kl_weight=kl_weight
        )
        return terms, state

    def _parts(
        self,
        x: Tensor,
        mask: Tensor | None,
        write_mask: Tensor | None,
        generator: torch.Generator | None,
        *,
        constant: Tensor | None,
        estimator: Estimator | None,
        kl_weight: float | Tensor,
    ) -> tuple[Terms, ContextsState, Tensor | None]:
        """The parts of the bound, the memory, and in training how well the mixtures fit, weighted. Shapes: fit (*B)"""
        codes = estimator is None or estimator.codes or not self.training
        estimator = constant_choice.used_estimator(estimator if constant is None else None, self.training)
        by_bound = estimator.kind in constant_choice.BY_BOUND
        summed = constant is None and estimator.kind in constant_choice.SUMMED
        if constant is None:
            self._check_items("terms", x, mask, None)
        encodings = self.codec.encodings(x)
        state = self._contexts_of("terms", x, encodings, None, self._subset(mask, write_mask), None, constant)
        log_q = state.log_choice.detach() if estimator.kind == "held" else state.log_choice
        choice_kl = uniform_kl(log_q)
        if constant is not None:
            chosen, choice_kl = constant.to(state.mean.dtype), torch.zeros_like(choice_kl)
        elif summed:
            chosen = constant_choice.every_pattern(self.patterns, state.batch_shape)
        else:
            chosen, choice_kl = constant_choice.relaxed_pattern(log_q, self.patterns, estimator, generator)
        found = infer_latents(
            self.contexts, encodings, state.constant, chosen, generator, codes=codes, priors=self._evaluated
        )
        parts = [self.codec.log_prob(found.code, x), found.code_kl, found.varying_kl, found.constant_kl]
        counts = None if mask is None else mask.to(parts[0].dtype)
        if by_bound:
            log_q = constant_choice.posterior_choice(parts, counts, kl_weight, balanced=estimator.kind == "balanced")
            choice_kl = constant_choice.taught_kl(log_q, state.log_choice)
        if summed:
            parts = constant_choice.sum_out(parts, log_q)
        reconstruction, code_kl, varying_kl, constant_kl = parts
        fit = None
        if self.priors is not None and self.training:
            share = log_q.exp() @ self.patterns if summed else chosen
            fit = FIT_WEIGHT * self.priors.fit(state.constant, found.varying, share, counts)
        return Terms(reconstruction, code_kl, varying_kl, constant_kl, counts, choice_kl), state, fit

    @property
    def _evaluated(self) -> ContextPriors | None:
        """The prior of contexts where it is not N(0, I), under which training maximises the bound."""
        return None if self.training else self.priors

    def _surrogate(self, x: Tensor, asked: Request, generator: torch.Generator | None) -> Surrogate:
        """`terms`, with a as the episodes give it if training is supervised; otherwise a is only compared with it."""
        known = asked.roles.constant
        if self.supervised and known is None:
            raise ValueError(
                "surrogate: expected episodes that tell which contexts are constant, got others; use "
                "data.episodes=factors, or model.supervised=false"
            )
        self.codec.check("surrogate", x)
        told = self._told("surrogate", x, known if self.supervised else None)
        terms, state, fit = self._parts(
            self._present(x, asked.mask), asked.mask, asked.write_mask, generator,
            constant=told, estimator=asked.estimator, kl_weight=asked.kl_weight,
        )  # fmt: skip
        agreement = None
        if known is not None and not self.supervised and known.shape[-1] == self.num_contexts:
            agreement = best_agreement(self._likely_pattern(state), known)
        return Surrogate(None, terms, state, agreement, fit)

    # -- reading and generating --------------------------------------------------------------------

    def sample_sets(
        self,
        state: ContextsState,
        n: int,
        *,
        constant: Tensor | None = None,
        at_mean: bool = False,
        settled: bool = False,
        sample_pixels: bool = False,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """New data sets of n items: their constant contexts from the state, once for the set, others from the prior.

        constant  which contexts are constant, any pattern, also ones never seen; one may stand for all sets. Drawn from
                  q(a | X) when absent
        at_mean   take the most likely constant contexts, as the thesis does
        settled   draw varying contexts from what contexts are like that are constant in a set (`prior_components`). One
                  item tells its own context vaguely, and the prior of varying ones is as vague: draws from it lie
                  between two values, and so does the image
        Shapes: constant (*B, K) -> (*B, n, *X). Thesis, figures 6.3, 6.4 and 6.6
        """
        check_size("n", n)
        self._check_state("sample_sets", state)
        if constant is None:
            chosen = self._draw_pattern(state, generator)
        else:
            chosen = constant_choice.given_pattern("sample_sets", constant, self.num_contexts, state.batch_shape)
        codes = self._draw_codes(state, chosen, n, generator, at_mean=at_mean, settled=settled)
        return self._image(self.codec.decode(codes), sample_pixels, generator)

    def combine(self, states: Sequence[ContextsState], constants: Sequence[Tensor]) -> tuple[ContextsState, Tensor]:
        """A state with the constant contexts of several sets, and which contexts it has: what `sample_sets` takes.

        Where several give a context, the last one counts. Shapes: constants (*B, K) each. Thesis, figure 6.7
        """
        if not states or len(states) != len(constants):
            raise ValueError(f"combine: expected a pattern for every state, got {len(constants)} for {len(states)}")
        for state in states:
            self._check_state("combine", state)
        whole = self.prior_state(tuple(states[0].batch_shape))
        pairs = zip(states, constants, strict=True)
        constants = [
            constant_choice.given_pattern("combine", constant, self.num_contexts, state.batch_shape)
            for state, constant in pairs
        ]
        q, together = combine_contexts(whole.constant, [state.constant for state in states], constants)
        return whole.replace(mean=q.mean, std=q.std), together

    def _draw_pattern(self, state: ContextsState, generator: torch.Generator | None) -> Tensor:
        return constant_choice.draw_pattern(state.log_choice, self.patterns, generator)

    def _likely_pattern(self, state: ContextsState) -> Tensor:
        return constant_choice.likely_pattern(state.log_choice, self.patterns)

    def _recall_codes(self, state: ContextsState, cue: Tensor, generator: torch.Generator | None) -> Tensor:
        at_mean = generator is None
        chosen = self._likely_pattern(state) if at_mean else self._draw_pattern(state, generator)
        encodings = self.codec.encodings(cue)
        return infer_latents(self.contexts, encodings, state.constant, chosen, generator, at_mean=at_mean).code

    def _sample_codes(self, state: ContextsState, n: int, generator: torch.Generator | None) -> Tensor:
        return self._draw_codes(state, self._draw_pattern(state, generator), n, generator)

    def _draw_codes(
        self, state: ContextsState, chosen: Tensor, n: int, generator: torch.Generator | None, **how: bool
    ) -> Tensor:
        return draw_codes(self.contexts, state.constant, chosen, n, generator, priors=self.priors, **how)

    def _mean_code(self, state: ContextsState) -> Tensor:
        return mean_code(self.contexts, state.constant, self._likely_pattern(state), self.priors)

    def _log_weight(
        self, state: ContextsState, x: Tensor, encodings: Tensor, generator: torch.Generator | None
    ) -> Tensor:
        """a and the constant contexts are drawn once for all items of an episode."""
        chosen = self._draw_pattern(state, generator)
        found = infer_latents(self.contexts, encodings, state.constant, chosen, generator, priors=self._evaluated)
        return self.codec.log_prob(found.code, x) + found.log_ratio

    # -- checks ------------------------------------------------------------------------------------

    def _told(self, where: str, x: Tensor, constant: Tensor | None) -> Tensor | None:
        """a as it is given, after checks. Shapes: (*B, K)"""
        if constant is None:
            return None
        batch = x.shape[: x.ndim - len(self.codec.image_shape) - 1]
        return constant_choice.given_pattern(where, constant, self.num_contexts, batch)

    def _check_items(self, where: str, x: Tensor, counts: Tensor | None, prior: ContextsState | None) -> None:
        check_items(where, x.shape[-len(self.codec.image_shape) - 1], counts, prior)

    def _check_state(self, where: str, state: ContextsState) -> None:
        check_contexts(where, state, self.num_contexts, self.context_dim)

    def _check_prior(self, prior: ContextsState) -> None:
        self._check_state("write: prior", prior)
        poolings = [self.contexts.pooling, *([] if self.supervised else [self.choice_pooling])]
        if not all(pooling.additive for pooling in poolings):
            raise ValueError(
                "write: expected no prior, since this model's pooling needs all items at once; write them together, or "
                "use a model with pooling mean"
            )
