"""Nets of Generative Matching Networks: the VMA paper's, which are also given the state of the matching.

A matching goes over the items in steps. Its state h asks for items, takes in what is read from them, and asks again.
What it ends with, and what it read last, are what p(z | h, m), q(z | h, m, x) and p(x | z, h, m) see of the memory.
Bartunov and Vetrov, 2016.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from mnemon.core.checks import check_size
from mnemon.distributions.gaussian import DiagonalGaussian
from mnemon.nets.codec import find_likelihood
from mnemon.nets.conditional import ConditionalCodec, Content
from mnemon.nets.content import MLPContent, MLPGaussian, MLPSkipDecoder, PyramidContent, SkipDecoder
from mnemon.nets.conv import GaussianHead
from mnemon.nets.mlp import MLPEncoder
from mnemon.nets.pyramid import Pyramid


class Matcher(nn.Module):
    """A state that asks for items and is changed by what it reads, several times over.

        a = softmax of the similarity of f(h) to the keys,  r = sum_t a_t psi(x_t),  h <- GRU(r, h)

    state_dim      size of h and of the item features psi
    embedding_dim  size of the queries f(h), which are linear in h
    num_steps      1: the items are compared with the start alone; more: also with what the others told
    """

    def __init__(self, state_dim: int, embedding_dim: int, num_steps: int) -> None:
        super().__init__()
        for name, value in (("state_dim", state_dim), ("embedding_dim", embedding_dim), ("num_steps", num_steps)):
            check_size(name, value)
        self.num_steps = num_steps
        self.query = nn.Linear(state_dim, embedding_dim)
        self.cell = nn.GRUCell(state_dim, state_dim)

    def forward(self, start: Tensor, values: Tensor, attend: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """The last step's weights, and the state after it.

        Shapes: start (*B, N, H), values (*B, M, H), attend: (*B, N, E) -> weights (*B, N, M); -> those, (*B, N, H)
        """
        state = start
        for _ in range(self.num_steps):
            weights = attend(self.query(state))
            read = weights @ values
            leading = read.shape[:-1]
            state = self.cell(read.reshape(-1, read.shape[-1]), state.expand(read.shape).reshape(-1, read.shape[-1]))
            state = state.unflatten(0, leading)
        return weights, state


class MatchingCodec(ConditionalCodec):
    """A conditional codec whose contents carry the state of a matching as their last feature.

    prior_net      (the content's last feature, h) -> moments of p(z | h, m)
    posterior_net  m, x, h -> those of q(z | h, m, x)
    decoder        z, (the content's features, h) -> outputs of the likelihood
    """

    def posterior(self, content: Content | None, x: Tensor) -> DiagonalGaussian:
        """q(z | h, m, x). Shapes: x (*N, *X), content (*N, ...) -> (*N, C)"""
        assert content is not None
        state = content.features[-1]
        leading = state.shape[:-1]
        x = x.expand(*leading, *self.image_shape)
        m, x, h = (part.flatten(0, len(leading) - 1) for part in (content.m, x, state))
        mean, std = (moment.to(state.dtype).unflatten(0, leading) for moment in self.posterior_net(m, x, h))
        return DiagonalGaussian(mean, std)


class MatchedPrior(nn.Module):
    """p(z | h, m) from all that it is given, by a head. Shapes: (N, ...) each -> (N, C) both"""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.head = head

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        return self.head(torch.cat([feature.flatten(1) for feature in features], 1))


class MatchedPosterior(nn.Module):
    """q(z | h, m, x): m and x one above the other, through a pyramid if there is one, then with h into a head.

    Shapes: (N, *X), (N, *X), (N, H) -> (N, C) both
    """

    def __init__(self, head: nn.Module, pyramid: Pyramid | None = None) -> None:
        super().__init__()
        self.pyramid, self.head = pyramid, head

    def forward(self, m: Tensor, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        both = torch.cat((m, x), 1)
        encoding = both if self.pyramid is None else self.pyramid(both)[-1]
        return self.head(torch.cat((encoding.flatten(1), state), 1))


class MatchedDecoder(nn.Module):
    """p(x | z, h, m) by a decoder of codes and contents, to which z and h are one code.

    Shapes: (N, C), features of m and h (N, H) -> (N, outputs, H, W)
    """

    def __init__(self, decoder: nn.Module) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, z: Tensor, features: Sequence[Tensor]) -> Tensor:
        return self.decoder(torch.cat((z, features[-1]), 1), features[:-1])


def matching_nets(
    image_shape: tuple[int, int, int],
    code_dim: int,
    state_dim: int,
    *,
    architecture: str = "pyramid",
    likelihood: str = "bernoulli",
    num_filters: int = 64,
) -> tuple[MatchingCodec, nn.Module]:
    """A codec, and the net that makes item features psi of a content's last feature, (N, ...) -> (N, state_dim)."""
    if architecture not in ("pyramid", "mlp"):
        raise ValueError(
            f"architecture: expected pyramid or mlp for nets that see a memory's content, got {architecture!r}"
        )
    pixels, size = find_likelihood(likelihood), math.prod(image_shape)
    outputs, inputs = pixels.num_outputs(image_shape[0]), code_dim + state_dim
    content: nn.Module
    decoder: nn.Module
    if architecture == "mlp":
        content, decoder = MLPContent(), MLPSkipDecoder(image_shape, inputs, outputs, size)
        prior = MatchedPrior(MLPGaussian(size + state_dim, code_dim))
        posterior = MatchedPosterior(MLPGaussian(2 * size + state_dim, code_dim))
        features: nn.Module = MLPEncoder(image_shape, state_dim)
    else:
        content = PyramidContent(image_shape, image_shape, num_filters)
        pyramid = Pyramid((2 * image_shape[0], *image_shape[1:]), num_filters=num_filters)
        width = pyramid.width
        decoder = SkipDecoder(image_shape, inputs, outputs, num_filters, width)
        prior = MatchedPrior(GaussianHead(width + state_dim, code_dim, improved=False))
        posterior = MatchedPosterior(GaussianHead(width + state_dim, code_dim, improved=False), pyramid)
        features = nn.Sequential(nn.Flatten(), nn.Linear(width, state_dim))
    codec = MatchingCodec(
        image_shape,
        code_dim,
        content_shape=image_shape,
        content_net=content,
        prior_net=prior,
        posterior_net=posterior,
        decoder=MatchedDecoder(decoder),
        likelihood=pixels,
    )
    return codec, features
