"""Priors of contexts that follow what contexts are inferred: mixtures of Gaussians.

Contexts of a few values, such as ten digits, leave holes in N(0, I): what is drawn there is none of them. The mixtures
are fitted beside the training, which they do not change: the bound is maximised under N(0, I); it is evaluated, and
everything is drawn, under the mixtures.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mnemon.core.checks import check_size
from mnemon.distributions.gaussian import LOG_2PI, DiagonalGaussian

SPREAD = 0.7
"""Of the components' means at the start: apart, and together about N(0, I)."""
SPEED = 10.0
"""Parameters are kept as so many times less than they are, so that they follow contexts so many times faster than the
nets learn: an optimiser like Adam takes steps of one size."""


class ContextPriors(nn.Module):
    """p(c_k | constant in its set) and p(c_k | varying): a mixture each.

    What is constant is inferred from all items of a set, what varies from one item, and stays vaguer; one mixture for
    both would be as vague as items are, and a set that is drawn from it might be of no value or of two.
    """

    def __init__(self, num_contexts: int, context_dim: int, num_components: int) -> None:
        super().__init__()
        self.constant = ContextMixture(num_contexts, context_dim, num_components)
        self.varying = ContextMixture(num_contexts, context_dim, num_components)

    def fit(self, q: DiagonalGaussian, each: DiagonalGaussian, share: Tensor, counts: Tensor | None) -> Tensor:
        """Expected log density of contexts: of a set's where constant, of its items' where varying. Nothing but the
        mixtures learns from it.

        Shapes: q of sets (*B, K, D), of each item (*B, T, K, D), share of each context's being constant (*B, K),
        counts (*B, T) -> (*B)
        """
        share = share.detach().to(q.mean.dtype)
        whole = self.constant.expected_log_prob(q.map(Tensor.detach))
        items = self.varying.expected_log_prob(each.map(Tensor.detach))
        counts = torch.ones_like(items[..., 0]) if counts is None else counts
        varying = (counts[..., None] * items).sum(-2) / counts.sum(-1, keepdim=True)
        return (share * whole + (1 - share) * varying).sum(-1)


class ContextMixture(nn.Module):
    """p(c_k) = sum_j w_kj N(m_kj, diag(s_kj^2)) for each of K contexts, which are independent."""

    def __init__(self, num_contexts: int, context_dim: int, num_components: int) -> None:
        super().__init__()
        check_size("prior_components", num_components)
        shape = (num_contexts, num_components, context_dim)
        self.raw_means = nn.Parameter(SPREAD / SPEED * torch.randn(shape))
        self.raw_log_stds = nn.Parameter(torch.zeros(shape))
        self.raw_logits = nn.Parameter(torch.zeros(shape[:2]))

    @property
    def means(self) -> Tensor:
        """Shapes: -> (K, J, D)"""
        return SPEED * self.raw_means

    @property
    def log_stds(self) -> Tensor:
        """Shapes: -> (K, J, D)"""
        return SPEED * self.raw_log_stds

    @property
    def logits(self) -> Tensor:
        """Shapes: -> (K, J)"""
        return SPEED * self.raw_logits

    def expected_log_prob(self, q: DiagonalGaussian) -> Tensor:
        """At most E_q log p(c): log sum_j w_j exp(E_q log N_j(c)), which Jensen's inequality puts below it. Exact where
        q is a point. Shapes: q (..., K, D) -> (..., K)"""
        return self._log_density(q.mean, q.mean.square() + q.std.square())

    def log_prob(self, c: Tensor) -> Tensor:
        """Shapes: (..., K, D) -> (..., K)"""
        return self._log_density(c, c.square())

    def kl(self, q: DiagonalGaussian) -> Tensor:
        """At least KL(q || p), so that a bound with it stays one. Shapes: q (..., K, D) -> (..., K)"""
        return -q.entropy() - self.expected_log_prob(q)

    @property
    def mean(self) -> Tensor:
        """Shapes: -> (K, D)"""
        return (self.logits.softmax(-1)[..., None] * self.means).sum(1)

    def sample(self, shape: tuple[int, ...], generator: torch.Generator | None) -> Tensor:
        """Shapes: -> (*shape, K, D)"""
        number, means = torch.Size(shape).numel(), self.means
        if not number:
            return means.new_zeros(*shape, *means.shape[::2])
        drawn = torch.multinomial(self.logits.softmax(-1), number, replacement=True, generator=generator)[..., None]
        noise = torch.randn(
            *drawn.shape[:-1], means.shape[-1], dtype=means.dtype, device=means.device, generator=generator
        )
        mean, log_std = (part.take_along_dim(drawn, 1) for part in (means, self.log_stds))
        return (mean + log_std.exp() * noise).movedim(0, 1).reshape(*shape, *means.shape[::2])

    def _log_density(self, mean: Tensor, square: Tensor) -> Tensor:
        """Of means and mean squares of c. Shapes: (..., K, D) both -> (..., K)"""
        means, log_stds = self.means, self.log_stds
        precision = (-2 * log_stds).exp()
        with torch.autocast(mean.device.type, enabled=False):  # a difference of large numbers
            quadratic = torch.einsum("...kd,kjd->...kj", square, precision)
            quadratic = quadratic - 2 * torch.einsum("...kd,kjd->...kj", mean, precision * means)
        constant = (precision * means.square() + 2 * log_stds + LOG_2PI).sum(-1)
        return (self.logits.log_softmax(-1) - 0.5 * (quadratic + constant)).logsumexp(-1)
