"""The stochastic regulariser of the VBM paper: codes drawn towards what the memory expects of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mnemon.core.episode import Codes


@dataclass(frozen=True)
class StochasticRegulariser:
    """After writing, the mean of q(z_t) moves towards what the memory expects: t mz + (1 - t) E[M'w + b].

    t = gamma - epsilon + delta Beta(alpha, beta), one per frame. The bound of the moved q(z) is still a bound.
    `always`: also outside of training, there with t at its mean; a decoder that was trained on moved codes only has
    not seen others. VBM, 3.2.3.
    """

    gamma: float = 0.5
    epsilon: float = 0.1
    delta: float = 0.2
    alpha: float = 8.0
    beta: float = 8.0
    always: bool = False

    def mean(self, codes: Codes, expected: Tensor) -> Codes:
        """Codes moved by the mean of t, without drawing."""
        t = self.gamma - self.epsilon + self.delta * self.alpha / (self.alpha + self.beta)
        return Codes(t * codes.mean + (1 - t) * expected, codes.std)

    def __call__(self, codes: Codes, expected: Tensor, generator: torch.Generator | None = None) -> Codes:
        """Codes moved by a draw of t."""
        leading = codes.mean.shape[:-1]
        one, other = (  # Beta is a share of two gammas
            torch._standard_gamma(codes.mean.new_full(leading, shape), generator=generator)
            for shape in (self.alpha, self.beta)
        )
        t = (self.gamma - self.epsilon + self.delta * one / (one + other))[..., None]
        return Codes(t * codes.mean + (1 - t) * expected, codes.std)
