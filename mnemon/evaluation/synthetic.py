"""The VBM paper's figure 2: how well do VB and the Dynamic Kanerva Machine infer the same memory?

Episodes are drawn from the linear-Gaussian model, every method infers q(M) q(w_t) for it, and all are scored
by the joint bound per frame. The paper gives the DKM a fixed address variance of 0.3; here it also gets the
0.09 at which its authors start training, and the best scalar there is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mnemon.data.synthetic import LinearGaussianEpisode, linear_gaussian_episode
from mnemon.evaluation.results import result
from mnemon.memories import GaussianMemory, KanervaMemory

SLOTS = (8, 16, 32, 64, 128, 256)
CODE_DIMS = (50, 100, 200, 400, 800)
QUICK_SLOTS, QUICK_CODE_DIMS = (8, 16, 32), (50, 100)
NUM_ITEMS = 32
SWEEPS = 50
ADDRESS_VARS = (0.3, 0.09, None)  # None: the best scalar
TOLERANCE, MOST_SWEEPS = 1e-5, 20_000


@dataclass(frozen=True)
class Score:
    """The joint bound per frame that one method reached in one cell of the grid."""

    method: str
    num_slots: int
    code_dim: int
    value: float
    sweeps: int
    address_var: float | None = None


VB, VB_CONVERGED = "VB 50", "VB converged"


def dkm(kind: str, address_var: float | None) -> str:
    return f"DKM {kind}, {'best' if address_var is None else address_var}"


METHODS = (VB, VB_CONVERGED, *(dkm(kind, var) for kind in ("online", "batched") for var in ADDRESS_VARS))


def score_cell(num_slots: int, code_dim: int, seed: int = 0) -> list[Score]:
    """All methods on one episode."""
    episode = linear_gaussian_episode(num_slots=num_slots, code_dim=code_dim, num_items=NUM_ITEMS, seed=seed)
    return [*_score_vb(episode), *_score_dkm(episode)]


def score_grid(slots: Sequence[int], code_dims: Sequence[int], seed: int = 0) -> Iterator[list[Score]]:
    for num_slots in slots:
        for code_dim in code_dims:
            yield score_cell(num_slots, code_dim, seed)


def _score_vb(episode: LinearGaussianEpisode) -> Iterator[Score]:
    K, C = episode.slot_mean.shape
    memory = GaussianMemory(C, K, episode.noise_var, slot_mean=episode.slot_mean)
    first = memory.write(episode.codes, init="prior", num_steps=SWEEPS)
    yield Score(VB, K, C, memory.terms(episode.codes, first).per_frame.item(), SWEEPS)
    rest = memory.write(episode.codes, init=first.state, num_steps=MOST_SWEEPS, tol=TOLERANCE, return_trace=True)
    value = memory.terms(episode.codes, rest).per_frame.item()
    yield Score(VB_CONVERGED, K, C, value, SWEEPS + len(rest.trace if rest.trace is not None else ()))


def _score_dkm(episode: LinearGaussianEpisode) -> Iterator[Score]:
    K, C = episode.slot_mean.shape
    for kind, sweeps in (("online", 1), ("batched", SWEEPS)):
        memory = KanervaMemory(C, K, episode.noise_var, slot_mean=episode.slot_mean, online=kind == "online")
        written = memory.write(episode.codes, init="prior", num_steps=sweeps)
        for address_var in ADDRESS_VARS:
            chosen = memory.best_address_var(written.state).item() if address_var is None else address_var
            terms = memory.replace(address_var=chosen).terms(episode.codes, written)
            yield Score(dkm(kind, address_var), K, C, terms.per_frame.item(), sweeps, chosen)


def ratios(scores: Sequence[Score], method: str, baseline: str = VB) -> dict[tuple[int, int], float]:
    """Bound of a method over that of the baseline, per cell; both are negative, so above 1 is worse."""
    base = {(s.num_slots, s.code_dim): s.value for s in scores if s.method == baseline}
    cells = {(s.num_slots, s.code_dim): s.value for s in scores if s.method == method}
    return {cell: value / base[cell] for cell, value in cells.items()}


def conclusion(scores: Sequence[Score]) -> str:
    """What the comparison shows, and what the published ratio hides, in one sentence."""

    def span(method: str) -> str:
        values = ratios(scores, method).values()
        return f"{min(values):.2f} to {max(values):.2f}"

    return (
        f"With the published address variance of 0.3 the online DKM's negative bound is {span(dkm('online', 0.3))} "
        f"times that of VB after {SWEEPS} sweeps (batched: {span(dkm('batched', 0.3))}), but with the best scalar "
        f"variance it is {span(dkm('online', None))} (batched: {span(dkm('batched', None))}): most of the published "
        "ratio measures that fixed variance, not the way the memory is inferred."
    )


def as_records(scores: Sequence[Score], seed: int, command: str, commit: str | None) -> list[dict[str, Any]]:
    """Scores as records of a results file."""
    return [
        result(
            experiment="vbm-figure-2",
            model=s.method,
            data=f"synthetic linear-Gaussian, K={s.num_slots}, C={s.code_dim}, noise_var=1, R0 ~ N(0, 1), U0 = I",
            scored="written",
            metric="joint bound per frame",
            bound="joint",
            value=s.value,
            unit="nats",
            num_seeds=1,
            seed=seed,
            episode_length=NUM_ITEMS,
            memory_floats=s.num_slots * s.code_dim + s.num_slots * (s.num_slots + 1) // 2,
            updates=s.sweeps,
            command=command,
            commit=commit,
            paper_protocol="the paper prints only ratios: 2 to 14 (online), at least 1.64 (batched), variance 0.3",
            note=None if s.address_var is None else f"address variance {s.address_var:.6g}",
        )
        for s in scores
    ]
