"""The full neural statistician: a hierarchy of codes between the context and an item, all of them seen by the decoder.

    c ~ N(0, I),  z_1 | c,  z_l | z_{l-1}, c,  x ~ p(x | z_1, ..., z_L, c)

The context reaches every layer and the item directly, so that no layer has to carry what another one knows. Thesis,
5.1.2; Edwards and Storkey (2017), 3.2.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from mnemon.core.checks import check_size
from mnemon.distributions.gaussian import DiagonalGaussian
from mnemon.models.statistician import Inferred, Statistician, moments
from mnemon.nets.codec import Codec
from mnemon.nets.residual import RESIDUAL_WIDTH, ResidualMLP
from mnemon.nets.sets import PoolingKind, make_pooling


class FullStatistician(Statistician):
    """The full model. What it calls a code is (z_1, ..., z_L, c), which the decoder takes as a whole.

    codec        made with head=False and code_dim = num_layers * layer_dim + context_dim
    context_dim  size of the context c
    layer_dim    size of each z_l
    num_layers   stochastic layers L
    hidden       width of the nets and of what is pooled
    pooling      how items become one vector: see `mnemon.nets.sets`
    count_items  the context's net is also given the logarithm of their number, so that it can be the surer the more
                 there were; a mean alone does not tell
    """

    def __init__(
        self,
        codec: Codec,
        context_dim: int = 3,
        layer_dim: int = 32,
        *,
        num_layers: int = 2,
        hidden: int = RESIDUAL_WIDTH,
        pooling: PoolingKind = "mean",
        count_items: bool = False,
    ) -> None:
        super().__init__(codec, context_dim, hidden)
        for name, size in (("layer_dim", layer_dim), ("num_layers", num_layers)):
            check_size(name, size)
        expected = num_layers * layer_dim + context_dim
        if codec.code_dim != expected:
            raise ValueError(
                f"FullStatistician: expected a codec of code_dim = num_layers x layer_dim + context_dim = {expected}, "
                f"got {codec.code_dim}; the decoder takes every layer and the context"
            )
        assert codec.encoding_dim is not None
        width = codec.encoding_dim
        self.layer_dim, self.num_layers = layer_dim, num_layers
        self.statistic = ResidualMLP(width, hidden, hidden=hidden)
        self.pooling = make_pooling(pooling, hidden)
        self.count_items = count_items
        self.context = ResidualMLP(hidden + count_items, 2 * context_dim, hidden=hidden)
        above = [context_dim + (layer_dim if layer else 0) for layer in range(num_layers)]
        self.priors = nn.ModuleList(ResidualMLP(size, 2 * layer_dim, hidden=hidden) for size in above)
        self.posteriors = nn.ModuleList(ResidualMLP(width + size, 2 * layer_dim, hidden=hidden) for size in above)

    def _context_of(self, pooled: Tensor, count: Tensor) -> Any:
        if self.count_items:
            pooled = torch.cat((pooled, count.to(pooled.dtype).log()[..., None]), -1)
        return self.context(pooled)

    def _layers(self) -> Iterator[tuple[nn.Module, nn.Module]]:
        """The nets of p(z_l | z_{l-1}, c) and q(z_l | z_{l-1}, c, x), from the context down."""
        return zip(self.priors, self.posteriors, strict=True)

    def _infer(self, encodings: Tensor, c: Tensor, generator: torch.Generator | None) -> Inferred:
        """Layer after layer; the KL of each is exact given the draws above it. Thesis, 5.12"""
        encodings, c = _together(encodings, c)
        above, drawn = c, []
        kl = log_ratio = torch.zeros((), dtype=c.dtype, device=c.device)
        for prior, posterior in self._layers():
            p = DiagonalGaussian(*moments(prior(above)))
            q = DiagonalGaussian(*moments(posterior(torch.cat((encodings, above), -1))))
            z = q.rsample(generator=generator)
            kl, log_ratio = kl + q.kl(p), log_ratio + p.log_prob(z) - q.log_prob(z)
            above = torch.cat((c, z), -1)
            drawn.append(z)
        return Inferred(torch.cat((*drawn, c), -1), kl, log_ratio)

    def _posterior_mean(self, encodings: Tensor, c: Tensor) -> Tensor:
        encodings, c = _together(encodings, c)
        above, means = c, []
        for posterior in self.posteriors:
            means.append(moments(posterior(torch.cat((encodings, above), -1)))[0])
            above = torch.cat((c, means[-1]), -1)
        return torch.cat((*means, c), -1)

    def _draw_prior(self, c: Tensor, generator: torch.Generator | None) -> Tensor:
        above, drawn = c, []
        for prior in self.priors:
            drawn.append(DiagonalGaussian(*moments(prior(above))).rsample(generator=generator))
            above = torch.cat((c, drawn[-1]), -1)
        return torch.cat((*drawn, c), -1)

    def _prior_mean(self, c: Tensor) -> Tensor:
        above, means = c, []
        for prior in self.priors:
            means.append(moments(prior(above))[0])
            above = torch.cat((c, means[-1]), -1)
        return torch.cat((*means, c), -1)


def _together(encodings: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Encodings and contexts for the same items: one memory may be asked about many, and many about one.

    Shapes: (*B, T, width), (*B, T or 1, D), the leading ones of either may be fewer -> (*B, T, ...) both
    """
    leading = torch.broadcast_shapes(encodings.shape[:-1], c.shape[:-1])
    return encodings.expand(*leading, -1), c.expand(*leading, -1)
