"""Memory in weights: a few learned gradient steps write an episode into the fast weights of an energy.

    theta <- theta - sum_l r_l grad_theta L_l,    L = E(x),  |grad_x E(x)|^2,  |theta - theta_0|^2

E and the gradient norm are means over the episode's items. Every writable layer has a learned rate r for each of the
three terms, kept positive by softplus. No nets here: the energy is any function of flat weights and items.
EBMM, appendix C; design, section 11.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.func import grad, vmap
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from mnemon.core.checks import check_size
from mnemon.core.state import State, rank

Energy = Callable[[Tensor, Tensor], Tensor]
"""One episode's: flat weights (P) and items (T, *X) to energies (T)."""
TERMS = ("energy", "gradient", "prior")
RATES = (0.3, 0.03, 0.001)


@dataclass(frozen=True, eq=False)
class FastWeightState(State):
    """The writable weights of an episode, all layers behind one another. Shapes: weights (*B, P)"""

    weights: Tensor = field(metadata=rank(1))


class WriteRule(nn.Module):
    """Learned gradient steps on flat weights.

    layer_sizes   how many of the weights, from the first on, belong to each writable layer
    num_steps     of a write
    rate          of every layer before training, for each of the three terms. Differs from paper: 1e-4 for all there,
                  over 2 million updates; rates at which writing changes something from the start save the first part
    use_gradient  whether |grad_x E|^2 is among the terms (the paper's figure 4 leaves it out)
    recompute     keep only the weights after each step for the backward pass, and compute the rest anew in it
    """

    def __init__(
        self,
        layer_sizes: Sequence[int],
        *,
        num_steps: int = 5,
        rate: Sequence[float] = RATES,
        use_gradient: bool = True,
        recompute: bool = False,
    ) -> None:
        super().__init__()
        check_size("num_steps", num_steps)
        if len(rate) != len(TERMS) or not all(0 < value < math.inf for value in rate):
            raise ValueError(f"rate: expected a positive, finite number for each of {', '.join(TERMS)}, got {rate}")
        self.num_steps, self.use_gradient, self.recompute = num_steps, use_gradient, recompute
        raw = [
            inverse_softplus(value)
            for value, term in zip(rate, TERMS, strict=True)
            if use_gradient or term != "gradient"
        ]
        self.raw_rates = nn.Parameter(torch.tensor(raw)[:, None].repeat(1, len(layer_sizes)))
        self.layer_sizes = tuple(layer_sizes)

    @property
    def rates(self) -> Tensor:
        """Of every term and layer. Shapes: -> (terms, L)"""
        return F.softplus(self.raw_rates)

    def forward(
        self, energy: Energy, weights: Tensor, start: Tensor, x: Tensor, share: Tensor, num_steps: int | None = None
    ) -> list[Tensor]:
        """The weights after every step, batched over episodes.

        weights  where the steps begin;  start  what the prior term draws back to
        share    of each item in the means; 0 for an absent one

        Shapes: weights (B, P), start (P), x (B, T, *X), share (B, T) -> (B, P), one for each step
        """

        def step(weights: Tensor, x: Tensor, share: Tensor, start: Tensor) -> Tensor:
            return weights - vmap(self._update, in_dims=(None, 0, None, 0, 0))(energy, weights, start, x, share)

        kept = []
        for _ in range(self.num_steps if num_steps is None else num_steps):
            weights = recomputed(step, weights, x, share, start) if self.recompute else step(weights, x, share, start)
            kept.append(weights)
        return kept

    def _update(self, energy: Energy, weights: Tensor, start: Tensor, x: Tensor, share: Tensor) -> Tensor:
        """What one step takes off one episode's weights. Shapes: (P), (P), (T, *X), (T) -> (P)"""
        gradients = write_gradients(energy, weights, x, share, self.use_gradient)
        every = torch.stack((*gradients, 2 * (weights - start)))
        layers = zip(self.rates.split(1, -1), every.split(self.layer_sizes, -1), strict=True)
        return torch.cat([(rates * part).sum(0) for rates, part in layers])


def write_gradients(
    energy: Energy, weights: Tensor, x: Tensor, share: Tensor, use_gradient: bool = True
) -> tuple[Tensor, ...]:
    """Gradients by the weights of sum_i share_i E(x_i) and of sum_i share_i |grad_x E(x_i)|^2, for one episode.

    One backward pass gives both the first and what the second is made of. Shapes: (P), (T, *X), (T) -> (P), (P)
    """

    def mean_energy(weights: Tensor, x: Tensor) -> Tensor:
        return (share * energy(weights, x)).sum()

    if not use_gradient:
        return (grad(mean_energy)(weights, x),)
    inverse = torch.where(share > 0, 1 / share.clamp(min=1e-30), 0.0)

    def gradient_norm(weights: Tensor) -> tuple[Tensor, Tensor]:
        by_weights, by_x = grad(mean_energy, argnums=(0, 1))(weights, x)  # by_x holds share_i grad E(x_i)
        return (inverse * by_x.square().flatten(1).sum(1)).sum(), by_weights

    by_norm, by_energy = grad(gradient_norm, has_aux=True)(weights)
    return by_energy, by_norm


def recomputed(function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """`function(*inputs)`, of which the backward pass keeps the inputs alone.

    Reentrant, since transforms of torch.func refuse the hooks that the other kind needs: what else the function uses
    must be parameters, whose gradients add up in `.grad`. That happens only if an input needs a gradient; where none
    does, one is added.
    """
    if not torch.is_grad_enabled():
        return function(*inputs)
    needs = torch.empty(0, requires_grad=not any(each.requires_grad for each in inputs))
    return checkpoint(
        lambda _, *inputs: function(*inputs), needs, *inputs, use_reentrant=True, preserve_rng_state=False
    )


def inverse_softplus(value: float) -> float:
    """The number whose softplus is `value`; exact also where that is tiny or large."""
    return value + math.log(-math.expm1(-value))
