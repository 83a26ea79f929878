"""What a memory holds: bounds of written frames beside those of their twins, for episodes of growing length.

A twin is another test image of the same class, which was not written. Where written frames are cheap and twins are not,
the number measures what was stored; where both are alike, it measures what is known of the class.

Some models encode the frames of an episode together (Kanerva++, the DKM with its encoder). There are then two bounds on
the same log p(x | memory): one whose q sees the scored frames together, as the papers report it, and one whose q sees
each alone, as it would be asked of a cue.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mnemon.core.protocol import Terms
from mnemon.core.random import stream
from mnemon.data.images import ImageSet
from mnemon.evaluation.experiments import Evaluation, in_bits
from mnemon.evaluation.likelihood import Estimate, TestSet, frames_at_once
from mnemon.evaluation.papers import paper_conditional
from mnemon.models import PseudoInverseModel
from mnemon.models.codec_model import CodecModel

LENGTHS = (1, 5, 16, 32, 64)
"""Frames of an episode; K++, figure 10 has 5 to 64."""
TWINS, SHARED = 19, 20
"""Random streams."""


class Twins(NamedTuple):
    """Places in the data: frames to be written, and as many that are not. Shapes: (num_episodes, length) both"""

    written: Tensor
    others: Tensor


def draw_twins(data: ImageSet, *, length: int, num_episodes: int, seed: int = 0) -> Twins:
    """Random frames, and for each of them another one of its class that is not in the episode.

    Without labels all images are one class. A class whose members are all written, or that has one member only, gives
    any unwritten image.
    """
    if 2 * length > len(data):
        raise ValueError(f"draw_twins: expected at least {2 * length} images for {length} and twins, got {len(data)}")
    generator = stream(seed, TWINS, length)
    labels = torch.zeros(len(data), dtype=torch.int64) if data.labels is None else data.labels.cpu()
    written, others = [], []
    for _ in range(num_episodes):
        order = torch.randperm(len(data), generator=generator)
        chosen, rest = order[:length], order[length:]
        written.append(chosen)
        others.append(_match(labels, chosen, rest))
    return Twins(torch.stack(written), torch.stack(others))


def _match(labels: Tensor, chosen: Tensor, rest: Tensor) -> Tensor:
    """For each chosen image the next of the rest that has its class and is not taken; else the next not taken."""
    waiting = {int(label): rest[labels[rest] == label].tolist()[:length] for label, length in _counts(labels[chosen])}
    taken: list[int | None] = []
    for label in labels[chosen].tolist():
        taken.append(waiting[label].pop() if waiting[label] else None)
    used = {place for place in taken if place is not None}
    spare = iter([place for place in rest[: 2 * len(chosen)].tolist() if place not in used])
    return torch.tensor([next(spare) if place is None else place for place in taken])


def _counts(labels: Tensor) -> list[tuple[int, int]]:
    values, counts = labels.unique(return_counts=True)
    return list(zip(values.tolist(), counts.tolist(), strict=True))


@torch.no_grad()
def twin_bounds(
    model: CodecModel, test: TestSet, *, length: int, num_episodes: int = 64, num_samples: int = 1, seed: int = 0
) -> dict[tuple[str, str], Tensor]:
    """Bounds on log p(x | memory) by (scored, encoding): written or twin; alone or together.

    "together" is there only for models that encode so; its q is drawn once. Shapes: -> (num_episodes, length) each
    """
    twins = draw_twins(test.data, length=length, num_episodes=num_episodes, seed=seed)
    block = max(1, frames_at_once(test.device) // (2 * length * num_samples))
    found: dict[tuple[str, str], list[Tensor]] = {}
    for number, index in enumerate(zip(*(part.split(block) for part in twins), strict=True)):
        generator = stream(seed, TWINS, length, number, device=str(test.device))
        written, others = (test.draw(part, generator) for part in index)
        state = model.write(written, generator=generator)
        for scored, x in (("written", written), ("twin", others)):
            bound = model.log_likelihood(state, x, num_samples=num_samples, generator=generator)
            found.setdefault((scored, "alone"), []).append(bound.value.cpu())
        if model.encodes_together:
            for scored, values in _together(model, written, others, generator):
                found.setdefault((scored, "together"), []).append(values.cpu())
    return {key: torch.cat(values) for key, values in found.items()}


def _together(
    model: CodecModel, written: Tensor, others: Tensor, generator: torch.Generator
) -> Iterator[tuple[str, Tensor]]:
    """The same by `terms`: twins stand after the written frames, and are encoded with them but not written."""
    length = written.shape[1]
    yield "written", _per_item(model.terms(written, generator=generator))
    both = torch.cat((written, others), dim=1)
    write_mask = torch.arange(2 * length, device=both.device) < length
    terms = model.terms(both, write_mask=write_mask.expand(both.shape[:2]), generator=generator)
    yield "twin", _per_item(terms)[:, length:]


def _per_item(terms: Terms) -> Tensor:
    return terms.reconstruction - terms.code_kl - terms.address_kl


def lengths(evaluation: Evaluation) -> Iterable[dict[str, Any]]:
    """Conditional bounds of written frames and of their twins, for episodes of 1 to 64 frames."""
    if not evaluation.model.can_write:
        return
    evaluation = evaluation.with_options("lengths")
    labelled = evaluation.test.data.labels is not None
    for length in LENGTHS:
        if 2 * length > len(evaluation.test.data):
            continue
        found = twin_bounds(
            evaluation.model, evaluation.test, length=length, num_episodes=evaluation.num_episodes,
            num_samples=evaluation.num_samples, seed=evaluation.seed,
        )  # fmt: skip
        for (scored, encoding), values in found.items():
            twin = "same_class" if labelled else "unseen"
            yield from _both_units(
                evaluation, Estimate.of(values.mean(-1)),
                scored="written" if scored == "written" else twin, bound="conditional",
                num_samples=1 if encoding == "together" else evaluation.num_samples, episode_length=length,
                memory_floats=evaluation.floats(length),
                note=f"lengths: {length} frames; scored frames encoded {encoding}",
            )  # fmt: skip


def _both_units(evaluation: Evaluation, estimate: Estimate, **more: Any) -> Iterator[dict[str, Any]]:
    """Nats per frame; for images of grey levels also bits per dimension."""
    yield evaluation.record(estimate, "bound", "nats/frame", **more)
    bits = in_bits(evaluation.model, estimate)
    if bits is not None:
        yield evaluation.record(bits, "bits_per_dim", "bits/dim", **more)


def shared_noise(evaluation: Evaluation) -> Iterable[dict[str, Any]]:
    """What the published code of the pseudo-inverse memory reports, which is no bound; other models have no such."""
    model = evaluation.model
    if not isinstance(model, PseudoInverseModel):
        raise ValueError(f"--part shared-noise: expected a pseudo-inverse memory, got {evaluation.config.model.kind}")
    values = []
    for number, (x, _) in enumerate(evaluation.test.batches(evaluation.length, 16, evaluation.seed)):
        generator = stream(evaluation.seed, SHARED, number, device=str(evaluation.test.device))
        values.append(_per_item(model.shared_noise_terms(x, generator=generator)).mean(-1).cpu())
    yield evaluation.with_options("shared-noise").record(
        Estimate.of(torch.cat(values)), "no_bound", "nats/frame", bound=None, scored="written", num_samples=1,
        note="NO BOUND: one noise shared by all addresses of an episode, as the published code has it",
        **paper_conditional(evaluation.config.name),
    )  # fmt: skip
