"""How the contexts of a data set are inferred: all of a set at once if constant, item by item if varying.

Two forms. `ConditionalContexts` is the thesis's: a statistic network for the constant ones, and nets for the varying
ones and their prior that see the constant ones. `TiedContexts` reads each context off an item in one way only, whether
it is constant or not, and combines the items of a set by Bayes' rule.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn import functional

from mnemon.distributions.gaussian import DiagonalGaussian
from mnemon.nets.residual import ResidualMLP
from mnemon.nets.sets import MeanPooling, Pooling, PoolingKind, make_pooling


def split_moments(outputs: Tensor, shape: tuple[int, ...]) -> DiagonalGaussian:
    """One half is the mean, the other the log standard deviation. Shapes: (..., 2 prod) -> (..., *shape)"""
    wide = outputs.float() if outputs.dtype in (torch.bfloat16, torch.float16) else outputs
    mean, log_std = (half.unflatten(-1, shape) for half in wide.chunk(2, dim=-1))
    return DiagonalGaussian(mean, log_std.clamp(-8, 8).exp())


def standard_like(q: DiagonalGaussian) -> DiagonalGaussian:
    return DiagonalGaussian(torch.zeros_like(q.mean), torch.ones_like(q.std))


class Contexts(nn.Module, ABC):
    """Inference of K contexts of size D, and of a code z, from encodings of items.

    pooled_dim  size of what is pooled over the items
    """

    pooling: Pooling
    pooled_dim: int

    @abstractmethod
    def statistic(self, encodings: Tensor) -> Tensor:
        """What is pooled. Shapes: (*B, T, width) -> (*B, T, pooled_dim)"""

    @abstractmethod
    def constant(self, pooled: Tensor, count: Tensor) -> DiagonalGaussian:
        """q(c_k | X) of every context, if it is constant. Shapes: (*B, pooled_dim), (*B) -> (*B, K, D)"""

    @abstractmethod
    def varying(self, encodings: Tensor, shared: Tensor, chosen: Tensor) -> DiagonalGaussian:
        """q(c_k | x, ...) of every context, if it varies.

        Shapes: encodings (*B, T, width), shared (..., K, D) the constant contexts, 0 where varying, chosen (..., K)
        """

    @abstractmethod
    def varying_prior(self, shared: Tensor, chosen: Tensor) -> DiagonalGaussian:
        """p(c_k | ...) of a varying context, for any item. Shapes: (..., K, D), (..., K) -> (..., 1, K, D)"""

    @abstractmethod
    def code(self, encodings: Tensor, c: Tensor) -> DiagonalGaussian:
        """q(z | x, ...). Shapes: (*B, T, width), c (..., T, K, D) -> (..., T, Z), or what broadcasts to it"""

    @abstractmethod
    def code_prior(self, c: Tensor) -> DiagonalGaussian:
        """p(z | ...). Shapes: (..., T, K, D) -> (..., T, Z)"""


class ConditionalContexts(Contexts):
    """The thesis's nets: 6.1.1 and 6.4.1. Varying contexts and z see the constant contexts, z sees all of them."""

    def __init__(
        self, width: int, num_contexts: int, context_dim: int, code_dim: int, hidden: int, pooling: PoolingKind
    ) -> None:
        super().__init__()
        self.shape, self.code_dim, self.pooled_dim = (num_contexts, context_dim), code_dim, hidden
        size, told = num_contexts * context_dim, num_contexts * context_dim + num_contexts
        self.before, self.pooling = ResidualMLP(width, hidden, hidden=hidden), make_pooling(pooling, hidden)
        self.after = ResidualMLP(hidden, 2 * size, hidden=hidden)
        self.to_varying = ResidualMLP(width + told, 2 * size)
        self.to_varying_prior = ResidualMLP(told, 2 * size)
        self.to_code = ResidualMLP(width + size, 2 * code_dim)
        self.to_code_prior = ResidualMLP(size, 2 * code_dim)

    def statistic(self, encodings: Tensor) -> Tensor:
        return self.before(encodings)

    def constant(self, pooled: Tensor, count: Tensor) -> DiagonalGaussian:
        return split_moments(self.after(pooled), self.shape)

    def varying(self, encodings: Tensor, shared: Tensor, chosen: Tensor) -> DiagonalGaussian:
        told = torch.cat((shared.flatten(-2), chosen), -1)[..., None, :]
        leading = torch.broadcast_shapes(encodings.shape[:-1], told.shape[:-1])
        inputs = torch.cat((encodings.expand(*leading, -1), told.expand(*leading, -1)), -1)
        return split_moments(self.to_varying(inputs), self.shape)

    def varying_prior(self, shared: Tensor, chosen: Tensor) -> DiagonalGaussian:
        return split_moments(
            self.to_varying_prior(torch.cat((shared.flatten(-2), chosen), -1)[..., None, :]), self.shape
        )

    def code(self, encodings: Tensor, c: Tensor) -> DiagonalGaussian:
        flat = c.flatten(-2)
        inputs = torch.cat((encodings.expand(*flat.shape[:-1], -1), flat), -1)
        return split_moments(self.to_code(inputs), (self.code_dim,))

    def code_prior(self, c: Tensor) -> DiagonalGaussian:
        return split_moments(self.to_code_prior(c.flatten(-2)), (self.code_dim,))


class TiedContexts(Contexts):
    """Each item gives evidence on each context: a precision and what it points to, as of a Gaussian likelihood.

        varying:   precision 1 + l_t,        mean l_t m_t / (1 + l_t)
        constant:  precision 1 + sum_t l_t,  mean sum_t l_t m_t / (1 + sum_t l_t)

    which is Bayes' rule under the prior N(0, I) that both have. z has this prior too, and is inferred from the item
    alone. So an item tells the same about a context in every set, and a context can be constant only in sets whose
    items agree on it.

    Differs from paper: nothing is conditioned on the constant contexts. With the thesis's conditional priors one
    context can hold whatever happens to be constant in a set and the others the rest, at the same bound, and nothing
    asks that a be right.
    """

    def __init__(self, width: int, num_contexts: int, context_dim: int, code_dim: int, hidden: int) -> None:
        super().__init__()
        self.shape, self.code_dim = (num_contexts, context_dim), code_dim
        size = num_contexts * context_dim
        self.pooled_dim, self.pooling = 2 * size, MeanPooling()
        self.to_evidence = ResidualMLP(width, 2 * size, hidden=hidden)
        self.to_code = ResidualMLP(width, 2 * code_dim, hidden=hidden)

    def statistic(self, encodings: Tensor) -> Tensor:
        precision, mean = self.to_evidence(encodings).chunk(2, -1)
        precision = functional.softplus(precision)
        return torch.cat((precision, precision * mean), -1)

    def _posterior(self, evidence: Tensor) -> DiagonalGaussian:
        precision, pointed = (half.unflatten(-1, self.shape) for half in evidence.chunk(2, -1))
        return DiagonalGaussian(pointed / (1 + precision), (1 + precision).rsqrt())

    def constant(self, pooled: Tensor, count: Tensor) -> DiagonalGaussian:
        return self._posterior(pooled * count[..., None])

    def varying(self, encodings: Tensor, shared: Tensor, chosen: Tensor) -> DiagonalGaussian:
        evidence = self.statistic(encodings)
        return self._posterior(evidence.float() if evidence.dtype in (torch.bfloat16, torch.float16) else evidence)

    def varying_prior(self, shared: Tensor, chosen: Tensor) -> DiagonalGaussian:
        return standard_like(DiagonalGaussian(shared[..., None, :, :], shared[..., None, :, :]))

    def code(self, encodings: Tensor, c: Tensor) -> DiagonalGaussian:
        return split_moments(self.to_code(encodings), (self.code_dim,))

    def code_prior(self, c: Tensor) -> DiagonalGaussian:
        zero = c.new_zeros(*c.shape[:-2], self.code_dim)
        return DiagonalGaussian(zero, torch.ones_like(zero))
