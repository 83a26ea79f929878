"""What a generative memory can be asked, the parts of its lower bound, and a bound that carries its kind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from mnemon.core.state import STATIC, Record, State, rank


@dataclass(frozen=True, eq=False)
class Terms(State):
    """The parts of the bound on log p(episode), in nats, with every constant kept.

    joint = sum_t n_t (reconstruction_t - code_kl_t - address_kl_t) - memory_kl - choice_kl, where n_t counts item t
    (its weight; 0 when masked); choice_kl is that of a discrete latent of the whole episode, where there is one.
    On observed vectors, reconstruction is E log p(z|y, memory) and code_kl
    is 0; on stochastic codes without a decoder, reconstruction is 0.

    Shapes: reconstruction, code_kl, address_kl, counts (*B, T); memory_kl, choice_kl (*B)
    """

    reconstruction: Tensor = field(metadata=rank(1))
    code_kl: Tensor = field(metadata=rank(1))
    address_kl: Tensor = field(metadata=rank(1))
    memory_kl: Tensor | None = field(default=None, metadata=rank(0))
    counts: Tensor | None = field(default=None, metadata=rank(1))
    choice_kl: Tensor | None = field(default=None, metadata=rank(0))

    @property
    def conditional(self) -> Tensor:
        """Bound on log p(episode | memory). Shapes: -> (*B)"""
        per_item = self.reconstruction - self.code_kl - self.address_kl
        return (per_item if self.counts is None else self.counts * per_item).sum(-1)

    @property
    def joint(self) -> Tensor:
        """Bound on log p(episode). Shapes: -> (*B)"""
        if self.memory_kl is None:
            raise ValueError(
                "joint: this memory is computed from the episode without a posterior of its own, so it has "
                "no memory_kl and bounds only log p(episode | memory); use .conditional"
            )
        whole = self.conditional - self.memory_kl
        return whole if self.choice_kl is None else whole - self.choice_kl

    @property
    def per_frame(self) -> Tensor:
        """The joint bound divided by the number of items counted. Shapes: -> (*B)"""
        return self.joint / (self.reconstruction.shape[-1] if self.counts is None else self.counts.sum(-1))


@dataclass(frozen=True, eq=False)
class Bound(Record):
    """A lower bound on a log-likelihood, with the kind of bound it is.

    Shapes: value (*B, Q)
    """

    value: Tensor
    kind: Literal["elbo", "iwae"] = field(default="elbo", metadata=STATIC)
    num_samples: int = field(default=1, metadata=STATIC)


class MemoryModel(nn.Module, ABC):
    """A generative memory of observations x (*B, T, *X). *B: any leading batch dimensions, also none."""

    undecayed: tuple[str, ...] = ()
    """Parameters that weight decay leaves alone."""

    @property
    @abstractmethod
    def image_shape(self) -> tuple[int, ...]:
        """*X."""

    @property
    def can_write(self) -> bool:
        """Whether episodes can be written; a learned memory is a parameter, and refuses them."""
        return True

    def use_graphs(self) -> None:
        """Replay on a GPU what a training step launches one by one, where a model can."""

    @abstractmethod
    def write(
        self,
        x: Tensor,
        *,
        prior: Any = None,
        mask: Tensor | None = None,
        weights: Tensor | None = None,
        num_steps: int | None = None,
        generator: torch.Generator | None = None,
    ) -> Any:
        """Infer the memory's state from an episode. Shapes: x (*B, T, *X)"""

    @abstractmethod
    def read(
        self,
        state: Any,
        cue: Tensor,
        *,
        observed: Tensor | None = None,
        steps: int = 1,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Recall cues: the mean image, or samples when given a generator. Unobserved pixels are replaced by the
        current recall at each step. Shapes: (*B, Q, *X) -> (*B, Q, *X)"""

    @abstractmethod
    def sample(self, state: Any, n: int = 1, *, generator: torch.Generator | None = None) -> Tensor:
        """Generate. Shapes: -> (*B, n, *X)"""

    @abstractmethod
    def log_weights(
        self, state: Any, x: Tensor, *, num_samples: int = 1, generator: torch.Generator | None = None
    ) -> Tensor:
        """log p(x, latents | memory) / q(latents). Shapes: (*B, Q, *X) -> (num_samples, *B, Q)"""

    @abstractmethod
    def log_likelihood(
        self, state: Any, x: Tensor, *, num_samples: int = 1, generator: torch.Generator | None = None
    ) -> Bound:
        """Bound on log p(x | memory), item by item. Shapes: (*B, Q, *X) -> (*B, Q)"""

    @abstractmethod
    def terms(
        self,
        x: Tensor,
        *,
        mask: Tensor | None = None,
        write_mask: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Terms:
        """The parts of the bound for training. `write_mask`: write this subset only, score all."""

    def auxiliary(self, x: Tensor, *, mask: Tensor | None = None) -> Tensor | None:
        """What training adds to the bound it maximises, and no bound ever contains; None where there is nothing.

        Shapes: (*B, T, *X) -> (*B)
        """
        return None

    def prior_state(self, batch_shape: tuple[int, ...] = ()) -> Any:
        """The memory before anything was written, as a state: what log p(x) without an episode is asked of."""
        raise ValueError(
            f"prior_state: {type(self).__name__} has no memory before the first write; write an episode first"
        )
