"""What is trained and how much is asked: the tables of presets/benchmark/*.toml, and the configuration of a cell."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from mnemon import presets
from mnemon.data.named_sets import CATALOG
from mnemon.registry import entries
from mnemon.training import checkpoint
from mnemon.training.config import Config, nearest, parse, read_values

FOLDER = Path(presets.__file__).parent / "benchmark"


@dataclass(frozen=True)
class Baseline:
    """A memory that is only written and read: what it is, what it holds, where it comes from."""

    title: str
    memory: str
    paper: str


UNTRAINED: dict[str, Baseline] = {
    "hopfield-hebb": Baseline("Hopfield network, Hebb's rule", "a weight for every pair of pixels", "Hopfield, 1982"),
    "hopfield-storkey": Baseline(
        "Hopfield network, Storkey's rule", "a weight for every pair of pixels", "Storkey and Valabregue, 1999"
    ),
    "modern-hopfield": Baseline("modern Hopfield retrieval", "every frame", "Ramsauer et al., 2020"),
    "slots": Baseline("gives back the nearest kept frame", "as many frames as fit", ""),
    "copy": Baseline("gives back the cue", "none", ""),
}
"""Memories that are only written and read, beside those of the registry."""
BITS_ONLY = ("hopfield-hebb", "hopfield-storkey")
SECTIONS = ("data", "model", "objective", "training")
OWN = (*SECTIONS, "stages", "growth", "on", "step_ms", "differs")
"""What a model's table may hold."""


PLAIN: Mapping[str, Any] = {"differs": "nothing", "step_ms": 10.0}
"""Of a model without a table of its own: the settings that all have, and a guess at the time of a step."""


def kinds() -> tuple[str, ...]:
    """All that take part: the models of the registry, those that installed packages bring, what is not trained."""
    return (*entries(), *UNTRAINED)


@dataclass(frozen=True)
class Sizes:
    """How much is asked: see the comments in memory.toml."""

    test_images: int
    episodes: int
    samples: int
    reads: tuple[int, ...]
    recall_episodes: int
    lengths: tuple[int, ...]
    clusters: tuple[int, ...]
    slots: tuple[int, ...]
    kept: tuple[int, ...]
    memory_floats: int
    distractors: tuple[int, ...]
    fewshot: tuple[tuple[int, int], ...]
    fewshot_queries: int
    fewshot_samples: int
    judge_steps: int
    repeats: int
    corruptions: Mapping[str, tuple[float, ...]]


@dataclass(frozen=True, eq=False)
class Protocol:
    """One protocol for all models. `tables` are those of its file."""

    name: str
    tables: Mapping[str, Any]

    @classmethod
    def load(cls, quick: bool = False) -> Protocol:
        name = "memory-quick" if quick else "memory"
        return cls.of(name, _tables(FOLDER / f"{name}.toml"))

    @classmethod
    def of(cls, name: str, tables: Mapping[str, Any]) -> Protocol:
        known = entries()
        models = dict.fromkeys(known, PLAIN) | dict(tables["models"])
        for kind, table in models.items():
            if kind not in known:
                raise ValueError(f"{name}: models.{kind}: no such model{nearest(kind, known)}")
            for key in table:
                if key not in OWN:
                    raise ValueError(f"{name}: models.{kind}.{key}: unknown{nearest(key, OWN)}")
        return cls(name, {**tables, "models": models})

    @property
    def sets(self) -> tuple[str, ...]:
        """The data sets, in the order of the file."""
        tables = self.tables["sets"]
        return tuple(tables.get("only", [name for name in tables if name != "only"]))

    def seeds(self, data: str) -> tuple[int, ...]:
        return tuple(self.tables["sets"][data]["seeds"])

    @cached_property
    def sizes(self) -> Sizes:
        values = dict(self.tables["sizes"])
        lists = ("reads", "lengths", "clusters", "slots", "kept", "distractors")
        values |= {name: tuple(values[name]) for name in lists}
        values["fewshot"] = tuple(tuple(pair) for pair in values["fewshot"])
        values["corruptions"] = {name: tuple(levels) for name, *levels in values["corruptions"]}
        return Sizes(**values)

    @property
    def epochs(self) -> int:
        """Of the same number of updates for all models and data sets, whatever a pass over the images has."""
        return max(1, round(self.tables["updates"] / self.tables["base"]["data"]["batches_per_epoch"]))

    @property
    def updates(self) -> int:
        return self.epochs * int(self.tables["base"]["data"]["batches_per_epoch"])

    @property
    def train_images(self) -> int | None:
        """Train on the first so many images only; all when absent."""
        value = self.tables.get("train_images")
        return None if value is None else int(value)

    def trains_on_classes(self, data: str) -> bool:
        """Whether episodes of the training are of a few classes; what a model has of its own does not count."""
        return bool(self.tables["sets"][data]["data"]["episodes"] == "classes")

    def differs(self, kind: str) -> str:
        """What a model has of its own, and why."""
        if kind in UNTRAINED:
            return f"not trained: {UNTRAINED[kind].title}"
        return str(self.tables["models"][kind]["differs"])

    def estimated_seconds(self, kind: str) -> tuple[float, float]:
        """What a cell costs on a data-centre GPU: its updates, and all else."""
        others = float(self.tables["cell_seconds"])
        if kind in UNTRAINED:
            return 0.0, 2 * others if kind in BITS_ONLY else others / 3  # bits turn one after another
        return self.updates * self.tables["models"][kind]["step_ms"] / 1000, others

    def config(self, data: str, kind: str, *, seed: int) -> Config:
        """What a cell trains."""
        if data not in self.tables["sets"]:
            raise ValueError(f"--data: no data set {data!r} in the benchmark{nearest(data, self.sets)}")
        own = self.tables["models"].get(kind, {})
        parts = (self.tables["base"], self.tables["sets"][data], own, own.get("on", {}).get(data, {}))
        values: dict[str, Any] = {}
        for part in parts:
            values = presets.merge(values, {key: part[key] for key in (*SECTIONS, "stages") if key in part})
        values["stages"] = _stages(values["stages"], self.epochs)
        values["name"] = f"{self.name}-{data}-{kind}"
        values["training"]["seed"] = seed
        if kind not in UNTRAINED:
            values["model"] = {**values["model"], "kind": kind}
        if "growth" in own:
            values["data"]["growth"] = max(1, round(own["growth"] * self.epochs))
        return parse(values)

    def config_by_catalogue(self, data: str, kind: str, *, seed: int) -> Config:
        """The same, with images of the size that the catalogue says. No image is read."""
        config = self.config(data, kind, seed=seed)
        entry = CATALOG.get(config.data.name)
        return replace(config, model=replace(config.model, image_shape=None if entry is None else entry.image_shape))

    def settings(self, config: Config) -> dict[str, Any]:
        """All that decides a cell's numbers: answers under other settings are not mixed."""
        return {"config": config.as_dict(), "sizes": self.tables["sizes"], "train_images": self.train_images}


def fingerprint(settings: Mapping[str, Any]) -> str:
    told = json.dumps(list(settings.values()), sort_keys=True)
    return hashlib.blake2b(told.encode(), digest_size=8).hexdigest()


def differing(asked: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """What differs between the settings asked for and those read from a file. A setting that this version knows and
    the file does not has its default."""
    config = checkpoint.differences(asked["config"], parse(found["config"]).as_dict())
    return config + [
        f"{name} is {found[name]}, not {asked[name]}"
        for name in ("sizes", "train_images")
        if json.dumps(found[name], sort_keys=True) != json.dumps(asked[name], sort_keys=True)
    ]


def _stages(stages: list[Mapping[str, Any]], epochs: int) -> list[dict[str, Any]]:
    """Shares of the updates as whole epochs; the last stage takes what is left."""
    made, left = [], epochs
    for number, stage in enumerate(stages):
        values = dict(stage)
        share = values.pop("share")
        own = left if number + 1 == len(stages) else max(1, round(share * epochs)) if left > 1 else 0
        left -= own
        if not own:
            continue
        values["epochs"] = own
        if "kl_warmup" in values:
            values["kl_warmup"] = values["kl_warmup"] * own
        if "alpha_last" in values:
            values["alpha_factor"] = (values.pop("alpha_last") / values["alpha"]) ** (1 / own)
        made.append(values)
    return made


def _tables(path: Path) -> dict[str, Any]:
    values = read_values(path)
    base = values.pop("extends", None)
    return values if base is None else presets.merge(_tables(path.parent / base), values)
