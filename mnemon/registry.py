"""The models by name: what each is, which paper it comes from, and which settings it takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from mnemon import building
from mnemon.core.protocol import MemoryModel
from mnemon.memories import CategoricalMemory, GaussianMemory, MixtureMemory, TreeMemory
from mnemon.models import MemoryVAE, StochasticRegulariser
from mnemon.training.config import ModelConfig, nearest

SHARED = {"kind", "image_shape", "likelihood", "architecture", "num_filters", "code_dim"}
VARIANCES = {"noise_var", "slot_var"}
LATENT = VARIANCES | {
    "code_var",
    "num_slots",
    "num_steps",
    "sampled_terms",
    "write_gradient",
    "online_chunks",
    "cue_weight",
    "regulariser",
}
KANERVA = VARIANCES | {"num_slots", "online", "autoencoder_weight", "trainable_prior"}
SLOTS = {"embedding_dim", "similarity", "num_slots", "content_dim", "content_std"}
ENERGY = {
    "energy",
    "dynamic_size",
    "hidden",
    "num_hops",
    "write_steps",
    "read_steps",
    "write_rate",
    "read_rate",
    "gradient_term",
    "stepwise",
    "recompute",
}
CLUSTERS = LATENT | {"num_clusters", "location_var"}


@dataclass(frozen=True)
class Entry:
    """A model of the registry."""

    title: str
    paper: str
    memory: str
    state_floats: str
    uses: frozenset[str]
    build: Callable[[ModelConfig], MemoryModel]


def build_model(config: ModelConfig) -> MemoryModel:
    """The model that a configuration describes, with fresh weights."""
    if config.kind not in MODELS:
        raise ValueError(f"model.kind: unknown model {config.kind!r}{nearest(config.kind, MODELS)}")
    if config.image_shape is None:
        raise ValueError("model.image_shape: expected (channels, height, width), got nothing; train takes it from data")
    entry = MODELS[config.kind]
    for option in fields(config):
        given = getattr(config, option.name) != option.default
        if given and option.name not in SHARED | entry.uses:
            raise ValueError(
                f"model.{option.name}: {config.kind} has no use for it; it takes {', '.join(sorted(entry.uses)) or '-'}"
            )
    return entry.build(config)


def set_regulariser(model: MemoryModel, regulariser: Any) -> None:
    """Give a MemoryVAE another stochastic regulariser (a stage of a schedule may)."""
    if not isinstance(model, MemoryVAE):
        raise ValueError(f"stages.regulariser: {type(model).__name__} has no regulariser; only the VBM models do")
    model.regulariser = StochasticRegulariser(**vars(regulariser))


MODELS: dict[str, Entry] = {
    "vae": Entry(
        "variational autoencoder", "Kingma and Welling, 2013", "none (a count)", "1", frozenset(), building.vae
    ),
    "statistician": Entry(
        "neural statistician (basic)",
        "Edwards and Storkey, 2017",
        "a Gaussian context vector of size D",
        "2 D + pooled statistics",
        frozenset({"context_dim", "hidden"}),
        building.statistician,
    ),
    "statistician-full": Entry(
        "neural statistician (full)",
        "Edwards and Storkey, 2017; thesis, 5.1.2",
        "a Gaussian context vector of size D",
        "2 D + pooled statistics",
        frozenset({*building.FULL_SIZES, "hidden", "pooling", "count_items"}),
        building.full_statistician,
    ),
    "context-aware": Entry(
        "context-aware learner",
        "thesis, chapter 6",
        "K Gaussian contexts of size D, and which of them are constant",
        "2 K D + 2^K + pooled statistics",
        frozenset({*building.CONTEXT_SIZES, "constant", "pooling", "supervised", "contexts"}),
        building.context_aware,
    ),
    "dkm": Entry(
        "Dynamic Kanerva Machine",
        "Wu et al., 2018",
        "K slots, least-squares addresses",
        "K C + K^2",
        frozenset(KANERVA),
        building.kanerva,
    ),
    "vma": Entry(
        "variational memory addressing",
        "VMA, 2",
        "M stored items, or M learned contents (num_slots)",
        "M (D + E)",
        frozenset(SLOTS | {"flat_prior"}),
        building.addressing,
    ),
    "soft-attention": Entry(
        "soft attention over stored items",
        "VMA, 4.2",
        "M stored items, or M learned contents (num_slots)",
        "M (D + E)",
        frozenset(SLOTS),
        building.soft_attention,
    ),
    "gmn": Entry(
        "generative matching network",
        "Bartunov and Vetrov, 2016",
        "M stored items beside a learned pseudo-input",
        "M (D + E)",
        frozenset({"embedding_dim", "similarity", "num_matching_steps", "vary_items"}),
        building.matching,
    ),
    "kanerva-pp": Entry(
        "Kanerva++",
        "Ramapuram et al., 2021",
        "one map, computed from the episode, of which keys read windows",
        "3 H W",
        frozenset({"num_reads", "map_shape", "read_size", "hidden", "dense_readout"}),
        building.kanerva_pp,
    ),
    "dkm-tsm": Entry(
        "Dynamic Kanerva Machine, nets of Kanerva++",
        "Ramapuram et al., 2021",
        "K slots, least-squares addresses",
        "K C + K^2",
        frozenset(KANERVA),
        building.kanerva_tsm,
    ),
    "pseudo-inverse": Entry(
        "generative pseudo-inverse memory, nets of Kanerva++",
        "a later peer (ICLR 2022); section 13 of the design",
        "K slots, fitted to the episode by two pseudo-inverses",
        "K C",
        frozenset({"num_slots", "autoencoder_weight", "input_var", "inverse_steps"}),
        building.pseudo_inverse,
    ),
    "vae-tsm": Entry(
        "variational autoencoder, nets of Kanerva++",
        "Kingma and Welling, 2013",
        "none (a count)",
        "1",
        frozenset({"hidden"}),
        building.vae_tsm,
    ),
    "ebmm": Entry(
        "energy-based memory",
        "Bartunov et al., 2020",
        "fast weights of a deep energy, written by gradient steps, read by descent",
        "P (the writable weights)",
        frozenset(ENERGY),
        building.energy,
    ),
    "vbm-gaussian": Entry(
        "VBM, Gaussian addresses",
        "VBM, theorem 1",
        "K slots, weighted sums of them",
        "K C + K^2",
        frozenset(LATENT),
        building.memory_vae(GaussianMemory),
    ),
    "vbm-shifted": Entry(
        "VBM, Gaussian addresses with a location",
        "VBM, theorem 3",
        "K slots and a location",
        "K C + K^2 + C + 1",
        frozenset(LATENT | {"location_var"}),
        building.memory_vae(GaussianMemory, "location_var", shift=True),
    ),
    "vbm-categorical": Entry(
        "VBM, categorical addresses",
        "VBM, theorem 2",
        "K slots, one per item",
        "K C + K",
        frozenset(LATENT),
        building.memory_vae(CategoricalMemory),
    ),
    "vbm-mixture": Entry(
        "VBM, mixture",
        "VBM, theorem 4",
        "H clusters, each K slots and a location",
        "H (K C + K^2 + C + 1)",
        frozenset(CLUSTERS),
        building.memory_vae(MixtureMemory, "num_clusters", "location_var"),
    ),
    "vbm-tree": Entry(
        "VBM, tree",
        "VBM, theorem 5",
        "a mixture per segment of the code",
        "G H (K C/G + K^2 + C/G + 1) + H^G",
        frozenset(CLUSTERS | {"num_segments"}),
        building.memory_vae(TreeMemory, "num_clusters", "location_var", "num_segments"),
    ),
}
