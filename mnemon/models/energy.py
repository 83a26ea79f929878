"""Energy-based memory: patterns are written into the weights of a deep energy as its minima, and read by descent.

Write: a few learned gradient steps on the writable weights (`WriteRule`). Read: projected Nesterov descent of the
energy by the item, from a damaged cue, with learned steps that never grow:

    y = clip(x + psi_k v),  v <- psi_k v - gamma_k grad E(y),  x <- clip(x + v),    clip to [0, 1]

Trained to bring cues back to what was written, through both. EBMM, appendix A; design, section 11.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import grad, vmap
from torch.nn import functional as F

from mnemon.core.checks import check_size, holds
from mnemon.memories.fast_weights import RATES, FastWeightState, WriteRule, inverse_softplus, recomputed
from mnemon.models.recall_model import RecallModel
from mnemon.nets.energy import EnergyNet

MOMENTUM = 0.9
KEEP = 0.9
"""Before training: the first momentum, and how much of a step's size and momentum the next one keeps."""


class StepSizes(nn.Module):
    """A learned sequence that never grows: s_1 = first, s_k = s_{k-1} sigmoid(eta_k). EBMM, A.3.

    below_one  s_1 is a sigmoid too (a momentum); else a softplus (a step size)

    Shapes: -> (num_steps)
    """

    def __init__(self, num_steps: int, first: float, *, below_one: bool = False) -> None:
        super().__init__()
        start = math.log(first / (1 - first)) if below_one else inverse_softplus(first)
        self.below_one = below_one
        self.raw_first = nn.Parameter(torch.tensor(start))
        self.logits = nn.Parameter(torch.full((num_steps - 1,), math.log(KEEP / (1 - KEEP))))

    def forward(self) -> Tensor:
        first = torch.sigmoid(self.raw_first) if self.below_one else F.softplus(self.raw_first)
        # sums of logarithms: the gradient of a product waits for the GPU, which a captured step must not
        return torch.cat((first[None], first * F.logsigmoid(self.logits).cumsum(0).exp()))


class EnergyModel(RecallModel):
    """A deep energy whose writable weights are the memory. A write whose weights stop being finite is refused.

    net           the energy; its `memory` layers are written
    write_steps, write_rate, use_gradient   of the write: see `WriteRule`
    read_steps    of a read
    read_rate     the first step's size before training;  read_momentum  its momentum
    reference_count   a pattern weighs 1 / max(T, reference_count) in a write. At 1 a write averages, as the paper's,
                  and writes each of few patterns more strongly than training wrote any; at training's number of
                  patterns it writes each of fewer as strongly as training did
    stepwise      train every read step towards the pattern, not the last alone (EBMM, A.4)
    recompute     training keeps only what goes from step to step and computes the rest anew: less memory, more time
    """

    state_kind = FastWeightState

    def __init__(
        self,
        net: EnergyNet,
        *,
        write_steps: int = 5,
        read_steps: int = 5,
        write_rate: Sequence[float] = RATES,
        read_rate: float = 0.3,
        read_momentum: float = MOMENTUM,
        reference_count: int = 1,
        use_gradient: bool = True,
        stepwise: bool = True,
        recompute: bool = False,
    ) -> None:
        super().__init__(net.image_shape)
        check_size("read_steps", read_steps)
        check_size("reference_count", reference_count)
        if not 0 < read_rate < math.inf:
            raise ValueError(f"read_rate: expected a positive, finite number, got {read_rate}")
        if not 0 < read_momentum < 1:
            raise ValueError(f"read_momentum: expected a number between 0 and 1, got {read_momentum}")
        self.net, self.stepwise, self.recompute = net, stepwise, recompute
        self.reference_count = reference_count
        self.rule = WriteRule(
            net.memory_layers(),
            num_steps=write_steps,
            rate=write_rate,
            use_gradient=use_gradient,
            recompute=recompute,
        )
        self.sizes = StepSizes(read_steps, read_rate)
        self.momenta = StepSizes(read_steps, read_momentum, below_one=True)

    # -- write -------------------------------------------------------------------------------------

    def _write(
        self,
        x: Tensor,
        prior: FastWeightState | None,
        counts: Tensor | None,
        num_steps: int | None,
        generator: torch.Generator | None,
    ) -> FastWeightState:
        """Counts weigh in the means over patterns, which alone decide where the steps go. Nothing is drawn."""
        kept = self._write_steps(x, counts, prior, num_steps)
        finite = torch.stack([each.isfinite().all() for each in kept])
        if not holds(finite):
            step, largest = int(finite.int().argmin()) + 1, float(self.rule.rates.detach().max())
            raise ValueError(
                f"write: expected finite weights, got NaN or infinity after step {step} of {len(kept)}: the write "
                "diverged, and nothing was changed; its learned rates are too large for these patterns "
                f"(the largest is {largest:.3g}), train on such episodes or write fewer steps"
            )
        return FastWeightState(kept[-1])

    def _write_steps(
        self,
        x: Tensor,
        counts: Tensor | None,
        prior: FastWeightState | None = None,
        num_steps: int | None = None,
    ) -> list[Tensor]:
        """The weights after every step. Shapes: x (*B, T, *X), counts (*B, T) -> (*B, P) each"""
        start = self.net.memory_weights()
        x, weights, leading = self._paired(FastWeightState(start) if prior is None else prior, x)
        counts = torch.ones(leading, dtype=x.dtype, device=x.device) if counts is None else counts
        total = counts.sum(-1, keepdim=True)
        if self.reference_count > 1:
            total = total.clamp(min=self.reference_count)
        share = (counts / total).expand(leading).reshape(len(weights), -1)
        kept = self.rule(self.net.with_memory, weights, start, x, share, num_steps)
        return [each.view(*leading[:-1], -1) for each in kept]

    @property
    def _sizes(self) -> tuple[int]:
        return (sum(self.net.memory_layers()),)

    def prior_state(self, batch_shape: tuple[int, ...] = ()) -> FastWeightState:
        """The weights that writing starts from."""
        return FastWeightState(self.net.memory_weights()).expand(batch_shape)

    # -- read --------------------------------------------------------------------------------------

    def energy(self, state: FastWeightState, x: Tensor) -> Tensor:
        """E(x) under the memory: low where a pattern is stored. It has no unit and no normaliser: compare it within
        one memory only. Shapes: (*B, Q, *X) -> (*B, Q)"""
        self._check("energy", x, state)
        flat, weights, leading = self._paired(state, x)
        return vmap(self.net.with_memory)(weights, flat).view(leading)

    def _recall(self, state: FastWeightState, x: Tensor) -> Tensor:
        return self.trajectory(state, x)[-1]

    def trajectory(self, state: FastWeightState, cue: Tensor) -> list[Tensor]:
        """Where a read stands after each of its steps. Shapes: (*B, Q, *X) -> (*B, Q, *X) each. EBMM, A.1 and A.2."""
        x, weights, leading = self._paired(state, cue)
        speed, kept = torch.zeros_like(x), []
        step = recomputed if self.recompute else _call
        for gamma, psi in zip(self.sizes().unbind(), self.momenta().unbind(), strict=True):
            ahead = (x + psi * speed).clamp(0, 1)
            speed = psi * speed - gamma * step(self._slopes, ahead, weights)
            x = (x + speed).clamp(0, 1)
            kept.append(x.view(*leading, *self.image_shape))
        return kept

    def _slopes(self, x: Tensor, weights: Tensor) -> Tensor:
        """grad_x E of every item, batched over episodes. Shapes: (B, Q, *X), (B, P) -> (B, Q, *X)"""

        def total(x: Tensor, weights: Tensor) -> Tensor:
            return self.net.with_memory(weights, x).sum()

        return vmap(grad(total))(x, weights)

    def _paired(self, state: FastWeightState, x: Tensor) -> tuple[Tensor, Tensor, torch.Size]:
        """Items and weights with one batch dimension. Shapes: -> (B, Q, *X), (B, P), the leading shape (*B, Q)"""
        leading = x.shape[: x.ndim - len(self.image_shape)]
        batch = torch.broadcast_shapes(leading[:-1], state.batch_shape)
        leading = torch.Size((*batch, leading[-1]))
        flat = x.expand(*leading, *self.image_shape).reshape(math.prod(batch), leading[-1], *self.image_shape)
        return flat, state.expand(batch).weights.reshape(len(flat), -1), leading

    # -- training ----------------------------------------------------------------------------------

    def recall_loss(
        self, x: Tensor, cue: Tensor, *, targets: Tensor | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """Squared error of what is read from cues, per cue, summed over pixels and over read steps (or at the last
        step alone), and what was read. Values are not checked: nothing waits for the device.

            sum_k |x_i - x_i^(k)|^2

        x        the episode that is written;  mask  which of its items are there
        targets  what the cues are cues of; the episode itself when None

        Shapes: x (*B, T, *X), cue (*B, Q, *X) -> (*B, Q), and (*B, Q, *X) for each step. EBMM, A.4.
        """
        counts = None if mask is None else mask.to(x.dtype)
        state = FastWeightState(self._write_steps(self._present(x, mask), counts)[-1])
        read = self.trajectory(state, cue)
        wanted = x if targets is None else targets
        scored = read if self.stepwise else read[-1:]
        first = wanted.ndim - len(self.image_shape)
        errors = torch.stack([(each - wanted).square().flatten(first).sum(-1) for each in scored])
        return errors.sum(0), read


def _call(function: Any, *inputs: Tensor) -> Tensor:
    result: Tensor = function(*inputs)
    return result
