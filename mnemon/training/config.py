"""What an experiment is: frozen dataclasses, read from TOML or JSON; an unknown key fails with its nearest match."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from mnemon.memories.slots import Similarity
from mnemon.nets.codec import Architecture
from mnemon.nets.sets import PoolingKind
from mnemon.objectives import EstimatorKind
from mnemon.training.parsing import assign_setting, build_settings, read_value
from mnemon.training.parsing import nearest as nearest

Weighting = Literal["none", "thesis_5_14", "thesis_6_13", "thesis_6_14"]


@dataclass(frozen=True)
class DataConfig:
    """Which images, how they are prepared, and how they are cut into episodes."""

    name: str = "glyphs"
    extra: tuple[str, ...] = ()
    """Further data sets of the same image size that are trained on together with the first."""
    image_shape: tuple[int, int, int] | None = None
    """(channels, height, width) that the pictures of a folder are brought to; needed when their sizes differ."""
    binarise: Literal["none", "static", "dynamic", "fixed"] = "none"
    threshold: int = 127
    dequantise: bool = False
    validation: float = 0.1
    validation_groups: int | None = None
    """Hold out this many whole groups (alphabets) instead, for data that have groups."""
    validation_split: bool = False
    """Take the data set's own validation split instead, for those that have one."""
    classes: tuple[int, ...] | None = None
    """Only these classes, in training and evaluation."""
    quarter_turns: bool = False
    """Train also on images turned by 90, 180 and 270 degrees, which make classes of their own."""
    episodes: Literal["iid", "growing", "classes", "ragged", "few_shot", "recall", "sets", "factors"] = "iid"
    """few_shot: of each class some images are written and `targets` others scored. recall: all are written, and
    `targets` of them scored. sets: each class is one data set, and comes once an epoch. factors: the images of an
    episode have some of their factors in common, and differ in the others."""
    constant: Literal["one", "any"] = "one"
    """Of episodes of kind factors: exactly one factor is the same in all images, or any of them, also none or all."""
    constant_shares: tuple[float, ...] = ()
    """How often each factor is the constant one, relative to the others; equally often when absent."""
    episode_length: int = 64
    growth: int = 1
    """Epochs after which episodes of kind "growing" double, from one frame up to episode_length; validation has whole
    ones all along."""
    min_length: int = 1
    """Ragged episodes are between this and episode_length long."""
    num_classes: int = 8
    """Classes in an episode of kind "classes" or "few_shot"; each gives episode_length / num_classes items."""
    targets: int | None = None
    """Scored items: of each class (few_shot; the others are written), or of the episode (recall)."""
    batch_size: int = 16
    duplicate: int = 1
    """Each batch is processed this often at once, with independent draws (VBM, table 2: 8 x 2)."""
    on_device: bool = True
    """Hold the images on the GPU when they take less than half of its free memory."""


@dataclass(frozen=True)
class RegulariserConfig:
    """The stochastic regulariser t = gamma - epsilon + delta Beta(alpha, beta) (VBM, 3.2.3)."""

    gamma: float = 0.5
    epsilon: float = 0.1
    delta: float = 0.2
    alpha: float = 8.0
    beta: float = 8.0
    always: bool = False
    """Also when evaluating, with t at its mean."""


@dataclass(frozen=True)
class ModelConfig:
    """Which model (see `mnemon.registry`) and its sizes; what a model has no use for, it refuses."""

    kind: str = "vbm-mixture"
    image_shape: tuple[int, int, int] | None = None
    """(channels, height, width); taken from the data when absent."""
    likelihood: Literal["bernoulli", "gaussian", "logistic_mixture", "normal"] = "bernoulli"
    architecture: Architecture = "improved"
    num_filters: int = 32
    code_dim: int = 64
    code_var: float | None = None
    num_slots: int | None = None
    num_clusters: int | None = None
    num_segments: int | None = None
    num_steps: int | None = None
    noise_var: float | None = None
    slot_var: float | None = None
    location_var: float | None = None
    online: bool | None = None
    sampled_terms: bool = False
    write_gradient: Literal["fixed", "through"] = "fixed"
    online_chunks: int | None = None
    cue_weight: float = 0.0
    context_dim: int | None = None
    hidden: int | None = None
    layer_dim: int | None = None
    """Size of each stochastic layer of a full statistician."""
    num_layers: int | None = None
    pooling: PoolingKind | None = None
    num_contexts: int | None = None
    constant: Literal["one", "any"] | None = None
    """Whether exactly one context is constant in a data set, or any of them, also none or all."""
    supervised: bool = False
    """Training is told which contexts are constant (weak supervision)."""
    contexts: Literal["thesis", "tied"] | None = None
    """How contexts are inferred: see `mnemon.models.context_aware`."""
    autoencoder_weight: float | None = None
    trainable_prior: bool = False
    embedding_dim: int | None = None
    similarity: Similarity | None = None
    flat_prior: bool = False
    content_dim: int | None = None
    content_std: float | None = None
    num_matching_steps: int | None = None
    num_reads: int | None = None
    map_shape: tuple[int, int, int] | None = None
    """(channels, height, width) of a spatial memory."""
    read_size: int | None = None
    """Pixels on a side of what is read of it at once."""
    dense_readout: bool = False
    """Kanerva++ without block memory: the prior of codes sees the whole map and the keys through dense layers."""
    input_var: float | None = None
    """Variance of the noise on codes that a pseudo-inverse memory is written with in training."""
    inverse_steps: int | None = None
    """Steps of each pseudo-inverse; 7 when absent."""
    energy: Literal["gated", "resnet", "conv", "conv_large"] = "gated"
    """The net of an energy-based memory (EBMM, B.1 to B.4)."""
    dynamic_size: int | None = None
    """Its writable units or channels."""
    num_hops: int | None = None
    write_steps: int | None = None
    read_steps: int | None = None
    write_rate: tuple[float, float, float] | None = None
    """Rates of a write before training: of the energy, the gradient norm and the prior term."""
    read_rate: float | None = None
    gradient_term: bool = True
    """Write with the gradient norm among the terms (EBMM, figure 4)."""
    stepwise: bool = True
    """Train every read step, not the last alone (EBMM, A.4)."""
    recompute: bool = False
    """Train with less memory and more time: what a step of a write or a read computes is computed anew for the
    gradient."""
    vary_items: bool = False
    """In training, explain each target from a random part of the written items."""
    regulariser: RegulariserConfig | None = None


@dataclass(frozen=True)
class ObjectiveConfig:
    """What training maximises, in nats per frame.

    conditional - memory_weight * memory_kl + recall_weight * log p(x | recall of a corrupted x).
    The defaults are the joint bound. `write_fraction` below 1 writes a random subset of each episode and
    scores all of it. `bound_weight` scales the bound's part; reported bounds are never weighted.

    `estimator` says how the bound's gradient is estimated (see `mnemon.objectives.Estimator`), from how many samples
    and at which temperature; absent, the model's own choice, and the number that it is used with (VIMCO: 4).
    """

    memory_weight: float = 1.0
    address_lag: float = 1.0
    """In a warm-up, address_kl is weighted by this power of the other KL terms' weight: above 1, addresses stay cheap
    for longer than codes, and a model learns what they are good for before it pays for them."""
    bound_weight: float = 1.0
    write_fraction: float = 1.0
    recall_weight: float = 0.0
    recall_draws: bool = False
    """Draw the latents of the recall in place of taking their means. Of the true image (level = 0), and with the KL of
    its address, that is the bound whose q(code) is what the memory says: address and memory have to tell all."""
    corruption: str = "salt_and_pepper"
    level: float = 0.1
    estimator: EstimatorKind | None = None
    num_samples: int | None = None
    temperature: float = 1.0


@dataclass(frozen=True)
class StageConfig:
    """One stage of a schedule. Each begins with the best weights so far and a fresh optimiser."""

    epochs: int = 100
    leftover: bool = False
    """Add the epochs that the stage before left unused when it stopped early (VBM, F.2.2)."""
    learning_rate: float = 1e-3
    decay: Literal["constant", "cosine", "one_cycle"] = "constant"
    """cosine: down to 0. one_cycle: first a linear rise, for the share `warmup` of the stage (Kanerva++, E)."""
    warmup: float = 0.0
    patience: int = 10
    """Epochs without a better validation bound before the stage stops; 0: never."""
    kl_warmup: float = 0.0
    """Epochs over which the weight of the KL terms rises from 0 to 1: a memory is first filled, then made cheap."""
    weighting: Weighting = "none"
    """Weights of the bound's parts by omega = 1 + alpha (see `mnemon.training.schedules`)."""
    alpha: float = 1.0
    alpha_factor: float = 0.5
    """What alpha begins with, and what it is multiplied by after each epoch."""
    code_weight: float = 1.0
    """Of the codes' KL, beside that of the weighting: large, and what a context can hold is not put into the codes."""
    estimator: EstimatorKind | None = None
    """In place of the objective's, for this stage."""
    temperature_from: float | None = None
    temperature_to: float = 0.5
    """The temperature of relaxed choices goes from the one to the other in the course of the stage."""
    regulariser: RegulariserConfig | None = None


@dataclass(frozen=True)
class TrainingConfig:
    """The optimiser and how the loop runs."""

    optimizer: Literal["adam", "lars_adam"] = "adam"
    """lars_adam: each layer's Adam step is scaled to trust_coefficient x learning_rate of the length of its weights."""
    trust_coefficient: float = 1.0
    beta1: float = 0.9
    beta2: float = 0.999
    weight_decay: float = 0.0
    weight_decay_form: Literal["decoupled", "l2"] = "decoupled"
    """As AdamW has it, or as the gradient of half its square norm, which Adam then scales. Learned contents of a memory
    are left alone."""
    weight_decay_on: Literal["all", "weights"] = "all"
    """weights: neither biases nor what norms scale and shift by (Kanerva++, E)."""
    loss_unit: Literal["frame", "pixel"] = "frame"
    """Nats per frame, or per pixel and channel: what clip_norm and the optimiser's epsilon are measured against."""
    clip_norm: float | None = None
    precision: Literal["32-true", "bf16-mixed", "64-true"] = "32-true"
    seed: int = 0
    log_every: int = 50
    checkpoint_every: int | None = None
    """Batches between checkpoints within an epoch; one is always written at an epoch's end."""
    validation_batches: int | None = None
    tensorboard: bool = False
    graphs: Literal["none", "writes", "steps"] = "steps"
    """On a GPU, replay as CUDA graphs: nothing, the memory's sweeps, or forward and backward of the whole step. Several
    processes share their gradients during the backward pass, and replay sweeps at most."""


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
        "context_dim", "hidden", "layer_dim", "num_layers", "num_contexts", "embedding_dim", "content_dim",
        "num_matching_steps", "num_reads", "read_size", "inverse_steps", "dynamic_size", "num_hops", "write_steps",
        "read_steps",
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
    if not config.objective.address_lag > 0:
        raise ValueError(f"objective.address_lag: expected above 0, got {config.objective.address_lag}")
    _check_targets(config)
    for number, stage in enumerate(config.stages):
        for name in ("epochs", "patience", "kl_warmup"):
            if getattr(stage, name) < 0:
                raise ValueError(f"stages.{number}.{name}: expected at least 0, got {getattr(stage, name)}")
        _check_warmup(f"stages.{number}.warmup", stage)
        if stage.alpha < 0 or not 0 < stage.alpha_factor <= 1:
            raise ValueError(
                f"stages.{number}.alpha: expected alpha of at least 0 and alpha_factor above 0, at most 1, got "
                f"{stage.alpha} and {stage.alpha_factor}"
            )
    if not config.training.trust_coefficient > 0:
        raise ValueError(f"training.trust_coefficient: expected above 0, got {config.training.trust_coefficient}")
    return config


def _check_warmup(where: str, stage: StageConfig) -> None:
    if stage.decay != "one_cycle":
        if stage.warmup:
            raise ValueError(f"{where}: a {stage.decay} rate has no rise; leave it out, or take decay one_cycle")
    elif not 0 < stage.warmup < 1:
        raise ValueError(
            f"{where}: expected the share of the stage in which the rate rises, above 0 and below 1, got "
            f"{stage.warmup}; decay cosine goes without"
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
