"""The tables of an experiment's configuration: data, model, objective, stages, training, and their defaults.

What is asked of a single value is its annotation; what is asked beyond it is in `mnemon.training.config`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from mnemon.memories.regulariser import StochasticRegulariser
from mnemon.memories.slots import Similarity
from mnemon.nets.codec import Architecture
from mnemon.nets.sets import PoolingKind
from mnemon.objectives import EstimatorKind
from mnemon.training.parsing import build_settings

T = TypeVar("T")
Weighting = Literal["none", "thesis_5_14", "thesis_6_13", "thesis_6_14", "geometric"]


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
    batches_per_epoch: int | None = None
    """Batches of an epoch, cut from as many passes over the images as it takes; one pass when absent."""
    on_device: bool = True
    """Hold the images on the GPU when they take less than half of its free memory."""


@dataclass(frozen=True)
class ModelConfig:
    """Which model (see `mnemon.registry`) and its sizes; what a model has no use for, it refuses."""

    kind: str = "vbm-mixture"
    image_shape: tuple[int, int, int] | None = None
    """(channels, height, width); taken from the data when absent."""
    likelihood: Literal["bernoulli", "gaussian", "logistic_mixture", "linked_logistic_mixture", "normal"] = "bernoulli"
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
    count_items: bool = False
    """A full statistician's context is told how many items were pooled."""
    pooling: PoolingKind | None = None
    num_contexts: int | None = None
    constant: Literal["one", "any"] | None = None
    """Whether exactly one context is constant in a data set, or any of them, also none or all."""
    supervised: bool = False
    """Training is told which contexts are constant (weak supervision)."""
    contexts: Literal["thesis", "tied"] | None = None
    """How contexts are inferred: see `mnemon.models.context_aware`."""
    prior_components: int | None = None
    """Of a mixture that is fitted to the contexts of a context-aware learner; N(0, I) when absent."""
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
    block_write: bool = False
    """Kanerva++ whose frames write blocks of their own, of `read_size` pixels on a side: see `KanervaBlocks`."""
    input_var: float | None = None
    """Variance of the noise on codes that a pseudo-inverse memory is written with in training."""
    inverse_steps: int | None = None
    """Steps of each pseudo-inverse; 7 when absent."""
    shared_noise: bool = False
    """Train a pseudo-inverse memory with one noise for all addresses, as its published code does: see its model."""
    energy: Literal["gated", "resnet", "conv", "conv_large", "pairwise", "reconstruction"] = "gated"
    """The net of an energy-based memory (EBMM, B.1 to B.4); pairwise: a Hopfield network's couplings and thresholds;
    reconstruction: a matrix from keys of `embedding_dim` numbers to codes of `dynamic_size`."""
    dynamic_size: int | None = None
    """Its writable units or channels."""
    num_hops: int | None = None
    write_steps: int | None = None
    read_steps: int | None = None
    write_rate: tuple[float, float, float] | None = None
    """Rates of a write before training: of the energy, the gradient norm and the prior term."""
    read_rate: float | None = None
    read_momentum: float | None = None
    """The first momentum of a read before training; 0.9 when absent."""
    reference_count: int | None = None
    """Patterns of which each is written as strongly as one of fewer; 1, a plain mean, when absent."""
    gradient_term: bool = True
    """Write with the gradient norm among the terms (EBMM, figure 4)."""
    stepwise: bool = True
    """Train every read step, not the last alone (EBMM, A.4)."""
    recompute: bool = False
    """Train with less memory and more time: what a step of a write or a read computes is computed anew for the
    gradient."""
    vary_items: bool = False
    """In training, explain each target from a random part of the written items."""
    regulariser: StochasticRegulariser | None = None
    options: dict[str, Any] = field(default_factory=dict)
    """Settings of a model that brings its own: see docs/extending.md."""

    def read_options(self, kind: type[T]) -> T:
        """`options` as a dataclass, every key and value checked against its annotations."""
        options: T = build_settings(kind, self.options, "model.options")
        return options


@dataclass(frozen=True)
class ObjectiveConfig:
    """What training maximises, in nats per frame.

    conditional - memory_weight * memory_kl + recall_weight * log p(x | recall of a corrupted x), and beside it
    membership_weight * log_membership.
    The defaults are the joint bound. `write_fraction` below 1 writes a random subset of each episode and
    scores all of it; `write_some` does so with a part of any size, from one item to all. `bound_weight` scales the
    bound's part; reported bounds are never weighted.

    `estimator` says how the bound's gradient is estimated (see `mnemon.objectives.Estimator`), from how many samples
    and at which temperature; absent, the model's own choice, and the number that it is used with (VIMCO: 4).
    """

    memory_weight: float = 1.0
    address_lag: float = 1.0
    """In a warm-up, address_kl is weighted by this power of the other KL terms' weight: above 1, addresses stay cheap
    for longer than codes, and a model learns what they are good for before it pays for them."""
    bound_weight: float = 1.0
    write_fraction: float = 1.0
    write_some: bool = False
    membership_weight: float = 0.0
    """Of log_membership, in nats an episode: how surely an item that was not written is found, by contexts, to be of
    its episode among those of the batch. What contexts tell of a class then need not pay for itself in pixels. Needs
    items that are not written (`write_some` or `write_fraction`), and batches of several episodes."""
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
    """One stage of a schedule. Each begins with the weights that the one before kept, and a fresh optimiser."""

    epochs: int = 100
    leftover: bool = False
    """Add the epochs that the stage before left unused when it stopped early (VBM, F.2.2)."""
    learning_rate: float = 1e-3
    decay: Literal["constant", "cosine", "one_cycle"] = "constant"
    """cosine: down to 0. one_cycle: first a linear rise, for the share `warmup` of the stage (Kanerva++, E)."""
    warmup: float = 0.0
    patience: int = 10
    """Epochs without a better validation bound before the stage stops; 0: never."""
    keep: Literal["best", "last"] = "best"
    """Which weights a stage leaves: those of the best validation bound so far, or its last. A stage whose weighted
    objective is meant to lose in the plain bound (latents that are made dear) has to keep its last."""
    kl_warmup: float = 0.0
    """Epochs over which the weight of the KL terms rises from 0 to 1: a memory is first filled, then made cheap."""
    weighting: Weighting = "none"
    """Weights of the bound's parts by omega = 1 + alpha (see `mnemon.training.schedules`)."""
    alpha: float = 1.0
    alpha_factor: float = 0.5
    """What alpha begins with, and what it is multiplied by after each epoch."""
    latent_weights: tuple[float, float] | None = None
    """Of the geometric weighting: the weight of the KL terms when the stage begins and when it ends."""
    codes: bool = True
    """False: a context-aware learner is trained without its codes z, which are 0 and cost nothing, so that whatever is
    to be told about an item has to be told by contexts."""
    code_weight: float = 1.0
    """Of the codes' KL, beside that of the weighting: large, and what a context can hold is not put into the codes."""
    estimator: EstimatorKind | None = None
    """In place of the objective's, for this stage."""
    temperature_from: float | None = None
    temperature_to: float = 0.5
    """The temperature of relaxed choices goes from the one to the other in the course of the stage."""
    regulariser: StochasticRegulariser | None = None


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
    tf32: bool = True
    """Leave it to PyTorch whether a GPU rounds what it multiplies to 10 bits (by default, in convolutions). False: all
    23 bits; for energies, whose gradients are third derivatives."""
    seed: int = 0
    deterministic: bool = True
    """On a GPU, use kernels that sum in one order, so that the same seed gives the same weights, also when resumed.
    False: whichever kernel is fastest."""
    log_every: int = 50
    checkpoint_every: int | None = None
    """Batches between checkpoints within an epoch; one is always written at an epoch's end."""
    validation_batches: int | None = None
    tensorboard: bool = False
    channels_innermost: bool = True
    """On a GPU and in half precision, lay out maps with their channels innermost, as its convolutions take them. (At 32
    bits the few-shot VMA trained 8% slower so, and CPUs are slower too.)"""
    graphs: Literal["none", "writes", "steps"] = "steps"
    """On a GPU, replay as CUDA graphs: nothing, the memory's sweeps, or forward and backward of the whole step. Several
    processes share their gradients during the backward pass, and replay sweeps at most."""
