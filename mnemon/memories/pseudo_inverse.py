"""The generative pseudo-inverse memory: two least-squares fits write it, a third one reads it.

    write:  W0 = Z M0^+,  M = W0^+ Z          read:  w = z M^+,  q(w) = N(w, address_var I),  z ~ N(M'w, s2 I)

M0 (K, C) is the memory's `slot_mean`, fixed or learned. M is computed from the episode and has no posterior of its
own, so there is a bound on log p(episode | memory) only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn

import torch
from torch import Tensor

from mnemon.core.checks import check_positive, check_size
from mnemon.core.episode import Codes
from mnemon.core.linalg import as_scalar
from mnemon.core.protocol import Bound
from mnemon.core.state import State, rank
from mnemon.distributions.gaussian import standard_normal_like
from mnemon.memories import linear_gaussian as lg
from mnemon.memories.base import LatentMemory
from mnemon.memories.fitting import check_event_shapes
from mnemon.memories.frames import Frames
from mnemon.memories.graphs import WriteGraphs
from mnemon.memories.records import Explanation, Written
from mnemon.memories.sweeps import Sweeps


def pseudo_inverse(A: Tensor, num_steps: int | None = 7) -> Tensor:
    """A^+, by num_steps of A_{k+1} = 2 A_k - A_k A A_k from A_0 = alpha A'; None: exactly, by singular values.

    A singular value s of A is inverted up to the share (1 - alpha s^2)^(2^num_steps), so few steps damp what is small
    and keep gradients bounded; many (in float32, above 20 or so) double the rounding error of a matrix without full
    rank with each step. Differs from paper: alpha = 1 / |A A'|_F, which always converges and needs no tuning.

    Shapes: (*B, m, n) -> (*B, n, m)

    Ben-Israel and Cohen, 1966.
    """
    if num_steps is None:
        return torch.linalg.pinv(A)
    gram = A @ A.mT if A.shape[-2] <= A.shape[-1] else A.mT @ A
    size = torch.linalg.matrix_norm(gram, keepdim=True)
    inverse = A.mT / size.clamp(min=torch.finfo(A.dtype).tiny ** 0.5)
    for _ in range(num_steps):
        inverse = 2 * inverse - inverse @ A @ inverse
    return inverse


@dataclass(frozen=True, eq=False)
class PseudoInverseState(State):
    """The memory M itself. Shapes: R (*B, K, C)"""

    R: Tensor = field(metadata=rank(2))


@dataclass(frozen=True, eq=False)
class PseudoInverseAddress(State):
    """q(w_t) = N(w_t, address_var I). Shapes: w (*B, T, K)"""

    w: Tensor = field(metadata=rank(2))


@dataclass(frozen=True, eq=False)
class PseudoInverseMemory(LatentMemory):
    """Pseudo-inverse memory. `slot_mean` is M0, a tensor (num_slots, code_dim) of full rank; there is no `slot_var`.

    address_var    the variance of q(w), which no inference chooses
    input_var      of the noise on codes that are written, and on cues of `write` and `explain`; every element has its
                   own. The noise is part of q, which stays a bound with it
    inverse_steps  of the pseudo-inverses; None: exact
    shared_noise   one draw for all addresses of an episode, in place of one per item and slot. As the published code
                   has it, and NO BOUND: w then lies on a line, where the density that address_kl assumes does not.
                   `terms` gives such numbers for comparison, what is called a bound is refused
    """

    address_var: float | Tensor = field(default=0.3, kw_only=True)
    input_var: float = field(default=0.0, kw_only=True)
    inverse_steps: int | None = field(default=7, kw_only=True)
    shared_noise: bool = field(default=False, kw_only=True)

    state_class: ClassVar[type[State]] = PseudoInverseState
    address_class: ClassVar[type[State]] = PseudoInverseAddress
    default_steps: ClassVar[int] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("address_var", self.address_var)
        if not 0 <= self.input_var < float("inf"):
            raise ValueError(f"input_var: expected a variance of at least 0, got {self.input_var}")
        if self.inverse_steps is not None:
            check_size("inverse_steps", self.inverse_steps)
        if isinstance(self.slot_var, Tensor) or self.slot_var != 1.0:
            raise ValueError(
                f"slot_var: a pseudo-inverse memory has no prior variance, got {self.slot_var}; leave it out"
            )

    @property
    def is_bound(self) -> bool:
        """Whether `terms.conditional` bounds log p(episode | memory)."""
        return not self.shared_noise

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
        """M = (Z M0^+)^+ Z, and the addresses of the codes in M. Shapes: codes (*B, T, C)

        mask, weights and generator as in every memory. The write is one fit of all items at once: there is nothing to
        sweep (init, num_steps above 1, tol, return_trace), to write on into (prior) or to cut (chunk_size).
        """
        _refuse_prior("write", prior)
        asked = {"init": init, "tol": tol, "return_trace": return_trace or None, "chunk_size": chunk_size}
        asked["num_steps"] = None if num_steps == 1 else num_steps
        for name, value in asked.items():
            if value is not None:
                raise ValueError(
                    f"{name}: a pseudo-inverse memory is one fit of all items, without sweeps; leave {name} out"
                )
        self._sized_for(num_clusters)
        frames = Frames.gather("write", codes, self.code_dim, mask, weights)
        noisy = self._with_noise(frames.mean, generator)
        w = noisy @ self._inverse(self._slots("write", frames.mean))
        state = PseudoInverseState(self._fit(w, noisy, frames))
        return Written(state, self._address(state, self._with_noise(frames.mean, generator)), counts=frames.counts)

    def update(
        self,
        address: Any,
        codes: Tensor | Codes,
        *,
        prior: Any = None,
        mask: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Any:
        """M = W^+ Z, the least-squares memory of given addresses. Shapes: codes (*B, T, C)"""
        _refuse_prior("update", prior)
        return super().update(address, codes, mask=mask, weights=weights)

    def draw_weights(self, address: PseudoInverseAddress, *, generator: torch.Generator | None = None) -> Tensor:
        """w_t ~ N(w_t, address_var I), or with `shared_noise` all moved by one draw. Shapes: -> (*B, T, K)"""
        w = address.w
        shape = torch.Size((*address.batch_shape, 1, 1)) if self.shared_noise else w.shape
        return w + self._address_std(w) * standard_normal_like(w, shape, generator)

    def explain(self, state: Any, codes: Tensor | Codes, *, generator: torch.Generator | None = None) -> Explanation:
        self._need_bound("explain")
        return super().explain(state, codes, generator=generator)

    def log_likelihood(self, state: Any, codes: Tensor | Codes) -> Bound:
        self._need_bound("log_likelihood")
        return super().log_likelihood(state, codes)

    # -- hooks -------------------------------------------------------------------------------------

    def _prior(self, dtype: torch.dtype | None, device: torch.device | None) -> PseudoInverseState:
        """M0: what is there before the first write."""
        return PseudoInverseState(self._mean_of_slots(dtype, device))

    def _address(self, state: PseudoInverseState, codes: Tensor) -> PseudoInverseAddress:
        return PseudoInverseAddress(codes @ self._inverse(state.R))

    def _update(self, address: PseudoInverseAddress, frames: Frames, prior: PseudoInverseState) -> PseudoInverseState:
        return PseudoInverseState(self._fit(address.w, frames.mean, frames))

    def _misfit(self, state: PseudoInverseState, codes: Tensor, address: PseudoInverseAddress) -> tuple[Tensor, Tensor]:
        """|z - M'w|^2 + address_var tr M M'; one draw for all slots moves by M'1 in place of every row."""
        w, variance = address.w, self._address_std(address.w).square()
        moved = state.R.sum(-2).square().sum(-1) if self.shared_noise else state.R.square().sum((-2, -1))
        square = (codes - w @ state.R).square().sum(-1) + variance * moved[..., None]
        return square, 0.5 * (w.square().sum(-1) + self.num_slots * (variance - 1 - variance.log()))

    def _memory_kl(self, state: PseudoInverseState, prior: PseudoInverseState) -> None:
        return None

    def _sample(
        self, state: PseudoInverseState, n: int, noise_var: float | Tensor, generator: torch.Generator | None
    ) -> Tensor:
        R = state.R
        w = standard_normal_like(R, torch.Size((*state.batch_shape, n, self.num_slots)), generator)
        codes = w @ R
        std = as_scalar(noise_var, dtype=R.dtype, device=R.device).sqrt()
        return codes + std * standard_normal_like(codes, codes.shape, generator)

    def _explain(self, state: PseudoInverseState, codes: Tensor, generator: torch.Generator | None) -> Explanation:
        address = self._address(state, self._with_noise(codes, generator))
        w, std = self.draw_weights(address, generator=generator), self._address_std(codes)
        noise = (w - address.w) / std
        log_ratio = 0.5 * (noise.square() - w.square()).sum(-1) + self.num_slots * std.log()
        variance = as_scalar(self.noise_var, dtype=codes.dtype, device=codes.device)
        return Explanation(w @ state.R, variance.expand(*codes.shape[:-1], 1), log_ratio)

    def _draw(self, state: PseudoInverseState, generator: torch.Generator | None) -> PseudoInverseState:
        return state

    def _drawn_square(
        self,
        drawn: PseudoInverseState,
        codes: Tensor,
        address: PseudoInverseAddress,
        generator: torch.Generator | None,
    ) -> Tensor:
        return (codes - self.draw_weights(address, generator=generator) @ drawn.R).square().sum(-1)

    def _expected(self, state: PseudoInverseState, address: PseudoInverseAddress) -> Tensor:
        return address.w @ state.R

    def _scores(self, state: PseudoInverseState, codes: Tensor) -> Tensor:
        square, address_kl = self._misfit(state, codes, self._address(state, codes))
        return -0.5 * square / self.noise_var - address_kl

    def _density_scores(self, state: PseudoInverseState, codes: Tensor) -> Tensor:
        R = state.R.unsqueeze(-3)
        certain = lg.Slots(R, R.new_zeros(*R.shape[:-1], R.shape[-2]))
        return lg.log_density(certain, codes, self.noise_var)[..., 0]

    def _mean_code(self, state: PseudoInverseState) -> Tensor:
        return torch.zeros_like(state.R[..., 0, :])

    def _check_state(self, where: str, state: Any) -> None:
        check_event_shapes(where, state, PseudoInverseState, {"R": (self.num_slots, self.code_dim)})

    def _start(self, init: str, prior: Any, frames: Frames, generator: torch.Generator | None) -> NoReturn:
        raise ValueError("init: a pseudo-inverse memory is computed at once and starts nowhere; leave init out")

    def _sweeps(self, frames: Frames, prior: Any, start: Any, chunk_size: int | None, fresh: bool) -> Sweeps:
        raise ValueError("sweeps: a pseudo-inverse memory is computed at once; call write")

    # -- pieces ------------------------------------------------------------------------------------

    def _inverse(self, A: Tensor) -> Tensor:
        return pseudo_inverse(A, self.inverse_steps)

    def _fit(self, w: Tensor, codes: Tensor, frames: Frames) -> Tensor:
        """The M of least norm among those of least sum_t n_t |z_t - M'w_t|^2. Shapes: (*B, T, K) -> (*B, K, C)"""
        if frames.counts is None:
            return self._inverse(w) @ codes
        root = frames.counts.sqrt()[..., None]
        return self._inverse(root * w) @ (root * codes)

    def _with_noise(self, codes: Tensor, generator: torch.Generator | None) -> Tensor:
        if not self.input_var:
            return codes
        return codes + self.input_var**0.5 * standard_normal_like(codes, codes.shape, generator)

    def _address_std(self, like: Tensor) -> Tensor:
        return as_scalar(self.address_var, dtype=like.dtype, device=like.device).sqrt()

    def _slots(self, where: str, like: Tensor) -> Tensor:
        """M0. Shapes: -> (K, C)"""
        if not isinstance(self.slot_mean, Tensor) or self.slot_mean.ndim == 0:
            raise ValueError(
                f"{where}: expected slot_mean as a tensor ({self.num_slots}, {self.code_dim}) of full rank, got "
                f"{self.slot_mean}; slots that are all alike cannot tell codes apart: draw them with torch.randn"
            )
        return self._mean_of_slots(like.dtype, like.device)

    def _need_bound(self, where: str) -> None:
        if not self.is_bound:
            raise ValueError(
                f"{where}: addresses that share their noise have no density, so this would be no bound; use "
                "replace(shared_noise=False), or take the numbers of terms and say that they are no bound"
            )


def _refuse_prior(where: str, prior: Any) -> None:
    if prior is not None:
        raise ValueError(
            f"{where}: a pseudo-inverse memory cannot be written on into: it is one fit of all items, and keeps no "
            "counts of those before; leave prior out and write all items together"
        )
