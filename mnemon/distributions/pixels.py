"""Likelihoods of images given a decoder's outputs: Bernoulli, Gaussian, discretised mixtures of logistics.

Images are (*B, C, H, W) with values in [0, 1]; outputs are (*B, O, H, W) with O = num_outputs(C).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from mnemon.distributions.gaussian import LOG_2PI


class PixelLikelihood(Protocol):
    """What a model asks of p(x | outputs)."""

    @property
    def is_density(self) -> bool:
        """True for densities on [0, 1), False for probabilities of discrete images."""
        ...

    def num_outputs(self, channels: int) -> int: ...
    def log_prob(self, outputs: Tensor, x: Tensor) -> Tensor: ...
    def mean(self, outputs: Tensor) -> Tensor: ...
    def sample(self, outputs: Tensor, generator: torch.Generator | None = None) -> Tensor: ...


def bits_per_dim(log_prob: Tensor, num_dims: int, *, is_density: bool) -> Tensor:
    """Nats per image as bits per dimension; a density on [0, 1) is counted against 256 levels.

    -log2 p / D, plus 8 for a density. Shapes: any -> the same
    """
    bits = -log_prob / (num_dims * math.log(2))
    return bits + 8 if is_density else bits


def _sum_pixels(values: Tensor) -> Tensor:
    return values.sum((-3, -2, -1))


@dataclass(frozen=True)
class BernoulliPixels:
    """Binary pixels; outputs are logits. Values between 0 and 1 are scored as expected log-probabilities."""

    is_density: bool = False

    def num_outputs(self, channels: int) -> int:
        return channels

    def log_prob(self, outputs: Tensor, x: Tensor) -> Tensor:
        """Shapes: (*B, C, H, W) both -> (*B)"""
        outputs, x = torch.broadcast_tensors(outputs, x)
        return -_sum_pixels(F.binary_cross_entropy_with_logits(outputs, x, reduction="none"))

    def mean(self, outputs: Tensor) -> Tensor:
        return outputs.sigmoid()

    def sample(self, outputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return torch.bernoulli(outputs.sigmoid(), generator=generator)


@dataclass(frozen=True)
class GaussianPixels:
    """Independent Gaussians on dequantised pixels: sigmoid mean, scale in (low, low + spread).

    The published code of VBM uses 0.005 + 0.5 sigmoid; its table 1 depends on it.
    """

    low: float = 0.005
    spread: float = 0.5
    is_density: bool = True

    def num_outputs(self, channels: int) -> int:
        return 2 * channels

    def _moments(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        mean, scale = outputs.chunk(2, dim=-3)
        return mean.sigmoid(), self.low + self.spread * scale.sigmoid()

    def log_prob(self, outputs: Tensor, x: Tensor) -> Tensor:
        """Shapes: (*B, 2C, H, W), (*B, C, H, W) -> (*B)"""
        mean, scale = self._moments(outputs)
        return _sum_pixels(-0.5 * (((x - mean) / scale).square() + LOG_2PI) - scale.log())

    def mean(self, outputs: Tensor) -> Tensor:
        return self._moments(outputs)[0]

    def sample(self, outputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        mean, scale = self._moments(outputs)
        noise = torch.randn(mean.shape, dtype=mean.dtype, device=mean.device, generator=generator)
        return (mean + scale * noise).clamp(0, 1)


@dataclass(frozen=True)
class NormalValues:
    """Independent Gaussians on unbounded numbers, for vectors: outputs are means and log standard deviations.

    Vectors are images of one pixel, so the outputs are (*B, 2D, 1, 1).
    """

    is_density: bool = False  # not one on [0, 1): bits per dimension would mean nothing
    least_log_std: float = -5.0

    def num_outputs(self, channels: int) -> int:
        return 2 * channels

    def _moments(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = outputs.chunk(2, dim=-3)
        return mean, log_std.clamp(self.least_log_std, 5.0)

    def log_prob(self, outputs: Tensor, x: Tensor) -> Tensor:
        """Shapes: (*B, 2D, 1, 1), (*B, D, 1, 1) -> (*B)"""
        mean, log_std = self._moments(outputs)
        return _sum_pixels(-0.5 * (((x - mean) / log_std.exp()).square() + LOG_2PI) - log_std)

    def mean(self, outputs: Tensor) -> Tensor:
        return self._moments(outputs)[0]

    def sample(self, outputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        mean, log_std = self._moments(outputs)
        noise = torch.randn(mean.shape, dtype=mean.dtype, device=mean.device, generator=generator)
        return mean + log_std.exp() * noise


@dataclass(frozen=True)
class LogisticMixturePixels:
    """Mixture of logistics discretised to `levels` grey values x = k / (levels - 1), each channel on its own.

    Outputs per channel and component: a logit, a mean (0 is the middle of the range), a log scale.
    """

    num_components: int = 10
    levels: int = 256
    is_density: bool = False

    def num_outputs(self, channels: int) -> int:
        return 3 * self.num_components * channels

    def _parts(self, outputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Log weights, means in [0, 1] units and scales. Shapes: (*B, O, H, W) -> (*B, C, M, H, W) each"""
        parts = outputs.unflatten(-3, (-1, 3, self.num_components))
        logits, means, log_scales = parts.unbind(-4)
        return logits.log_softmax(-3), 0.5 + 0.5 * means, _scales(log_scales)

    def log_prob(self, outputs: Tensor, x: Tensor) -> Tensor:
        """Shapes: (*B, O, H, W), (*B, C, H, W) -> (*B)"""
        log_weights, means, scales = self._parts(outputs)
        inside = _log_level(x[..., :, None, :, :], means, scales, self.levels)
        return _sum_pixels((log_weights + inside).logsumexp(-3))

    def mean(self, outputs: Tensor) -> Tensor:
        log_weights, means, _ = self._parts(outputs)
        return (log_weights.exp() * means).sum(-3).clamp(0, 1)

    def sample(self, outputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        log_weights, means, scales = self._parts(outputs)
        pick = _pick(log_weights, generator)
        mean, scale = (part.gather(-3, pick)[..., 0, :, :] for part in (means, scales))
        return _draw_level(mean, scale, self.levels, generator)


@dataclass(frozen=True)
class LinkedLogisticPixels:
    """Mixture of logistics whose channels come in turn: those before move the mean of the next.

    The component is that of the whole pixel. Given it, channel c has mean m_c + sum_{j < c} a_cj (x_j - 1/2) with a_cj
    in (-1, 1): where the colours of a pixel go together, the first tells most of the others. Outputs per component: a
    logit, then per channel a mean and a log scale as of `LogisticMixturePixels`, then the a_cj before tanh.

    Salimans et al. (2017), section 2.2; K++, 4 (colours).
    """

    num_components: int = 10
    levels: int = 256
    is_density: bool = False

    def num_outputs(self, channels: int) -> int:
        return self.num_components * (1 + 2 * channels + channels * (channels - 1) // 2)

    def _parts(self, outputs: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Log weights, means and scales of channels, and how they move each other, in the order 10, 20, 21, 30, ...

        Shapes: (*B, O, H, W) -> (*B, M, H, W), (*B, C, M, H, W) twice, (*B, C (C - 1) / 2, M, H, W)
        """
        channels = 1
        while self.num_outputs(channels) < outputs.shape[-3]:
            channels += 1
        parts = outputs.unflatten(-3, (-1, self.num_components))
        sizes = (1, channels, channels, parts.shape[-4] - 1 - 2 * channels)
        logits, means, log_scales, moves = parts.split(sizes, dim=-4)
        return logits[..., 0, :, :, :].log_softmax(-3), 0.5 + 0.5 * means, _scales(log_scales), moves.tanh()

    @staticmethod
    def _moved(channel: int, means: Tensor, moves: Tensor, before: list[Tensor]) -> Tensor:
        """The mean of a channel, given those before it. Shapes: -> (*B, M, H, W)"""
        first = channel * (channel - 1) // 2
        mean = means[..., channel, :, :, :]
        for place, value in enumerate(before):
            mean = mean + moves[..., first + place, :, :, :] * (value - 0.5)
        return mean

    def log_prob(self, outputs: Tensor, x: Tensor) -> Tensor:
        """Shapes: (*B, O, H, W), (*B, C, H, W) -> (*B)"""
        log_weights, means, scales, moves = self._parts(outputs)
        values = [value[..., None, :, :] for value in x.unbind(-3)]
        total = log_weights
        for channel, value in enumerate(values):
            mean = self._moved(channel, means, moves, values[:channel])
            total = total + _log_level(value, mean, scales[..., channel, :, :, :], self.levels)
        return total.logsumexp(-3).sum((-2, -1))

    def mean(self, outputs: Tensor) -> Tensor:
        """Of the mixture before it is cut off at 0 and 1, then clamped."""
        log_weights, means, _, moves = self._parts(outputs)
        expected: list[Tensor] = []
        for channel in range(means.shape[-4]):
            expected.append(self._moved(channel, means, moves, expected))
        return (log_weights.exp()[..., None, :, :, :] * torch.stack(expected, -4)).sum(-3).clamp(0, 1)

    def sample(self, outputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        log_weights, *others = self._parts(outputs)
        pick = _pick(log_weights, generator)[..., None, :, :, :]
        means, scales, moves = (part.gather(-3, pick.expand(*part.shape[:-3], 1, *part.shape[-2:])) for part in others)
        drawn: list[Tensor] = []
        for channel in range(means.shape[-4]):
            mean = self._moved(channel, means, moves, drawn)
            drawn.append(_draw_level(mean, scales[..., channel, :, :, :], self.levels, generator))
        return torch.cat(drawn, -3)


def _scales(log_scales: Tensor) -> Tensor:
    return log_scales.clamp(min=-7).exp() / 2


def _log_level(x: Tensor, means: Tensor, scales: Tensor, levels: int) -> Tensor:
    """Log probability that a logistic falls to the level x; the outermost ones take its tails. Shapes: broadcast"""
    half = 0.5 / (levels - 1)
    upper, lower = (x + half - means) / scales, (x - half - means) / scales
    # sigmoid(upper) - sigmoid(lower), written so that neither tail cancels
    width = F.logsigmoid(upper) + F.logsigmoid(-lower) + torch.log(-torch.expm1(lower - upper))
    return torch.where(x < half, F.logsigmoid(upper), torch.where(x > 1 - half, F.logsigmoid(-lower), width))


def _pick(log_weights: Tensor, generator: torch.Generator | None) -> Tensor:
    """A component of each pixel. Shapes: (*B, M, H, W) -> int64 (*B, 1, H, W)"""
    uniform = torch.rand(log_weights.shape, dtype=log_weights.dtype, device=log_weights.device, generator=generator)
    gumbel = -torch.log(-torch.log(uniform.clamp(1e-7, 1 - 1e-7)))
    return (log_weights + gumbel).argmax(-3, keepdim=True)


def _draw_level(mean: Tensor, scale: Tensor, levels: int, generator: torch.Generator | None) -> Tensor:
    """A logistic's draw, to the nearest level. Shapes: all the same"""
    u = torch.rand(mean.shape, dtype=mean.dtype, device=mean.device, generator=generator).clamp(1e-6, 1 - 1e-6)
    value = (mean + scale * torch.logit(u)).clamp(0, 1)
    return (value * (levels - 1)).round() / (levels - 1)
