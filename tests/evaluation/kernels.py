"""A memory whose likelihood is known: a kernel at every stored item, p(x | M) = mean_i N(x; m_i, variance)."""

import math

import torch

from mnemon import objectives
from mnemon.core.protocol import MemoryModel


class Kernels(MemoryModel):
    """Its state is the items. Nothing is drawn, so all samples are alike."""

    def __init__(self, variance=1.0):
        super().__init__()
        self.variance = variance

    @property
    def image_shape(self):
        return (1, 3, 2)  # those of the tests; nothing here depends on it

    def write(self, x, *, prior=None, mask=None, weights=None, num_steps=None, generator=None):
        return x.double().flatten(-3)

    def log_weights(self, state, x, *, num_samples=1, generator=None):
        square = (x.double().flatten(-3).unsqueeze(-2) - state.unsqueeze(-3)).square().sum(-1)
        kernels = -0.5 * (square / self.variance + state.shape[-1] * math.log(2 * math.pi * self.variance))
        value = kernels.logsumexp(-1) - math.log(state.shape[-2])
        return value.expand(num_samples, *value.shape)

    def log_likelihood(self, state, x, *, num_samples=1, generator=None):
        return objectives.bound(self.log_weights(state, x, num_samples=num_samples))

    def read(self, state, cue, *, observed=None, steps=1, generator=None):
        raise NotImplementedError

    def sample(self, state, n=1, *, generator=None):
        raise NotImplementedError

    def terms(self, x, *, mask=None, write_mask=None, generator=None):
        raise NotImplementedError


class NearestItem(Kernels):
    """Brings two scorers of its own: the nearest item of all decides, or the share that a class has of the kernels."""

    class_scorers = ("nearest", "share")

    def class_log_scores(self, support, queries, *, scorer, num_samples=1, generator=None):
        square = (queries.double()[..., None, None, :, :, :] - support.double()[..., None, :, :, :, :, :]).square()
        log_kernels = -0.5 * square.sum((-3, -2, -1)) / self.variance
        return log_kernels.amax(-1) if scorer == "nearest" else log_kernels.logsumexp(-1)


def gaussian(x, mean, variance=1.0):
    """log N(x; mean, variance I) by torch's own distribution."""
    spread = torch.full_like(mean, variance**0.5)
    return float(torch.distributions.Normal(mean, spread).log_prob(x).sum())
