"""Nets that are given a memory's content m beside the code and the image: p(z | m), q(z | m, x), p(x | z, m).

What is computed of m alone is computed once, as `Content`, for all that ask for it. The nets are
the VMA paper's: fully connected for MNIST (section 4.1), a convolutional pyramid for Omniglot (4.2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn

from mnemon.distributions.gaussian import DiagonalGaussian
from mnemon.distributions.pixels import PixelLikelihood
from mnemon.nets.codec import ImageCodec, find_likelihood
from mnemon.nets.content import mlp_pieces, pyramid_pieces
from mnemon.nets.mlp import MLPEncoder
from mnemon.nets.pyramid import PyramidEncoder


@dataclass(frozen=True, eq=False)
class Content:
    """A memory's content as it is stored, and what the nets make of it. Shapes: m (*N, *content), features (*N, ...)"""

    m: Tensor
    features: tuple[Tensor, ...]

    def map(self, function: Callable[[Tensor], Tensor]) -> Content:
        return Content(function(self.m), tuple(function(feature) for feature in self.features))


class ConditionalCodec(ImageCodec):
    """p(z | m), q(z | m, x) and p(x | z, m), over any leading dimensions.

    content_shape  of m: an image, or a vector (learned contents)
    content_net    m (N, *content_shape) -> a tuple of features
    prior_net      features -> mean and standard deviation of p(z | m); None: p(z) = N(0, I)
    posterior_net  (m, x) -> those of q(z | m, x); `posterior_sees_content=False`: x -> those of q(z | x)
    decoder        (z, features) -> outputs of the likelihood
    """

    def __init__(
        self,
        image_shape: tuple[int, ...],
        code_dim: int,
        *,
        content_shape: tuple[int, ...],
        content_net: nn.Module,
        prior_net: nn.Module | None,
        posterior_net: nn.Module,
        decoder: nn.Module,
        likelihood: PixelLikelihood,
        posterior_sees_content: bool = True,
    ) -> None:
        super().__init__(image_shape, code_dim, likelihood)
        self.content_shape = tuple(content_shape)
        self.content_net, self.prior_net, self.posterior_net = content_net, prior_net, posterior_net
        self.decoder, self.posterior_sees_content = decoder, posterior_sees_content

    @classmethod
    def of(
        cls,
        image_shape: tuple[int, int, int],
        code_dim: int,
        *,
        architecture: str = "pyramid",
        likelihood: str = "bernoulli",
        num_filters: int = 64,
        content_dim: int | None = None,
        conditional_prior: bool = True,
        conditional_posterior: bool = True,
    ) -> Self:
        """The VMA paper's nets. `content_dim`: m is a vector of this size instead of an image.

        The two switches leave m out of the prior and of the posterior: soft attention needs it so.
        """
        if architecture not in ("pyramid", "mlp"):
            raise ValueError(
                f"architecture: expected pyramid or mlp for nets that see a memory's content, got {architecture!r}"
            )
        pixels = find_likelihood(likelihood)
        content = image_shape if content_dim is None else (content_dim,)
        outputs = pixels.num_outputs(image_shape[0])
        pieces = (
            mlp_pieces(image_shape, content, code_dim, outputs, conditional_posterior)
            if architecture == "mlp"
            else pyramid_pieces(image_shape, content, code_dim, outputs, num_filters, conditional_posterior)
        )
        content_net, prior_net, posterior_net, decoder = pieces
        return cls(
            image_shape,
            code_dim,
            content_shape=content,
            content_net=content_net,
            prior_net=prior_net if conditional_prior else None,
            posterior_net=posterior_net,
            decoder=decoder,
            likelihood=pixels,
            posterior_sees_content=conditional_posterior,
        )

    def content(self, m: Tensor) -> Content:
        """What the nets make of m. Shapes: (*N, *content)"""
        flat, leading = _flat(m, len(self.content_shape))
        return Content(m, tuple(feature.unflatten(0, leading) for feature in self.content_net(flat)))

    def prior(self, content: Content) -> DiagonalGaussian:
        """p(z | m). Shapes: -> (*N, C)"""
        leading = content.features[0].shape[: content.m.ndim - len(self.content_shape)]
        if self.prior_net is None:
            mean = _wide(content.m).new_zeros(*leading, self.code_dim)
            return DiagonalGaussian(mean, torch.ones_like(mean))
        flat = tuple(feature.flatten(0, len(leading) - 1) for feature in content.features)
        return _gaussian(self.prior_net(flat), leading)

    def posterior(self, content: Content | None, x: Tensor) -> DiagonalGaussian:
        """q(z | m, x), or q(z | x); x is broadcast to the leading dimensions of m. Shapes: x (*N, *X) -> (*N, C)"""
        if not self.posterior_sees_content or content is None:
            flat, leading = _flat(x, len(self.image_shape))
            return _gaussian(self.posterior_net(flat), leading)
        m, leading = _flat(content.m, len(self.content_shape))
        x = x.expand(*leading, *self.image_shape).flatten(0, len(leading) - 1)
        return _gaussian(self.posterior_net(m, x), leading)

    def decode(self, z: Tensor, content: Content) -> Tensor:
        """Outputs of the likelihood, in float32 at least. Shapes: (*N, C) -> (*N, *outputs)"""
        leading = z.shape[:-1]
        flat = tuple(feature.flatten(0, len(leading) - 1) for feature in content.features)
        return _wide(self.decoder(z.flatten(0, len(leading) - 1), flat)).unflatten(0, leading)

    def log_prob(self, z: Tensor, content: Content, x: Tensor) -> Tensor:
        """log p(x | z, m). Shapes: (*N, C), x broadcasts to (*N, *X) -> (*N)"""
        return self.likelihood.log_prob(self.decode(z, content), x)

    def image(self, z: Tensor, content: Content, generator: torch.Generator | None = None) -> Tensor:
        """The mean image, or with a generator a sample. Shapes: (*N, C) -> (*N, *X)"""
        outputs = self.decode(z, content)
        return self.likelihood.mean(outputs) if generator is None else self.likelihood.sample(outputs, generator)


def embedding_net(
    shape: Sequence[int],
    embedding_dim: int,
    *,
    architecture: str = "pyramid",
    num_filters: int = 64,
) -> nn.Module:
    """Images or vectors into the matching space, by the architecture that the codec has. VMA, 4.2: 128 dimensions.

    Shapes: (N, *shape) -> (N, embedding_dim)
    """
    if architecture == "mlp" or len(shape) == 1:
        return MLPEncoder(shape, embedding_dim)
    return PyramidEncoder(tuple(shape), embedding_dim, num_filters=num_filters, hidden=embedding_dim)


def _flat(values: Tensor, event_ndim: int) -> tuple[Tensor, torch.Size]:
    """One leading dimension in place of any number. Shapes: (*N, *event) -> (N, *event)"""
    leading = values.shape[: values.ndim - event_ndim]
    return values.flatten(0, len(leading) - 1), leading


def _wide(values: Tensor) -> Tensor:
    return values.float() if values.dtype in (torch.bfloat16, torch.float16) else values


def _gaussian(moments: tuple[Tensor, Tensor], leading: torch.Size) -> DiagonalGaussian:
    mean, std = (_wide(moment).unflatten(0, leading) for moment in moments)
    return DiagonalGaussian(mean, std)
