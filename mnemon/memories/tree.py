"""The tree memory: the code is cut into segments, each with a mixture memory of its own.

VBM, theorem 5 (C.5). Assignments of the segments are independent in the model; to generate, whole assignment
sequences are drawn as often as they occurred when writing (the state counts them).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from mnemon.core.checks import check_size
from mnemon.core.episode import Codes
from mnemon.core.protocol import Bound, Terms
from mnemon.core.state import State, rank
from mnemon.memories import linear_gaussian as lg
from mnemon.memories.base import LatentMemory, Written, check_event_shapes
from mnemon.memories.frames import Frames
from mnemon.memories.mixture import MixtureAddress, MixtureMemory, MixtureState, agreed_clusters
from mnemon.memories.seeding import draw_index

MAX_SEQUENCES = 1_000_000


@dataclass(frozen=True, eq=False)
class TreeState(lg.SlotState):
    """A mixture state per segment, and how often each sequence of assignments occurred.

    Sequence (h_1, ..., h_G) is number h_1 H^(G-1) + ... + h_G, so prefix counts are sums over blocks.

    Shapes: R (*B, G, H, K, C/G), U_chol (*B, G, H, K, K), mu_b (*B, G, H, C/G), v_b (*B, G, H), counts (*B, H^G)
    """

    R: Tensor = field(metadata=rank(4))
    U_chol: Tensor = field(metadata=rank(4))
    mu_b: Tensor = field(metadata=rank(3))
    v_b: Tensor = field(metadata=rank(2))
    counts: Tensor = field(metadata=rank(1))

    @classmethod
    def from_moments(  # type: ignore[override]
        cls, *, R: Tensor, U: Tensor, mu_b: Tensor, v_b: Tensor, counts: Tensor | None = None
    ) -> Self:
        """A state from means and covariances; without counts, all sequences are equally likely."""
        G, H = R.shape[-4:-2]
        if counts is None:
            counts = torch.ones((*R.shape[:-4], H**G), dtype=R.dtype, device=R.device)
        return cls.from_slots(lg.Slots(R, U, mu_b, v_b), counts=counts)

    @property
    def segments(self) -> MixtureState:
        """The same as a mixture state with batch (*B, G)."""
        return MixtureState(self.R, self.U_chol, self.mu_b, self.v_b)


@dataclass(frozen=True, eq=False)
class TreeMemory(LatentMemory):
    """`num_segments` mixture memories on consecutive pieces of the code. `slot_mean` is a number here."""

    num_segments: int = field(default=2, kw_only=True)
    num_clusters: int = field(default=10, kw_only=True)
    location_var: float | Tensor = field(default=1.0, kw_only=True)
    location_mean: float | Tensor = field(default=0.0, kw_only=True)

    state_class: ClassVar[type[State]] = TreeState
    default_steps: ClassVar[int] = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        check_size("num_segments", self.num_segments)
        if self.code_dim % self.num_segments:
            raise ValueError(f"num_segments: expected a divisor of code_dim {self.code_dim}, got {self.num_segments}")
        if self.num_clusters**self.num_segments > MAX_SEQUENCES:
            raise ValueError(
                f"TreeMemory: expected num_clusters^num_segments <= {MAX_SEQUENCES}, got "
                f"{self.num_clusters}^{self.num_segments}; use fewer segments or clusters"
            )
        _ = self._segment_memory  # checks the rest

    @property
    def _segment_memory(self) -> MixtureMemory:
        if isinstance(self.slot_mean, Tensor) and self.slot_mean.ndim:
            raise ValueError("slot_mean: expected a number (it holds for every segment), got a tensor")
        return MixtureMemory(
            self.code_dim // self.num_segments,
            self.num_slots,
            self.noise_var,
            self.slot_var,
            self.slot_mean,
            num_clusters=self.num_clusters,
            location_var=self.location_var,
            location_mean=self.location_mean,
        )

    def prior(
        self,
        batch_shape: tuple[int, ...] = (),
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | None = None,
    ) -> TreeState:
        """The mixture's prior for every segment, no sequence counted yet."""
        segments = self._segment_memory.prior((*batch_shape, self.num_segments), dtype=dtype, device=device)
        counts = torch.zeros(self.num_clusters**self.num_segments, dtype=dtype, device=device)
        return TreeState(*_fields(segments), counts.expand(*batch_shape, *counts.shape))

    def write(
        self,
        codes: Tensor | Codes,
        *,
        prior: Any = None,
        init: Any = None,
        mask: Tensor | None = None,
        weights: Tensor | None = None,
        num_steps: int | None = None,
        tol: float | None = None,
        num_clusters: int | None = None,
        return_trace: bool = False,
        chunk_size: int | None = None,
        generator: torch.Generator | None = None,
    ) -> Written:
        """As every memory's `write`; each segment is written on its own, then the sequences are counted."""
        frames = Frames.gather("write", codes, self.code_dim, mask, weights)
        for name, state in (("prior", prior), ("init", init)):
            if state is not None and not isinstance(state, str):
                self._check_state(f"write: {name}", state)
        self = self._sized_for(num_clusters, prior, init)
        written = self._segment_memory.write(
            self._split(codes),
            prior=None if prior is None else prior.segments,
            init=init.segments if isinstance(init, TreeState) else init,
            mask=None if mask is None else self._per_segment(mask),
            weights=None if weights is None else self._per_segment(weights),
            num_steps=num_steps,
            tol=tol,
            return_trace=return_trace,
            chunk_size=chunk_size,
            generator=generator,
        )
        counts = self._count(written.state, frames, chunk_size)
        state = TreeState(*_fields(written.state), counts if prior is None else counts + prior.counts)
        trace = None if written.trace is None else written.trace.sum(-1)
        return Written(state, written.address, prior, frames.counts, trace)

    def _count(self, segments: MixtureState, frames: Frames, chunk_size: int | None) -> Tensor:
        """How often the most likely assignments, under the final state, form each sequence. Shapes: -> (*B, H^G)"""
        H, G = segments.R.shape[-3], self.num_segments
        place = H ** torch.arange(G - 1, -1, -1, device=segments.R.device)
        counts = torch.zeros((*frames.batch_shape, H**G), dtype=segments.R.dtype, device=segments.R.device)
        memory = self._segment_memory
        for chunk in frames.chunks(chunk_size):
            _, scores = lg.address(segments.slots, self._split(chunk.mean.detach()), memory.noise_var)
            sequence = (scores.argmax(-1) * place[:, None]).sum(-2)
            one = torch.ones(sequence.shape, dtype=counts.dtype, device=counts.device)
            counts = counts.scatter_add(-1, sequence, chunk.count(one))
        return counts.detach()

    def address(self, state: TreeState, codes: Tensor | Codes) -> MixtureAddress:
        """q(s, w) per segment: a mixture address with batch (*B, G). Shapes: codes (*B, T, C)"""
        frames = self._read_frames("address", state, codes)
        return self._segment_memory.address(state.segments, self._split(frames.mean))

    def update(
        self,
        address: MixtureAddress,
        codes: Tensor | Codes,
        *,
        prior: TreeState | None = None,
        mask: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> TreeState:
        """q(b), then q(M) of every segment's clusters, and the sequences counted. Shapes: codes (*B, T, C)"""
        self = self._sized_for(address.log_theta.shape[-1])
        frames = Frames.gather("update", codes, self.code_dim, mask, weights)
        segments = self._segment_memory.update(
            address,
            self._split(codes),
            prior=None if prior is None else prior.segments,
            mask=None if mask is None else self._per_segment(mask),
            weights=None if weights is None else self._per_segment(weights),
        )
        counts = self._count(segments, frames, None)
        return TreeState(*_fields(segments), counts if prior is None else counts + prior.counts)

    def terms(self, codes: Tensor | Codes, written: Written) -> Terms:
        self = self._sized_for(None, written.state)
        segment = Written(
            written.state.segments,
            written.address,
            None if written.prior is None else written.prior.segments,
            None if written.counts is None else self._per_segment(written.counts),
        )
        parts = self._segment_memory.terms(self._split(codes), segment)
        items = {name: getattr(parts, name).sum(-2) for name in ("reconstruction", "code_kl", "address_kl")}
        return Terms(**items, memory_kl=(parts.conditional - parts.joint).sum(-1), counts=written.counts)

    def sample(
        self, state: TreeState, n: int = 1, *, noise: bool = True, generator: torch.Generator | None = None
    ) -> Tensor:
        """As in every memory, but with assignment sequences drawn by their counts (uniform if none)."""
        check_size("n", n)
        self._check_state("sample", state)
        H, G = state.R.shape[-3], self.num_segments
        uniform = torch.rand((*state.batch_shape, n), dtype=state.R.dtype, device=state.R.device, generator=generator)
        total = state.counts.sum(-1, keepdim=True)
        sequence = draw_index(torch.where(total > 0, state.counts, 1.0), uniform)
        place = H ** torch.arange(G - 1, -1, -1, device=sequence.device)
        cluster = (sequence[..., None, :] // place[:, None]) % H
        noise_var = self.noise_var if noise else 0.0
        return self._join(lg.sample_codes(state.segments.slots, cluster, noise_var, generator))

    def log_likelihood(self, state: TreeState, codes: Tensor | Codes) -> Bound:
        """Under the model, whose segments are independent (the counted sequences serve generation only)."""
        self._read_frames("log_likelihood", state, codes)
        bound = self._segment_memory.log_likelihood(state.segments, self._split(codes))
        return Bound(bound.value.sum(-2))

    def log_density(self, state: TreeState, codes: Tensor) -> Tensor:
        self._read_frames("log_density", state, codes)
        return self._segment_memory.log_density(state.segments, self._split(codes)).sum(-2)

    def _split(self, codes: Any) -> Any:
        """Shapes: (*B, T, C) -> (*B, G, T, C/G)"""
        if isinstance(codes, Codes):
            return Codes(self._split(codes.mean), self._split(codes.std.expand(codes.mean.shape)))
        return codes.unflatten(-1, (self.num_segments, -1)).movedim(-2, -3)

    def _join(self, segments: Tensor) -> Tensor:
        """Shapes: (*B, G, T, C/G) -> (*B, T, C)"""
        return segments.movedim(-3, -2).flatten(-2)

    def _per_segment(self, items: Tensor) -> Tensor:
        """Shapes: (*B, T) -> (*B, G, T)"""
        return items[..., None, :].expand(*items.shape[:-1], self.num_segments, items.shape[-1])

    def _sized_for(self, num_clusters: int | None, *states: Any) -> Self:
        wanted = agreed_clusters(num_clusters, *states)
        return self if wanted in (None, self.num_clusters) else self.replace(num_clusters=wanted)

    def _recall_once(self, state: TreeState, codes: Tensor) -> Tensor:
        return self._join(self._segment_memory._recall_once(state.segments, self._split(codes)))

    def _mean_code(self, state: TreeState) -> Tensor:
        return self._segment_memory._mean_code(state.segments).flatten(-2)

    def _check_state(self, where: str, state: Any) -> None:
        """Any number of clusters will do: it belongs to the state."""
        H = state.R.shape[-3] if isinstance(state, TreeState) and state.R.ndim > 3 else self.num_clusters
        G, K, c = self.num_segments, self.num_slots, self.code_dim // self.num_segments
        shapes = {"R": (G, H, K, c), "U_chol": (G, H, K, K), "mu_b": (G, H, c), "v_b": (G, H), "counts": (H**G,)}
        check_event_shapes(where, state, TreeState, shapes)


def _fields(segments: MixtureState) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return segments.R, segments.U_chol, segments.mu_b, segments.v_b
