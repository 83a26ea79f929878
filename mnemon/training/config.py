"""What an experiment is: tables of settings, read from TOML or JSON; an unknown key fails with its nearest match."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mnemon.training.parsing import assign_setting, build_settings, read_value
from mnemon.training.parsing import nearest as nearest
from mnemon.training.sections import DataConfig, ModelConfig, ObjectiveConfig, StageConfig, TrainingConfig
from mnemon.training.sections import Weighting as Weighting


@dataclass(frozen=True)
class Config:
    """One experiment: everything that decides what is trained."""

    name: str
    description: str = ""
    paper: str | None = None
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    stages: tuple[StageConfig, ...] = (StageConfig(),)

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def with_settings(self, settings: Iterable[str]) -> Config:
        """Change single values: "training.seed=1", "stages.0.epochs=3"; values are read as TOML."""
        values = self.as_dict()
        for setting in settings:
            key, equals, text = setting.partition("=")
            if not equals:
                raise ValueError(f"--set: expected key=value, got {setting!r}; for example training.seed=1")
            assign_setting(values, key.strip(), read_value(text.strip()))
        return parse(values)


TARGETED = ("few_shot", "recall")
"""Kinds of episodes of which some items are scored."""
SIZES = {
    "data": (
        "episode_length", "growth", "min_length", "num_classes", "batch_size", "duplicate", "validation_groups",
        "targets",
    ),
    "model": (
        "num_filters", "code_dim", "num_slots", "num_clusters", "num_segments", "num_steps", "online_chunks",
        "context_dim", "hidden", "layer_dim", "num_layers", "num_contexts", "prior_components",
        "embedding_dim", "content_dim", "num_matching_steps",
        "num_reads", "read_size", "inverse_steps", "dynamic_size", "num_hops", "write_steps",
        "read_steps", "reference_count",
    ),
    "objective": ("num_samples",),
    "training": ("log_every", "checkpoint_every", "validation_batches"),
}  # fmt: skip
"""Settings that count something."""


def parse(values: Mapping[str, Any]) -> Config:
    """A configuration from nested dictionaries, as TOML and JSON give them."""
    config: Config = build_settings(Config, values, "")
    if not config.stages:
        raise ValueError("stages: expected at least one stage, got none")
    for where, names in SIZES.items():
        for name in names:
            value = getattr(getattr(config, where), name)
            if value is not None and value < 1:
                raise ValueError(f"{where}.{name}: expected at least 1, got {value}")
    if not 0 < config.objective.write_fraction <= 1:
        raise ValueError(
            f"objective.write_fraction: expected above 0, at most 1, got {config.objective.write_fraction}"
        )
    if config.objective.write_some and config.objective.write_fraction < 1:
        raise ValueError("objective.write_some: expected no write_fraction beside it, since it draws its own")
    _check_membership(config)
    if not config.objective.address_lag > 0:
        raise ValueError(f"objective.address_lag: expected above 0, got {config.objective.address_lag}")
    _check_targets(config)
    for number, stage in enumerate(config.stages):
        for name in ("epochs", "patience", "kl_warmup", "learning_rate"):
            if getattr(stage, name) < 0:
                raise ValueError(f"stages.{number}.{name}: expected at least 0, got {getattr(stage, name)}")
        _check_warmup(f"stages.{number}.warmup", stage)
        if stage.alpha < 0 or not 0 < stage.alpha_factor <= 1:
            raise ValueError(
                f"stages.{number}.alpha: expected alpha of at least 0 and alpha_factor above 0, at most 1, got "
                f"{stage.alpha} and {stage.alpha_factor}"
            )
        _check_weights(f"stages.{number}.latent_weights", stage)
    if config.training.seed < 0:
        raise ValueError(f"training.seed: expected at least 0, got {config.training.seed}")
    if not config.training.trust_coefficient > 0:
        raise ValueError(f"training.trust_coefficient: expected above 0, got {config.training.trust_coefficient}")
    return config


def _check_membership(config: Config) -> None:
    objective, where = config.objective, "objective.membership_weight"
    if not objective.membership_weight >= 0:
        raise ValueError(f"{where}: expected at least 0, got {objective.membership_weight}")
    if not objective.membership_weight:
        return
    if not objective.write_some and objective.write_fraction == 1:
        raise ValueError(f"{where}: needs items that are not written; set objective.write_some = true")
    if config.data.batch_size < 2 or config.data.duplicate > 1:
        raise ValueError(
            f"{where}: needs several episodes in a batch, each once, got data.batch_size = {config.data.batch_size} "
            f"and data.duplicate = {config.data.duplicate}"
        )


def _check_warmup(where: str, stage: StageConfig) -> None:
    if stage.decay != "one_cycle":
        if stage.warmup:
            raise ValueError(f"{where}: a {stage.decay} rate has no rise; leave it out, or take decay one_cycle")
    elif not 0 < stage.warmup < 1:
        raise ValueError(
            f"{where}: expected the share of the stage in which the rate rises, above 0 and below 1, got "
            f"{stage.warmup}; decay cosine goes without"
        )


def _check_weights(where: str, stage: StageConfig) -> None:
    if stage.weighting != "geometric":
        if stage.latent_weights is not None:
            raise ValueError(f"{where}: weighting {stage.weighting} has its own; leave it out, or take geometric")
    elif stage.latent_weights is None or min(stage.latent_weights) <= 0:
        raise ValueError(
            f"{where}: weighting geometric needs the weights it goes from and to, both above 0, got "
            f"{stage.latent_weights}"
        )


def _check_targets(config: Config) -> None:
    data = config.data
    if data.episodes not in TARGETED:
        if data.targets is not None:
            raise ValueError(
                f"data.targets: episodes of kind {data.episodes} score every item; leave it out, or take "
                f"{' or '.join(TARGETED)}"
            )
        return
    if data.targets is None:
        raise ValueError(f"data.targets: episodes of kind {data.episodes} need the number of items that are scored")
    if config.objective.write_some:
        raise ValueError(
            f"objective.write_some: episodes of kind {data.episodes} say themselves what is written; leave it out"
        )
    if config.objective.write_fraction < 1:
        raise ValueError(
            f"objective.write_fraction: episodes of kind {data.episodes} say themselves what is written; leave it out"
        )


def read_values(path: Path) -> dict[str, Any]:
    """The nested tables of a .toml or .json file."""
    text = path.read_text(encoding="utf-8")
    try:
        values = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except ValueError as error:
        raise ValueError(f"{path}: not a readable {path.suffix} file ({error})") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path}: expected tables of settings, got a {type(values).__name__}")
    return values
