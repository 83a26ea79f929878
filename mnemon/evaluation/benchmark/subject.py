"""Who is asked: a model of a cell, the test images, what it can be asked, and what every record of it says."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from mnemon.core.protocol import MemoryModel
from mnemon.core.random import stream
from mnemon.data.images import ImageSet
from mnemon.evaluation import results
from mnemon.evaluation.benchmark.protocol import UNTRAINED, Sizes
from mnemon.evaluation.experiments import sizes_of_classes
from mnemon.evaluation.likelihood import Estimate, TestSet
from mnemon.evaluation.questions import BY_NAME, Need, empty_note, write_note
from mnemon.models import MemoryVAE
from mnemon.models.codec_model import CodecModel
from mnemon.models.context_aware import ContextAwareLearner
from mnemon.models.energy import EnergyModel
from mnemon.models.hopfield import CopyModel, HopfieldModel, ModernHopfieldModel, SlotMemory
from mnemon.models.recall_model import RecallModel
from mnemon.models.slot_model import SlotModel

TESTED = 24
"""The random stream that chooses test images."""
SWEEPS = 3
"""Of a Hopfield network's read, unit after unit; reads that follow go on from there."""


@dataclass(frozen=True, eq=False)
class Tests:
    """Test images of a data set: all of them, for episodes of classes, and some, for episodes of any images."""

    every: TestSet
    some: TestSet

    __test__ = False  # not a test class

    @classmethod
    def of(cls, data: ImageSet, preprocessing: Any, device: torch.device | str, number: int) -> Tests:
        every = TestSet.of(data, preprocessing, device)
        order = torch.randperm(len(data), generator=stream(0, TESTED))[:number].sort().values
        return cls(every, TestSet(every.data.subset(order.to(every.device)), preprocessing, every.device))

    def at_least(self, number: int) -> TestSet:
        """Those of the some, or all where these are too few for a long episode."""
        return self.some if number <= len(self.some.data) else self.every


@dataclass(frozen=True, eq=False)
class Subject:
    """A model that is written and asked; `common` stands in all its records."""

    kind: str
    load: Callable[[], MemoryModel]
    tests: Tests
    sizes: Sizes
    length: int
    common: Mapping[str, Any]
    time_updates: Callable[[], Estimate] | None
    """Milliseconds of an update of its training; None where it is not trained."""
    class_episodes: bool = False
    """Whether models are trained on episodes of a few classes here."""

    @cached_property
    def model(self) -> MemoryModel:
        """Loaded when it is first needed: what a training costs is asked without trained weights."""
        return self.load()

    def with_model(self, model: MemoryModel) -> Subject:
        return replace(self, load=lambda: model)

    @property
    def data(self) -> str:
        return str(self.common["data"])

    @property
    def device(self) -> torch.device:
        return self.tests.every.device

    @property
    def machine(self) -> dict[str, str]:
        """What times and working memory were measured on, as settings of a record."""
        if self.device.type == "cuda":
            return {"device": torch.cuda.get_device_name(self.device)}
        threads = torch.get_num_threads()
        return {"device": f"{threads} CPU core{'s' * (threads > 1)}"}

    def has(self, need: Need) -> bool:
        """Whether the subject has what a question needs."""
        return {
            "likelihood": lambda: isinstance(self.model, CodecModel),
            "posterior": lambda: isinstance(self.model, CodecModel) and has_posterior(self),
            "labels": lambda: sizes_of_classes(self.tests.every.data) is not None,
            "class_episodes": lambda: self.class_episodes,
            "resizing": lambda: is_resizable(self.model),
            "training": lambda: self.time_updates is not None,
            "sampling": lambda: not isinstance(self.model, CopyModel),
            "gpu": lambda: self.device.type == "cuda",
        }[need]()

    def too_short(self, question: str, length: int, memories: int = 1) -> dict[str, Any] | None:
        """A record that says so where a memory of so many frames, one of some, is too short for the model."""
        if length > 1 or not isinstance(self.model, ContextAwareLearner):
            return None
        reason = f"{self.kind} cannot tell which context is constant in an episode of one frame"
        return empty_record(question, "does not apply", reason, self.common, length * memories)

    def record(
        self, question: str, estimate: Estimate, settings: Mapping[str, Any] | None = None, **more: Any
    ) -> dict[str, Any]:
        """A number that was measured; one that is none fails for itself."""
        asked, told = BY_NAME[question], dict(settings or {})
        if not math.isfinite(estimate.value):
            reason, length = f"expected a finite number, got {estimate.value}", more.get("episode_length", self.length)
            return empty_record(question, "failed", reason, self.common, length, **told)
        interval = None if math.isnan(estimate.interval) else float(f"{estimate.interval:.4g}")
        floats = {} if "memory_floats" in more else {"memory_floats": self.own_floats}
        values = {
            "episode_length": self.length, "bound": asked.bound, "scored": asked.scored,
            **self.common, **floats, **more,
        }  # fmt: skip
        return results.result(
            metric=asked.metric, unit=asked.unit, value=float(f"{estimate.value:.7g}"), interval=interval,
            note=write_note(question, **told), **values,
        )  # fmt: skip

    @cached_property
    def own_floats(self) -> int:
        return self.floats()

    def floats(self, length: int | None = None, **write: Any) -> int:
        """Floats of the memory of one episode."""
        if isinstance(self.model, HopfieldModel | EnergyModel):  # whatever is written
            return self.model.memory_floats(self.model.prior_state((1,)))
        if length is not None and length > self.length + 1 and not self._grows_on:
            return self.own_floats
        x = torch.zeros(length or self.length, *self.model.image_shape, device=self.device)
        with torch.no_grad():
            return count_floats(self.model, self.model.write(x[None], **write))

    @cached_property
    def _grows_on(self) -> bool:
        """Whether a frame more than an episode has makes a larger memory: others need not be written to be measured."""
        return self.floats(self.length + 1) > self.own_floats


def empty_record(
    question: str, outcome: Any, reason: str, common: Mapping[str, Any], length: int | None = None, **settings: Any
) -> dict[str, Any]:
    """What stands where there is no number: why."""
    asked = BY_NAME[question]
    return results.result(
        metric=asked.metric, unit=asked.unit, bound=asked.bound, scored=asked.scored, episode_length=length,
        note=empty_note(question, outcome, reason, **settings), **common,
    )  # fmt: skip


def untrained_model(kind: str, image_shape: tuple[int, ...], memory_floats: int) -> RecallModel:
    """A memory that is only written and read. One that is given a size holds one frame at least."""
    if kind not in UNTRAINED:
        raise ValueError(f"untrained_model: expected one of {', '.join(UNTRAINED)}, got {kind!r}")
    if kind == "hopfield-hebb":
        return HopfieldModel(image_shape, "hebb", num_sweeps=SWEEPS)
    if kind == "hopfield-storkey":
        return HopfieldModel(image_shape, "storkey", num_sweeps=SWEEPS)
    if kind == "modern-hopfield":
        return ModernHopfieldModel(image_shape)
    if kind == "slots":
        return SlotMemory(image_shape, max(memory_floats, math.prod(image_shape)))
    return CopyModel(image_shape)


def count_floats(model: MemoryModel, state: Any) -> int:
    """Floats of one of the memories of a batch."""
    if isinstance(model, RecallModel):
        return model.memory_floats(state)
    return int(state.nbytes // 4 // max(1, math.prod(state.batch_shape)))


def most_frames(model: MemoryModel) -> int:
    """Frames of all episodes that a model is given at a time: many, since some memories are written frame by frame, in
    all episodes at once, and codecs take frames in blocks; fewer for energies, which keep all that derivatives need."""
    return 1024 if isinstance(model, EnergyModel) else 5120


def stores_items(model: MemoryModel) -> bool:
    """Whether a memory is made of the frames themselves, any number of them."""
    return isinstance(model, SlotModel | SlotMemory | ModernHopfieldModel)


def is_resizable(model: MemoryModel) -> bool:
    return stores_items(model) or isinstance(model, MemoryVAE)


def has_posterior(subject: Subject) -> bool:
    """Whether the memory has a KL from its prior, asked of two frames."""
    assert isinstance(subject.model, CodecModel)
    x = torch.zeros(1, 2, *subject.model.image_shape, device=subject.device)
    with torch.no_grad():
        terms = subject.model.terms(x, generator=stream(0, TESTED, device=str(subject.device)))
    return terms.memory_kl is not None
