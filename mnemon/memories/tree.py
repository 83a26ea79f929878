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
from mnemon.core.state import Record, State, rank
from mnemon.memories import linear_gaussian as lg
from mnemon.memories.base import LatentMemory
from mnemon.memories.draws import draw_slots
from mnemon.memories.fitting import check_event_shapes
from mnemon.memories.frames import Frames
from mnemon.memories.mixture import MixtureAddress, MixtureMemory, MixtureState, agreed_clusters
from mnemon.memories.records import Explanation
from mnemon.memories.seeding import draw_index
from mnemon.memories.sweeps import ItemSweeps, Sweeps

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
        segments = MixtureState.from_moments(R=R, U=U, mu_b=mu_b, v_b=v_b)
        if counts is None:
            counts = torch.ones((*segments.batch_shape[:-1], H**G), dtype=R.dtype, device=R.device)
        return cls(*_fields(segments), counts)

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
    address_class: ClassVar[type[State]] = MixtureAddress
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
        for name in ("slot_mean", "location_mean"):
            if isinstance(getattr(self, name), Tensor) and getattr(self, name).ndim:
                raise ValueError(f"{name}: expected a number (it holds for every segment), got a tensor")
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

    def _prior(self, dtype: torch.dtype | None, device: torch.device | None) -> TreeState:
        """The mixture's prior for every segment, no sequence counted yet."""
        segments = self._segment_memory._prior(dtype, device).expand((self.num_segments,))
        counts = torch.zeros(self.num_clusters**self.num_segments, dtype=dtype, device=device)
        return TreeState(*_fields(segments), counts)

    def _start(self, init: str, prior: TreeState, frames: Frames, generator: torch.Generator | None) -> TreeState:
        """The mixture's starts, segment by segment."""
        segments = self._segment_memory._start(init, prior.segments, self._split_frames(frames), generator)
        counts = prior.counts.expand(*segments.batch_shape[:-1], prior.counts.shape[-1])
        return TreeState(*_fields(segments), counts)

    def _default_start(self, prior: State | None) -> str:
        return "kmeans++" if prior is None else "prior"

    def _sweeps(
        self, frames: Frames, prior: TreeState, start: TreeState, chunk_size: int | None, fresh: bool
    ) -> Sweeps:
        return TreeSweeps(self, frames, prior, start, chunk_size)

    def _address(self, state: TreeState, codes: Tensor) -> MixtureAddress:
        """q(s, w) per segment: a mixture address with batch (*B, G)."""
        return self._segment_memory._address(state.segments, self._split(codes))

    def _update(self, address: MixtureAddress, frames: Frames, prior: TreeState) -> TreeState:
        segments = self._segment_memory._update(address, self._split_frames(frames), prior.segments)
        return self._counted(segments, frames, prior, None)

    def _counted(self, segments: MixtureState, frames: Frames, prior: TreeState, chunk_size: int | None) -> TreeState:
        """Add to the prior's counts how often the most likely assignments under the state form each sequence."""
        H, G = segments.R.shape[-3], self.num_segments
        place = H ** torch.arange(G - 1, -1, -1, device=segments.R.device)
        counts = prior.counts.expand(*frames.batch_shape, H**G)
        for chunk in frames.chunks(chunk_size):
            _, scores = lg.address(segments.slots, self._split(chunk.mean.detach()), self.noise_var)
            sequence = (scores.argmax(-1) * place[:, None]).sum(-2)
            one = torch.ones(sequence.shape, dtype=counts.dtype, device=counts.device)
            counts = counts.scatter_add(-1, sequence, chunk.count(one))
        return TreeState(*_fields(segments), counts.detach())

    def _misfit(self, state: TreeState, codes: Tensor, address: MixtureAddress) -> tuple[Tensor, Tensor]:
        square, address_kl = self._segment_memory._misfit(state.segments, self._split(codes), address)
        return square.sum(-2), address_kl.sum(-2)

    def _memory_kl(self, state: TreeState, prior: TreeState) -> Tensor:
        return self._segment_memory._memory_kl(state.segments, prior.segments).sum(-1)

    def _sample(self, state: TreeState, n: int, noise_var: float | Tensor, generator: torch.Generator | None) -> Tensor:
        """Assignment sequences are drawn by their counts (all alike if none was counted)."""
        H, G, R = state.R.shape[-3], self.num_segments, state.R
        uniform = torch.rand((*state.batch_shape, n), dtype=R.dtype, device=R.device, generator=generator)
        total = state.counts.sum(-1, keepdim=True)
        sequence = draw_index(torch.where(total > 0, state.counts, 1.0), uniform)
        place = H ** torch.arange(G - 1, -1, -1, device=R.device)
        cluster = (sequence[..., None, :] // place[:, None]) % H
        return self._join(lg.sample_codes(state.segments.slots, cluster, noise_var, generator))

    def _scores(self, state: TreeState, codes: Tensor) -> Tensor:
        """Under the model, whose segments are independent (the counted sequences serve generation only)."""
        return self._segment_memory._scores(state.segments, self._split(codes)).sum(-2)

    def _density_scores(self, state: TreeState, codes: Tensor) -> Tensor:
        return self._segment_memory._density_scores(state.segments, self._split(codes)).sum(-2)

    def _split(self, codes: Tensor) -> Tensor:
        """Shapes: (*B, T, C) -> (*B, G, T, C/G)"""
        return codes.unflatten(-1, (self.num_segments, -1)).movedim(-2, -3)

    def _split_frames(self, frames: Frames) -> Frames:
        """Every segment with the counts of its items; variances count once, in the whole."""
        counts = frames.counts
        if counts is not None:
            counts = counts[..., None, :].expand(*counts.shape[:-1], self.num_segments, counts.shape[-1])
        return Frames(self._split(frames.mean), counts)

    def _join(self, segments: Tensor) -> Tensor:
        """Shapes: (*B, G, T, C/G) -> (*B, T, C)"""
        return segments.movedim(-3, -2).flatten(-2)

    def _sized_for(self, num_clusters: int | None, *states: Any) -> Self:
        wanted = agreed_clusters(num_clusters, *states)
        return self if wanted in (None, self.num_clusters) else self.replace(num_clusters=wanted)

    def _explain(self, state: TreeState, codes: Tensor, generator: torch.Generator | None) -> Explanation:
        parts = self._segment_memory._explain(state.segments, self._split(codes), generator)
        variance = self._join(parts.variance.expand(parts.mean.shape))
        return Explanation(self._join(parts.mean), variance, parts.log_ratio.sum(-2))

    def _draw(self, state: TreeState, generator: torch.Generator | None) -> TreeState:
        return draw_slots(state, generator)

    def _drawn_square(
        self, drawn: TreeState, codes: Tensor, address: MixtureAddress, generator: torch.Generator | None
    ) -> Tensor:
        return self._segment_memory._drawn_square(drawn.segments, self._split(codes), address, generator).sum(-2)

    def _expected(self, state: TreeState, address: MixtureAddress) -> Tensor:
        return self._join(self._segment_memory._expected(state.segments, address))

    def _mean_code(self, state: TreeState) -> Tensor:
        """Locations weighted by how often each segment's clusters occur in the counted sequences."""
        H, G = state.R.shape[-3], self.num_segments
        total = state.counts.sum(-1, keepdim=True)
        share = torch.where(total > 0, state.counts, 1.0)
        share = (share / share.sum(-1, keepdim=True)).unflatten(-1, (H,) * G)
        others = [[g - G for g in range(G) if g != own] for own in range(G)]
        by_segment = torch.stack([share.sum(dims) if dims else share for dims in others], dim=-2)
        return (by_segment[..., None, :] @ state.mu_b)[..., 0, :].flatten(-2)

    def _check_state(self, where: str, state: Any) -> None:
        """Any number of clusters will do: it belongs to the state."""
        H = state.R.shape[-3] if isinstance(state, TreeState) and state.R.ndim > 3 else self.num_clusters
        G, K, c = self.num_segments, self.num_slots, self.code_dim // self.num_segments
        shapes = {"R": (G, H, K, c), "U_chol": (G, H, K, K), "mu_b": (G, H, c), "v_b": (G, H), "counts": (H**G,)}
        check_event_shapes(where, state, TreeState, shapes)


class TreeSweeps:
    """The mixture's sweeps with the segments as one more batch dimension, then the sequences counted."""

    def __init__(
        self, memory: TreeMemory, frames: Frames, prior: TreeState, start: TreeState, chunk_size: int | None
    ) -> None:
        self.memory, self.frames, self.prior, self.chunk_size = memory, frames, prior, chunk_size
        split = memory._split_frames(frames)
        self.inner = ItemSweeps(memory._segment_memory, split, prior.segments, start.segments, chunk_size)
        self.inner.constant = torch.zeros_like(self.inner.constant)
        self.constant = frames.count(frames.constant(memory.noise_var)).sum(-1)

    def start(self) -> Record:
        return self.inner.start()

    def sweep(self, carry: Any, want_bound: bool) -> tuple[Record, Tensor | None]:
        carry, bound = self.inner.sweep(carry, want_bound)
        return carry, None if bound is None else self.constant + bound.sum(-1)

    def finish(self, carry: Any) -> tuple[TreeState, MixtureAddress | None]:
        segments, address = self.inner.finish(carry)
        return self.memory._counted(segments, self.frames, self.prior, self.chunk_size), address


def _fields(segments: MixtureState) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return segments.R, segments.U_chol, segments.mu_b, segments.v_b
