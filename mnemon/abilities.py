"""What a model can do, found out by asking it: each ability is tried on a small episode, and a refusal is its reason.

No list is kept by hand: a model that refuses something says so itself, by a ValueError.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mnemon import presets
from mnemon.core.protocol import MemoryModel
from mnemon.core.state import State
from mnemon.core.threads import one_thread
from mnemon.evaluation.fewshot import class_log_scores, scorers_of
from mnemon.models.recall_model import RecallModel
from mnemon.registry import build_model, entries
from mnemon.training.config import ModelConfig

IMAGE_SHAPE = (1, 28, 28)
NUM_ITEMS = 4
"""Of the episode that models are asked about."""
NUM_FILTERS = 8


@dataclass(frozen=True)
class Answer:
    """Whether a model can do something, and what is to be said about it: how, or why not."""

    can: bool
    about: str = ""


@dataclass(frozen=True)
class Trial:
    """A model, a small episode, and the memory that it wrote of it."""

    model: MemoryModel
    x: Tensor
    state: State


def _refuse(why: str) -> str:
    raise ValueError(why)


def _recall(trial: Trial) -> str:
    trial.model.read(trial.state, trial.x)
    return ""


def _complete(trial: Trial) -> str:
    observed = torch.arange(IMAGE_SHAPE[-1]) < IMAGE_SHAPE[-1] // 2
    trial.model.read(trial.state, trial.x, observed=observed, steps=2)
    return ""


def _generate(trial: Trial) -> str:
    trial.model.sample(trial.state, 2)
    return "recalls from noise: no draws from a density" if isinstance(trial.model, RecallModel) else ""


def _likelihood(trial: Trial) -> str:
    trial.model.log_likelihood(trial.state, trial.x, num_samples=2)
    return ""


def _joint(trial: Trial) -> str:
    trial.model.terms(trial.x).joint  # noqa: B018
    return ""


def _continue(trial: Trial) -> str:
    trial.model.write(trial.x, prior=trial.state)
    return ""


def _mask(trial: Trial) -> str:
    mask = torch.arange(NUM_ITEMS) < NUM_ITEMS - 1
    trial.model.write(trial.x, mask=mask)
    return ""


def _weights(trial: Trial) -> str:
    trial.model.write(trial.x, weights=torch.full((NUM_ITEMS,), 2.0))
    return ""


def _subset(trial: Trial) -> str:
    trial.model.terms(trial.x, write_mask=torch.arange(NUM_ITEMS) < NUM_ITEMS - 1)
    return ""


def _prior(trial: Trial) -> str:
    trial.model.prior_state()
    return ""


def _resize(trial: Trial) -> str:
    if "num_clusters" in inspect.signature(trial.model.write).parameters:
        model: Any = trial.model
        model.write(trial.x, num_clusters=NUM_ITEMS - 1)
        return "num_clusters at write time"
    longer = trial.model.write(torch.cat((trial.x, trial.x)))
    if longer.nbytes == trial.state.nbytes:
        _refuse("the size of its memory is part of the model")
    return "it grows with the episode"


def _classify(trial: Trial) -> str:
    other = trial.model.write(1 - trial.x).tensors()
    if all(torch.equal(tensor, other[name]) for name, tensor in trial.state.tensors().items()):
        _refuse("its memory is the same whatever was written, so every class explains an image equally well")
    class_log_scores(trial.model, trial.x.unflatten(0, (2, 2)), trial.x)
    return "by " + ", ".join(scorers_of(trial.model))


ABILITIES: dict[str, Callable[[Trial], str]] = {
    "recall": _recall,
    "complete": _complete,
    "generate": _generate,
    "likelihood": _likelihood,
    "joint bound": _joint,
    "classify": _classify,
    "write on": _continue,
    "resize": _resize,
    "mask": _mask,
    "weights": _weights,
    "subset": _subset,
    "prior": _prior,
}
ABOUT = {
    "recall": "read(state, cue): what the memory makes of a cue",
    "complete": "read(state, cue, observed=): unobserved pixels are filled in",
    "generate": "sample(state, n)",
    "likelihood": "log_likelihood(state, x): a bound on log p(x | memory)",
    "joint bound": "terms(x).joint: a bound on log p(episode), the cost of the memory included",
    "classify": "few-shot classification, without training anything further",
    "write on": "write(x, prior=state): more items into a memory that is there",
    "resize": "a memory of another size from the same weights",
    "mask": "write(x, mask=): ragged episodes",
    "weights": "write(x, weights=): how often each item counts",
    "subset": "terms(x, write_mask=): write some items, score all",
    "prior": "prior_state(): the memory before the first write",
}
"""What each ability is, in a line."""


def abilities(model: MemoryModel) -> dict[str, Answer]:
    """What a model answers when each ability is asked of it. The model's images are `IMAGE_SHAPE`."""
    generator = torch.Generator().manual_seed(0)
    x = (torch.rand(NUM_ITEMS, *IMAGE_SHAPE, generator=generator) < 0.2).float()
    trial = Trial(model, x, model.write(x))
    return {name: _answer(ability, trial) for name, ability in ABILITIES.items()}


def small_model(kind: str, preset: str | None = None) -> MemoryModel:
    """An untrained model of this kind, of a preset's sizes, on small images and with narrow nets."""
    sizes = ModelConfig(kind=kind) if preset is None else presets.load(preset).model
    changes: dict[str, Any] = {"image_shape": IMAGE_SHAPE, "likelihood": "bernoulli", "num_filters": NUM_FILTERS}
    return build_model(dataclasses.replace(sizes, **changes)).eval()


def presets_by_kind() -> dict[str, list[str]]:
    """The presets that train each kind of model."""
    found: dict[str, list[str]] = {}
    for name in presets.names():
        found.setdefault(presets.load(name).model.kind, []).append(name)
    return found


def describe(kind: str, trained_by: Sequence[str]) -> dict[str, Any]:
    """One model of the registry with all that is known of it; `trained_by`: its presets."""
    entry = entries()[kind]
    with torch.no_grad(), one_thread():  # in many small steps, after each of which several wait for each other
        found = abilities(small_model(kind, *trained_by[:1]))
    return {
        "kind": kind,
        **{name: getattr(entry, name) for name in ("title", "paper", "memory", "state_floats")},
        "settings": sorted(entry.uses),
        "presets": list(trained_by),
        "abilities": {name: dataclasses.asdict(answer) for name, answer in found.items()},
    }


def _answer(ability: Callable[[Trial], str], trial: Trial) -> Answer:
    try:
        return Answer(True, ability(trial))
    except ValueError as refusal:
        return Answer(False, str(refusal))
