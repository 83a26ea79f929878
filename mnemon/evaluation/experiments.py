"""The evaluation of a trained run as result records: bounds, recall, novelty, and other sizes of memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from mnemon.data.episodes import EpisodeSampler
from mnemon.data.images import ImageSet
from mnemon.distributions.pixels import BernoulliPixels, bits_per_dim
from mnemon.evaluation import results
from mnemon.evaluation.likelihood import Estimate, TestSet, episode_bounds, prior_bounds, scored_groups, written_bound
from mnemon.evaluation.novelty import has_prior, novelty
from mnemon.evaluation.papers import paper_conditional, paper_joint
from mnemon.evaluation.recall import CORRUPTIONS, recall_errors
from mnemon.memories.tree import MAX_SEQUENCES
from mnemon.models import AddressingModel, MemoryVAE
from mnemon.models.codec_model import CodecModel
from mnemon.training.config import Config
from mnemon.training.data import sampler

SIZES = ((64, 10), (640, 100), (1280, 150))
"""Episode length and clusters at which mixture and tree memories are resized (VBM, 4.4.3)."""

ITEMS = (16, 64, 256, 1024, 2048)
"""Items in a memory that stores them; VMA is trained to recall with 256 (VMA, 4.1)."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A trained model, the test images it is asked about, and what every record of it says."""

    model: CodecModel
    config: Config
    test: TestSet
    common: Mapping[str, Any]
    seed: int = 0
    num_samples: int = 16
    num_episodes: int = 200
    """Importance samples and episodes of the parts that can be asked for any number."""
    root: Path | None = None
    """Where the data are, for parts that also need training images."""
    history: Sequence[Mapping[str, Any]] = ()
    """The metrics of the training, line by line."""

    @classmethod
    def of(
        cls,
        model: CodecModel,
        config: Config,
        test: TestSet,
        *,
        command: str,
        updates: int | None,
        seed: int = 0,
        num_samples: int = 16,
        num_episodes: int = 200,
        root: Path | None = None,
        history: Sequence[Mapping[str, Any]] = (),
    ) -> Evaluation:
        common = results.values_of_run(
            test.data, config.data, experiment=config.name, model=config.model.kind, seed=config.training.seed,
            updates=updates, command=command,
        )  # fmt: skip
        return cls(model, config, test, common, seed, num_samples, num_episodes, root, history)

    @property
    def length(self) -> int:
        return self.config.data.episode_length

    def record(self, estimate: Estimate, metric: str, unit: str, **more: Any) -> dict[str, Any]:
        interval = None if math.isnan(estimate.interval) else round(estimate.interval, 5)
        floats = {} if "memory_floats" in more else {"memory_floats": self.floats()}
        settings = {"episode_length": self.length, **floats, **self.common, **more}
        return results.result(metric=metric, value=round(estimate.value, 5), unit=unit, interval=interval, **settings)

    def with_options(self, part: str) -> Evaluation:
        """The same, whose records say with which samples and episodes a part was asked for."""
        options = f"--part {part} --samples {self.num_samples} --episodes {self.num_episodes}"
        return replace(self, common={**self.common, "command": f"{self.common['command']} {options}"})

    @property
    def sets_sampler(self) -> EpisodeSampler | None:
        """How test images become data sets, where the run's episodes are such; otherwise any images stand together."""
        data = self.config.data
        if data.episodes not in ("sets", "factors"):
            return None
        batch = min(data.batch_size, len(self.test.data) // data.episode_length)
        return sampler(replace(data, batch_size=max(1, batch)))

    def floats(self, length: int | None = None, **write: Any) -> int:
        """Floats of one episode's memory, or of a learned one."""
        if not self.model.can_write:
            return self.prior_floats
        x = torch.zeros(length or self.length, *self.model.image_shape, device=self.test.device)
        with torch.no_grad():
            return self.model.write(x, **write).nbytes // 4

    @property
    def prior_floats(self) -> int:
        """Floats of the memory before anything was written."""
        with torch.no_grad():
            return self.model.prior_state().nbytes // 4


def bounds(evaluation: Evaluation) -> Iterable[dict[str, Any]]:
    """Joint and conditional bound of written frames, and bits per dimension."""
    found = episode_bounds(
        evaluation.model,
        evaluation.test,
        episode_length=evaluation.length,
        seed=evaluation.seed,
        sampler=evaluation.sets_sampler,
    )
    experiment = evaluation.config.name
    for kind in ("joint", "conditional"):
        if kind not in found:  # a memory without a posterior
            continue
        extra = paper_joint(experiment) if kind == "joint" else paper_conditional(experiment)
        note = None if kind == "joint" else "the scored frames are those that were written"
        if evaluation.model.encodes_together:
            note = f"{note}; encoded together" if note else "frames encoded together"
        yield evaluation.record(
            found[kind], "bound", "nats/frame", bound=kind, scored="written", num_samples=1, note=note, **extra
        )
    for name in ("reconstruction", "code_kl", "address_kl", "memory_kl", "choice_kl"):
        if name in found and not (name == "choice_kl" and found[name].value == 0):
            yield evaluation.record(found[name], name, "nats/frame", scored="written", num_samples=1)
    for kind in ("joint", "conditional"):
        bits = None if kind not in found else in_bits(evaluation.model, found[kind])
        if bits is not None:
            extra = paper_conditional(experiment, "bits/dim") if kind == "conditional" else {}
            yield evaluation.record(
                bits, "bits_per_dim", "bits/dim", bound=kind, scored="written", num_samples=1, **extra
            )


def prior(evaluation: Evaluation) -> Iterable[dict[str, Any]]:
    """Bound on log p(x) of test images with nothing written: a VAE's, a learned memory's, or that of a prior."""
    found = prior_bounds(
        evaluation.model, evaluation.test, num_images=evaluation.num_episodes, num_samples=evaluation.num_samples,
        seed=evaluation.seed,
    )  # fmt: skip
    yield evaluation.with_options("prior").record(
        Estimate.of(found), "bound", "nats/frame", bound="prior", scored="unseen", num_samples=evaluation.num_samples,
        episode_length=None, memory_floats=evaluation.prior_floats, note=f"nothing written; {len(found)} images",
    )  # fmt: skip


def groups(evaluation: Evaluation) -> Iterable[dict[str, Any]]:
    """Conditional bound of written frames, unwritten frames of their classes, and unseen classes."""
    sizes = class_sizes(evaluation)
    if sizes is None:
        return
    for samples in (1, 16):
        found = scored_groups(evaluation.model, evaluation.test, num_samples=samples, seed=evaluation.seed, **sizes)
        for scored, values in found.items():
            yield evaluation.record(
                Estimate.of(values.mean(-1)), "bound", "nats/frame", bound="conditional", scored=scored,
                num_samples=samples, episode_length=sizes["num_classes"] * sizes["per_class"],
                note=f"episodes of {sizes['num_classes']} classes x {sizes['per_class']}",
            )  # fmt: skip


def recall(evaluation: Evaluation) -> Iterable[dict[str, Any]]:
    """Squared error of corrupted written images, before and after reading."""
    if evaluation.model.can_write:
        yield from _recall(evaluation, evaluation.length)


def novelty_scores(evaluation: Evaluation) -> Iterable[dict[str, Any]]:
    """AUROC of written, and of unwritten frames of written classes, against unseen classes."""
    sizes = class_sizes(evaluation)
    if sizes is None:
        return
    found = novelty(evaluation.model, evaluation.test, seed=evaluation.seed, **sizes)
    frames = sizes["num_classes"] * sizes["per_class"]
    images = {"model": "pixel nearest neighbour", "memory_floats": frames * math.prod(evaluation.test.data.image_shape)}
    for name, estimate in found.items():
        scorer, scored = name.split("_", 1)
        known = "log p(x|memory) - log p(x|prior)" if has_prior(evaluation.model) else "log p(x|memory)"
        score = known if scorer == "model" else "nearest written image"
        more = {} if scorer == "model" else images  # which it keeps as they are
        yield evaluation.record(
            estimate, "auroc", "auroc", scored=scored, episode_length=frames,
            note=f"against unseen classes; {score}; {sizes['num_classes']} classes x {sizes['per_class']}", **more,
        )  # fmt: skip


def resized(evaluation: Evaluation) -> Iterable[dict[str, Any]]:
    """The same weights with more in memory: bounds, and recall of memories that have clusters."""
    if isinstance(evaluation.model, AddressingModel) and evaluation.model.can_write:
        yield from _more_items(evaluation)
    if evaluation.config.model.num_clusters is None:
        return
    model = evaluation.model
    assert isinstance(model, MemoryVAE)
    memory: Any = model.memory
    for length, clusters in SIZES:
        if length > len(evaluation.test.data) or clusters ** getattr(memory, "num_segments", 1) > MAX_SEQUENCES:
            continue
        batch = max(1, 1024 // length)
        write = {"num_clusters": clusters}
        try:
            model.memory = memory.replace(num_clusters=clusters)
            found = episode_bounds(
                model, evaluation.test, episode_length=length, batch_size=batch, seed=evaluation.seed
            )
        finally:
            model.memory = memory
        floats = evaluation.floats(length, num_clusters=clusters)
        sizes = {"episode_length": length, "memory_floats": floats}
        for kind in ("joint", "conditional"):
            yield evaluation.record(
                found[kind], "bound", "nats/frame", bound=kind, scored="written", num_samples=1,
                note=f"resized to {clusters} clusters", **sizes,
            )  # fmt: skip
        yield from _recall(evaluation, length, batch, write, f"resized to {clusters} clusters; ", **sizes)


def _more_items(evaluation: Evaluation) -> Iterable[dict[str, Any]]:
    """Bound and address KL of what is in memory; always finding one item among n is worth log n nats.

    The bound by one sample, and by as many as the model was trained with.
    """
    num_samples = evaluation.config.objective.num_samples or 1
    for length in ITEMS:
        if length > len(evaluation.test.data):
            continue
        sizes: dict[str, Any] = {
            "episode_length": length, "batch_size": max(1, 1024 // length), "seed": evaluation.seed
        }  # fmt: skip
        found = episode_bounds(evaluation.model, evaluation.test, **sizes)
        common = {"scored": "written", "episode_length": length}
        common |= {"memory_floats": evaluation.floats(length), "note": f"log |M| = {math.log(length):.3f}"}
        bounds = {1: found["conditional"]}
        if num_samples > 1:
            bounds[num_samples] = written_bound(evaluation.model, evaluation.test, num_samples=num_samples, **sizes)
        for count, bound in bounds.items():
            yield evaluation.record(
                bound, "bound", "nats/frame", bound="conditional", num_samples=count, **common
            )  # fmt: skip
        yield evaluation.record(found["address_kl"], "address_kl", "nats/frame", num_samples=1, **common)


def _recall(
    evaluation: Evaluation,
    length: int,
    batch: int = 16,
    write: Mapping[str, Any] | None = None,
    prefix: str = "",
    **sizes: Any,
) -> Iterable[dict[str, Any]]:
    for told, (name, level) in CORRUPTIONS.items():
        found = recall_errors(
            evaluation.model, evaluation.test, name, level, episode_length=length, batch_size=batch,
            seed=evaluation.seed, write=write,
        )  # fmt: skip
        reads, best = found.best
        what = f"{prefix}{told}"
        yield evaluation.record(found.corrupted, "mse_corrupted", "per pixel", scored="written", note=what, **sizes)
        yield evaluation.record(
            best, "mse_recalled", "per pixel", scored="written",
            note=f"{what}; best of 1 to {len(found.reads)} reads: {reads}", **sizes,
        )  # fmt: skip
        removed = Estimate(found.removed, math.nan, best.count)
        yield evaluation.record(removed, "error_removed", "share", scored="written", note=what, **sizes)


def in_bits(model: CodecModel, estimate: Estimate) -> Estimate | None:
    """A bound as bits per dimension; None for binary images, of which papers report nats."""
    codec = model.codec
    if isinstance(codec.likelihood, BernoulliPixels):
        return None
    nats = torch.tensor([estimate.value, estimate.value - estimate.interval])
    dims = math.prod(codec.image_shape)
    value, worse = bits_per_dim(nats, dims, is_density=codec.likelihood.is_density).tolist()
    return Estimate(value, worse - value, estimate.count)


def class_sizes(evaluation: Evaluation) -> dict[str, Any] | None:
    """Classes and items per class of an episode; None where there are no classes, or nothing is written."""
    return sizes_of_classes(evaluation.test.data) if evaluation.model.can_write else None


def sizes_of_classes(data: ImageSet) -> dict[str, Any] | None:
    """8 x 8 where there are classes enough, else half of the classes; None without them."""
    if data.labels is None or data.num_classes < 4:
        return None
    num_classes = min(8, data.num_classes // 2)
    smallest = int(data.labels.unique(return_counts=True)[1].min())
    # glyphs have 12 of a class: 8 are written, 4 are left to be scored
    per_class = max(1, min(64 // num_classes, smallest * 2 // 3))
    return {"num_classes": num_classes, "per_class": per_class, "num_episodes": 64}
