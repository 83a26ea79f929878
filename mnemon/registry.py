"""The models by name: what each is, which paper it comes from, and which settings it takes."""

from __future__ import annotations

from dataclasses import MISSING, fields
from importlib.metadata import entry_points

from mnemon import building
from mnemon.core.protocol import MemoryModel
from mnemon.entry import SHARED, Entry
from mnemon.memories import CategoricalMemory, GaussianMemory, MixtureMemory, TreeMemory
from mnemon.models import MemoryVAE, StochasticRegulariser
from mnemon.training.config import ModelConfig, nearest

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
    "embedding_dim",
    "dynamic_size",
    "hidden",
    "num_hops",
    "write_steps",
    "read_steps",
    "write_rate",
    "read_rate",
    "read_momentum",
    "reference_count",
    "gradient_term",
    "stepwise",
    "recompute",
}
CLUSTERS = LATENT | {"num_clusters", "location_var"}


GROUP = "mnemon.models"
"""Entry points of installed packages that bring models of their own."""
SYMBOLS = {
    "C": "size of a code",
    "K": "slots, or contexts",
    "H": "clusters",
    "G": "segments of a code",
    "M": "stored items",
    "X": "pixels of an image",
    "E": "size of a key",
    "D": "size of a context",
    "S": "ways in which contexts can be constant: K, or 2^K where any number of them may be",
    "P": "size of the pooled statistics",
    "A": "channels of the map",
    "V": "height of the map",
    "W": "width of the map, or writable weights",
}
"""What stands in `state_floats`."""


def entries() -> dict[str, Entry]:
    """The models of this package, and those that installed packages bring."""
    installed = {point.name: point.load() for point in entry_points(group=GROUP)}
    for kind, entry in installed.items():
        if not isinstance(entry, Entry):
            raise ValueError(f"{GROUP}: expected {kind} to name a mnemon.entry.Entry, got {type(entry).__name__}")
    return MODELS | installed


def build_model(config: ModelConfig) -> MemoryModel:
    """The model that a configuration describes, with fresh weights."""
    known = MODELS if config.kind in MODELS else entries()
    if config.kind not in known:
        raise ValueError(f"model.kind: unknown model {config.kind!r}{nearest(config.kind, known)}")
    if config.image_shape is None:
        raise ValueError("model.image_shape: expected (channels, height, width), got nothing; train takes it from data")
    entry = known[config.kind]
    for option in fields(config):
        default = option.default if option.default_factory is MISSING else option.default_factory()
        given = getattr(config, option.name) != default
        if given and option.name not in SHARED | entry.uses:
            raise ValueError(
                f"model.{option.name}: {config.kind} has no use for it; it takes {', '.join(sorted(entry.uses)) or '-'}"
            )
    return entry.build(config)


def set_regulariser(model: MemoryModel, regulariser: StochasticRegulariser) -> None:
    """Give a MemoryVAE another stochastic regulariser (a stage of a schedule may)."""
    if not isinstance(model, MemoryVAE):
        raise ValueError(f"stages.regulariser: {type(model).__name__} has no regulariser; only the VBM models do")
    model.regulariser = regulariser


MODELS: dict[str, Entry] = {
    "vae": Entry(
        "variational autoencoder",
        "Kingma and Welling, 2013",
        "none; counts what was written",
        "1",
        frozenset(),
        building.vae,
    ),
    "statistician": Entry(
        "neural statistician (basic)",
        "Edwards and Storkey, 2017",
        "a Gaussian context vector of size D",
        "2 D + P + 1",
        frozenset({"context_dim", "hidden"}),
        building.statistician,
        floor="vae",
    ),
    "statistician-full": Entry(
        "neural statistician (full)",
        "Edwards and Storkey, 2017; Durkan, 2017 (thesis), section 5.1.2",
        "a Gaussian context vector of size D",
        "2 D + P + 1",
        frozenset({*building.FULL_SIZES, "hidden", "pooling", "count_items"}),
        building.full_statistician,
    ),
    "context-aware": Entry(
        "context-aware learner",
        "Durkan, 2017 (thesis), chapter 6",
        "K Gaussian contexts of size D, and which of them are constant",
        "2 K D + S + P + 1",
        frozenset({*building.CONTEXT_SIZES, "constant", "pooling", "supervised", "contexts", "prior_components"}),
        building.context_aware,
    ),
    "dkm": Entry(
        "Dynamic Kanerva Machine",
        "Wu et al., 2018 (DKM)",
        "K slots, least-squares addresses",
        "K C + K^2",
        frozenset(KANERVA),
        building.kanerva,
        floor="vae",
    ),
    "vma": Entry(
        "variational memory addressing",
        "Bornschein et al., 2017 (VMA), section 2",
        "M stored items, or M learned contents (num_slots)",
        "M (X + E)",
        frozenset(SLOTS | {"flat_prior"}),
        building.addressing,
    ),
    "soft-attention": Entry(
        "soft attention over stored items",
        "Bornschein et al., 2017 (VMA), section 4.2",
        "M stored items, or M learned contents (num_slots)",
        "M (X + E)",
        frozenset(SLOTS),
        building.soft_attention,
    ),
    "gmn": Entry(
        "generative matching network",
        "Bartunov and Vetrov, 2016",
        "M stored items beside a learned pseudo-input",
        "M (X + E)",
        frozenset({"embedding_dim", "similarity", "num_matching_steps", "vary_items"}),
        building.matching,
    ),
    "kanerva-pp": Entry(
        "Kanerva++",
        "Ramapuram et al., 2021 (Kanerva++)",
        "one map, computed from the episode, of which keys read windows",
        "A V W",
        frozenset({"num_reads", "map_shape", "read_size", "hidden", "dense_readout", "block_write"}),
        building.kanerva_pp,
        floor="vae-tsm",
    ),
    "dkm-tsm": Entry(
        "Dynamic Kanerva Machine, nets of Kanerva++",
        "Ramapuram et al., 2021 (Kanerva++)",
        "K slots, least-squares addresses",
        "K C + K^2",
        frozenset(KANERVA),
        building.kanerva_tsm,
        floor="vae-tsm",
    ),
    "pseudo-inverse": Entry(
        "generative pseudo-inverse memory, nets of Kanerva++",
        "generative pseudo-inverse memory, ICLR 2022",
        "K slots, fitted to the episode by two pseudo-inverses",
        "K C",
        frozenset({"num_slots", "autoencoder_weight", "input_var", "inverse_steps", "shared_noise"}),
        building.pseudo_inverse,
        floor="vae-tsm",
    ),
    "vae-tsm": Entry(
        "variational autoencoder, nets of Kanerva++",
        "Kingma and Welling, 2013",
        "none; counts what was written",
        "1",
        frozenset({"hidden"}),
        building.vae_tsm,
    ),
    "ebmm": Entry(
        "energy-based memory",
        "Bartunov et al., 2020 (EBMM)",
        "fast weights of a deep energy, written by gradient steps, read by descent",
        "W",
        frozenset(ENERGY),
        building.energy,
    ),
    "vbm-gaussian": Entry(
        "VBM, Gaussian addresses",
        "Lingle (VBM), theorem 1",
        "K slots, weighted sums of them",
        "K C + K^2",
        frozenset(LATENT),
        building.memory_vae(GaussianMemory),
        floor="vae",
    ),
    "vbm-shifted": Entry(
        "VBM, Gaussian addresses with a location",
        "Lingle (VBM), theorem 3",
        "K slots and a location",
        "K C + K^2 + C + 1",
        frozenset(LATENT | {"location_var"}),
        building.memory_vae(GaussianMemory, "location_var", shift=True),
        floor="vae",
    ),
    "vbm-categorical": Entry(
        "VBM, categorical addresses",
        "Lingle (VBM), theorem 2",
        "K slots, one per item",
        "K C + K",
        frozenset(LATENT),
        building.memory_vae(CategoricalMemory),
        floor="vae",
    ),
    "vbm-mixture": Entry(
        "VBM, mixture",
        "Lingle (VBM), theorem 4",
        "H clusters, each K slots and a location",
        "H (K C + K^2 + C + 1)",
        frozenset(CLUSTERS),
        building.memory_vae(MixtureMemory, "num_clusters", "location_var"),
        floor="vae",
    ),
    "vbm-tree": Entry(
        "VBM, tree",
        "Lingle (VBM), theorem 5",
        "a mixture per segment of the code",
        "G H (K C/G + K^2 + C/G + 1) + H^G",
        frozenset(CLUSTERS | {"num_segments"}),
        building.memory_vae(TreeMemory, "num_clusters", "location_var", "num_segments"),
        floor="vae",
    ),
}
