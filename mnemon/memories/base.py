"""What every latent memory is: a prior, an E step (address), an M step (update) and a bound."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from mnemon.core.checks import check_mean, check_positive, check_size, check_steps
from mnemon.core.episode import Codes
from mnemon.core.linalg import as_scalar
from mnemon.core.protocol import Bound, Terms
from mnemon.core.state import State
from mnemon.memories.dispatch import run_sweeps
from mnemon.memories.fitting import check_address, fit_state, read_frames
from mnemon.memories.frames import Frames
from mnemon.memories.graphs import WriteGraphs
from mnemon.memories.records import Explanation, Written
from mnemon.memories.sweeps import Sweeps, ascend


@dataclass(frozen=True, eq=False)
class LatentMemory(ABC):
    """A conjugate memory over codes of size `code_dim`. Hyperparameters only: its states hold what it learns.

    Variances are numbers, or scalar tensors when they are to be learned. The public calls check their input
    and are the same for every memory; what a memory does differently stands in the hooks below them.
    """

    code_dim: int
    num_slots: int
    noise_var: float | Tensor = 1.0
    slot_var: float | Tensor = 1.0
    slot_mean: float | Tensor = 0.0

    state_class: ClassVar[type[State]]
    address_class: ClassVar[type[State]]
    default_steps: ClassVar[int]

    def __post_init__(self) -> None:
        check_size("code_dim", self.code_dim)
        check_size("num_slots", self.num_slots)
        check_positive("noise_var", self.noise_var)
        check_positive("slot_var", self.slot_var)
        check_mean("slot_mean", self.slot_mean, (self.num_slots, self.code_dim))

    def replace(self, **changes: Any) -> Self:
        """The same memory with other hyperparameters."""
        return replace(self, **changes)

    def prior(
        self,
        batch_shape: tuple[int, ...] = (),
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | None = None,
    ) -> Any:
        """p(memory) as a state."""
        return self._prior(dtype, device).expand(batch_shape)

    def write(
        self,
        codes: Tensor | Codes,
        *,
        prior: State | None = None,
        init: str | State | None = None,
        mask: Tensor | None = None,
        weights: Tensor | None = None,
        num_steps: int | None = None,
        tol: float | None = None,
        num_clusters: int | None = None,
        return_trace: bool = False,
        chunk_size: int | None = None,
        graphs: WriteGraphs | None = None,
        generator: torch.Generator | None = None,
    ) -> Written:
        """Infer q(memory) from an episode by sweeps of address and update.

        codes         (*B, T, C): a Tensor of observed vectors, or `Codes`
        prior         a state to write on into; it takes the place of p(memory)
        init          where inference starts: a state, or the name of a start ("prior", "random", ...)
        mask          (*B, T), True = present
        weights       (*B, T), multiplicities: 2 is the item twice
        num_steps     sweeps; with `tol`, the most there may be
        tol           stop when a sweep gains less than this, in nats per frame
        num_clusters  clusters of this memory (mixture and tree), in place of the number it was made with
        return_trace  keep the joint bound after each sweep
        chunk_size    go through the items in pieces of this size: bounded memory, no per-item address
        graphs        replay the sweeps as CUDA graphs kept there (training on a GPU)
        """
        steps = self.default_steps if num_steps is None else num_steps
        check_steps(steps, tol, chunk_size)
        self._check_write(steps, chunk_size)
        frames = Frames.gather("write", codes, self.code_dim, mask, weights)
        if prior is not None:
            prior = fit_state(self, "write: prior", prior, frames)
        if init is not None and not isinstance(init, str):
            init = fit_state(self, "write: init", init, frames)
        self = self._sized_for(num_clusters, prior, init)
        base = self._prior_like(frames) if prior is None else prior
        if isinstance(init, State):
            start = init
        else:
            start = self._start(init or self._default_start(prior), base, frames, generator)
        start, fresh = start.expand(frames.batch_shape), prior is None

        def sweep(frames: Frames, base: Any, start: Any) -> tuple[Any, Any, Tensor | None]:
            sweeps = self._sweeps(frames, base, start, chunk_size, fresh)
            carry, trace = ascend(sweeps, frames.total, num_steps=steps, tol=tol, return_trace=return_trace)
            return *sweeps.finish(carry), trace

        if tol is not None:  # how many sweeps there are depends on all episodes together
            state, address, trace = sweep(frames, base, start)
        else:
            key = (steps, return_trace, chunk_size, fresh)
            state, address, trace = run_sweeps(sweep, self, frames, base, start, graphs, key)
        return Written(state, address, prior, frames.counts, trace, chunk_size)

    def address(self, state: Any, codes: Tensor | Codes) -> Any:
        """E step: q(y_t) of every code under a state. Shapes: codes (*B, T, C)"""
        state, frames = read_frames(self, "address", state, codes)
        return self._address(state, frames.mean)

    def update(
        self,
        address: Any,
        codes: Tensor | Codes,
        *,
        prior: Any = None,
        mask: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Any:
        """M step: q(memory) given the addresses of all codes. Shapes: codes (*B, T, C)"""
        frames = Frames.gather("update", codes, self.code_dim, mask, weights)
        check_address(self, "update", address, frames)
        self = self._sized_for(None, address)
        prior = self._prior_like(frames) if prior is None else fit_state(self, "update: prior", prior, frames)
        return self._update(address, frames, prior)

    def terms(
        self,
        codes: Tensor | Codes,
        written: Written,
        *,
        draw: Any = None,
        generator: torch.Generator | None = None,
    ) -> Terms:
        """The four parts of the bound, per item, with every constant kept.

        After a write in chunks there are no addresses to go by: the codes are addressed anew, chunk by chunk,
        under the final state, which can only raise the bound.

        draw  `memory.draw(written.state)`: E|z - M'w - b|^2 is then not the closed form but its estimate from
              that draw and one of every w_t. Cluster and slot assignments are summed, so that gradients reach them.

        Shapes: codes (*B, T, C)
        """
        if not isinstance(written, Written):
            raise ValueError(f"terms: expected what write returned, got a {type(written).__name__}")
        present = None if written.counts is None else written.counts > 0
        frames = Frames.gather("terms", codes, self.code_dim, present, written.counts)
        state = fit_state(self, "terms: state", written.state, frames)
        self = self._sized_for(None, state)
        drawn = None if draw is None else fit_state(self, "terms: draw", draw, frames)

        def misfit(codes: Tensor, address: Any) -> tuple[Tensor, Tensor]:
            square, address_kl = self._misfit(state, codes, address)
            return square if drawn is None else self._drawn_square(drawn, codes, address, generator), address_kl

        if written.address is not None:
            check_address(self, "terms", written.address, frames)
            square, address_kl = misfit(frames.mean, written.address)
        else:
            pieces = [chunk.mean for chunk in frames.chunks(written.chunk_size)]
            parts = [misfit(piece, self._address(state, piece)) for piece in pieces]
            square, address_kl = (torch.cat(part, dim=-1) for part in zip(*parts, strict=True))
        fit = frames.constant(self.noise_var) - 0.5 * square / self.noise_var
        prior = self._prior_like(frames) if written.prior is None else written.prior
        return frames.terms(fit, address_kl, self._memory_kl(state, prior))

    def recall(self, state: State, codes: Tensor | Codes, *, observed: Tensor | None = None, steps: int = 1) -> Tensor:
        """Mean of each code as the memory explains it: E[M'w + b] with w inferred from the cue.

        observed  broadcasts to the cue, True = present; absent entries start at the memory's mean and are
                  replaced by the current recall at each step
        steps     number of reads, each cued by the one before it

        Shapes: (*B, Q, C) -> (*B, Q, C)
        """
        check_size("steps", steps)
        state, frames = read_frames(self, "recall", state, codes, observed)
        cue = frames.mean
        if observed is None:
            for _ in range(steps):
                cue = self._expected(state, self._address(state, cue))
            return cue
        observed = observed.bool()
        current = self._mean_code(state)[..., None, :].expand(cue.shape)
        for _ in range(steps):
            current = self._expected(state, self._address(state, torch.where(observed, cue, current)))
        return current

    def sample(self, state: Any, n: int = 1, *, noise: bool = True, generator: torch.Generator | None = None) -> Tensor:
        """Draw codes from the memory, each with its own draw of q(memory). `noise=False`: without code noise.

        Shapes: -> (*B, n, C)
        """
        check_size("n", n)
        self._check_state("sample", state)
        return self._sample(state, n, self.noise_var if noise else 0.0, generator)

    def draw(self, state: Any, *, generator: torch.Generator | None = None) -> Any:
        """One draw of q(memory) per episode, as a state without uncertainty (its KL is infinite)."""
        self._check_state("draw", state)
        return self._draw(state, generator)

    def explain(self, state: Any, codes: Tensor | Codes, *, generator: torch.Generator | None = None) -> Explanation:
        """Draw q(y_t) of every code: the pieces of an importance-weighted bound. Shapes: codes (*B, T, C)"""
        state, frames = read_frames(self, "explain", state, codes)
        return self._explain(state, frames.mean, generator)

    def log_likelihood(self, state: Any, codes: Tensor | Codes) -> Bound:
        """Bound on log p(z_t | memory) with the addresses inferred anew. Shapes: (*B, Q, C) -> (*B, Q)"""
        state, frames = read_frames(self, "log_likelihood", state, codes)
        return Bound(self._scores(state, frames.mean) + frames.constant(self.noise_var))

    def log_density(self, state: Any, codes: Tensor) -> Tensor:
        """Exact log p(z_t | posterior mean of the memory), addresses summed out. Shapes: (*B, Q, C) -> (*B, Q)"""
        if isinstance(codes, Codes):
            raise ValueError(
                "log_density: expected observed vectors, got Codes; pass codes.mean, or use log_likelihood"
            )
        state, frames = read_frames(self, "log_density", state, codes)
        return self._density_scores(state, frames.mean) + frames.constant(self.noise_var)

    # -- hooks: what each memory defines -----------------------------------------------------------

    @abstractmethod
    def _prior(self, dtype: torch.dtype | None, device: torch.device | None) -> Any:
        """p(memory) of one episode."""

    @abstractmethod
    def _start(self, init: str, prior: Any, frames: Frames, generator: torch.Generator | None) -> Any:
        """The state that a named start stands for."""

    @abstractmethod
    def _sweeps(self, frames: Frames, prior: Any, start: Any, chunk_size: int | None, fresh: bool) -> Sweeps:
        """How this memory sweeps over these frames; `fresh`: the prior is the memory's own."""

    @abstractmethod
    def _address(self, state: Any, codes: Tensor) -> Any: ...

    @abstractmethod
    def _update(self, address: Any, frames: Frames, prior: Any) -> Any: ...

    @abstractmethod
    def _misfit(self, state: Any, codes: Tensor, address: Any) -> tuple[Tensor, Tensor]:
        """E|z - M'w - b|^2 without the variance of z, and the KL of the address. Shapes: -> (*B, T) both"""

    @abstractmethod
    def _memory_kl(self, state: Any, prior: Any) -> Tensor | None:
        """KL(q(memory) || p(memory)); None of a memory without a posterior. Shapes: -> (*B)"""

    @abstractmethod
    def _sample(self, state: Any, n: int, noise_var: float | Tensor, generator: torch.Generator | None) -> Tensor: ...

    @abstractmethod
    def _explain(self, state: Any, codes: Tensor, generator: torch.Generator | None) -> Explanation: ...

    @abstractmethod
    def _draw(self, state: Any, generator: torch.Generator | None) -> Any: ...

    @abstractmethod
    def _drawn_square(self, drawn: Any, codes: Tensor, address: Any, generator: torch.Generator | None) -> Tensor:
        """|z - M'w - b|^2 of a drawn memory, w drawn from the addresses. Shapes: -> (*B, T)"""

    @abstractmethod
    def _expected(self, state: Any, address: Any) -> Tensor:
        """E[M'w + b] under q(memory) and given addresses. Shapes: -> (*B, T, C)"""

    @abstractmethod
    def _scores(self, state: Any, codes: Tensor) -> Tensor:
        """The bound on log p(z | memory) without what `Frames.constant` holds. Shapes: -> (*B, T)"""

    @abstractmethod
    def _density_scores(self, state: Any, codes: Tensor) -> Tensor:
        """log p(z | mean of the memory) without what `Frames.constant` holds. Shapes: -> (*B, T)"""

    @abstractmethod
    def _mean_code(self, state: Any) -> Tensor:
        """Mean of the codes that the memory generates. Shapes: -> (*B, C)"""

    @abstractmethod
    def _check_state(self, where: str, state: Any) -> None:
        """Refuse a state of another memory."""

    def _check_write(self, num_steps: int, chunk_size: int | None) -> None:
        """Refuse what this memory cannot do, by name."""
        return

    def _default_start(self, prior: State | None) -> str:
        """A given prior is where inference starts: it already tells the slots apart."""
        return "random" if prior is None else "prior"

    def _sized_for(self, num_clusters: int | None, *given: Any) -> Self:
        """This memory with the number of clusters that was asked for, or that the given states have."""
        if num_clusters is not None:
            raise ValueError(f"num_clusters: {type(self).__name__} has no clusters; use MixtureMemory or TreeMemory")
        return self

    # -- shared pieces -----------------------------------------------------------------------------

    def _prior_like(self, frames: Frames) -> Any:
        return self._prior(frames.mean.dtype, frames.mean.device)

    def _mean_of_slots(self, dtype: torch.dtype | None, device: torch.device | None) -> Tensor:
        """R0 as a tensor. Shapes: -> (K, C)"""
        mean = as_scalar(self.slot_mean, dtype=dtype, device=device)
        return mean.expand(self.num_slots, self.code_dim)
