"""From a configuration to a model: its nets, its memory, and the sizes that stand where none are given.

One function for each model of `mnemon.registry`, which says what it is and which settings it takes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from mnemon.entry import codec_of, given
from mnemon.memories import KanervaMemory
from mnemon.memories.base import LatentMemory
from mnemon.memories.pseudo_inverse import PseudoInverseMemory
from mnemon.models import (
    VAE,
    AddressingModel,
    ContextAwareLearner,
    FullStatistician,
    KanervaBlocks,
    KanervaMachine,
    KanervaPlusPlus,
    MatchingModel,
    MemoryVAE,
    NeuralStatistician,
    PseudoInverseModel,
    SoftAttentionModel,
)
from mnemon.models.codec_model import CodecModel
from mnemon.models.energy import EnergyModel
from mnemon.nets.codec import Codec
from mnemon.nets.conditional import ConditionalCodec, embedding_net
from mnemon.nets.contexts import ConditionalContexts, Contexts, TiedContexts
from mnemon.nets.energy import EnergyNet, GatedEnergy
from mnemon.nets.energy_conv import ConvEnergy, ResNetEnergy
from mnemon.nets.energy_pairwise import PairwiseEnergy
from mnemon.nets.energy_reconstruction import ReconstructionEnergy
from mnemon.nets.matching import matching_nets
from mnemon.nets.mlp import mlp
from mnemon.nets.residual import RESIDUAL_WIDTH
from mnemon.nets.resnet_tsm import tsm_codec
from mnemon.training.config import ModelConfig

CONTEXT_SIZES = ("num_contexts", "context_dim", "layer_dim", "hidden")
FULL_SIZES = ("context_dim", "layer_dim", "num_layers")
EMBEDDING_DIM = 128
"""VMA, 4.2."""
LARGE_IMAGE = 64
"""Pixels on a side from which on residual nets begin with ResNet's own stem, which leaves a quarter of them."""


def memory_vae(memory_class: type[LatentMemory], *names: str, **fixed: Any) -> Callable[[ModelConfig], CodecModel]:
    """What builds a MemoryVAE with a memory: `names` are the settings that it takes, `fixed` its other options."""

    def build(config: ModelConfig) -> CodecModel:
        options = given(config, "noise_var", "slot_var", *names)
        memory = memory_class(config.code_dim, config.num_slots or 32, **options, **fixed)
        return MemoryVAE(
            codec_of(config, code_var=config.code_var),
            memory,
            num_steps=config.num_steps,
            regulariser=config.regulariser,
            sampled_terms=config.sampled_terms,
            write_gradient=config.write_gradient,
            online_chunks=config.online_chunks,
            cue_weight=config.cue_weight,
        )

    return build


def vae(config: ModelConfig) -> CodecModel:
    return VAE(codec_of(config))


def statistician(config: ModelConfig) -> CodecModel:
    return NeuralStatistician(codec_of(config, head=False), **given(config, "context_dim", "hidden"))


def full_statistician(config: ModelConfig) -> CodecModel:
    sizes = {"context_dim": 3, "layer_dim": 32, "num_layers": 2, **given(config, *FULL_SIZES)}
    if config.code_dim != ModelConfig.code_dim:
        raise ValueError("model.code_dim: statistician-full decodes its layers and its context; set layer_dim instead")
    code_dim = sizes["num_layers"] * sizes["layer_dim"] + sizes["context_dim"]
    width = {} if config.architecture == "residual" else {"encoding_dim": config.hidden or RESIDUAL_WIDTH}
    codec = codec_of(dataclasses.replace(config, code_dim=code_dim), head=False, **width)
    return FullStatistician(codec, **sizes, **given(config, "hidden", "pooling", "count_items"))


def context_aware(config: ModelConfig) -> CodecModel:
    sizes = {"num_contexts": 2, "context_dim": 64, "layer_dim": 16, "hidden": 256, **given(config, *CONTEXT_SIZES)}
    if config.code_dim != ModelConfig.code_dim:
        raise ValueError("model.code_dim: context-aware decodes its contexts and its code; set layer_dim instead")
    number, context_dim, layer_dim, hidden = (sizes[name] for name in CONTEXT_SIZES)
    code_dim = number * context_dim + layer_dim
    codec = codec_of(dataclasses.replace(config, code_dim=code_dim), head=False, encoding_dim=hidden)
    nets: Contexts
    if config.pooling is not None and config.supervised and config.contexts != "thesis":
        raise ValueError(
            f"model.pooling: tied contexts add up what items say, and a supervised learner pools nothing else, got "
            f"{config.pooling}; leave it out, or set model.contexts=thesis"
        )
    if config.contexts == "thesis":
        nets = ConditionalContexts(hidden, number, context_dim, layer_dim, hidden, config.pooling or "mean")
    else:
        nets = TiedContexts(hidden, number, context_dim, layer_dim, hidden)
    options = given(config, "constant", "pooling", "prior_components")
    return ContextAwareLearner(codec, nets, number, context_dim, supervised=config.supervised, **options)


def kanerva(config: ModelConfig) -> CodecModel:
    return _machine(config, codec_of(config, head=False, encoding_dim=config.code_dim))


def _machine(config: ModelConfig, codec: Codec, **options: Any) -> CodecModel:
    memory = KanervaMemory(config.code_dim, config.num_slots or 32, **given(config, "noise_var", "slot_var", "online"))
    options = given(config, "autoencoder_weight") | options
    return KanervaMachine(codec, memory, trainable_prior=config.trainable_prior, **options)


def _conditional(config: ModelConfig, **options: Any) -> tuple[ConditionalCodec, Any]:
    """Nets that see a memory's content, and the net that gives contents their keys."""
    assert config.image_shape is not None
    nets: dict[str, Any] = {"architecture": config.architecture, "num_filters": config.num_filters}
    codec = ConditionalCodec.of(
        config.image_shape,
        config.code_dim,
        likelihood=config.likelihood,
        content_dim=config.content_dim,
        **nets,
        **options,
    )
    return codec, embedding_net(codec.content_shape, config.embedding_dim or EMBEDDING_DIM, **nets)


def addressing(config: ModelConfig) -> CodecModel:
    codec, item_net = _conditional(config)
    size = config.embedding_dim or EMBEDDING_DIM
    query_net = embedding_net(codec.image_shape, size, architecture=config.architecture, num_filters=config.num_filters)
    options = given(config, "similarity", "num_slots", "content_std")
    return AddressingModel(codec, item_net, query_net, size, learned_prior=not config.flat_prior, **options)


def soft_attention(config: ModelConfig) -> CodecModel:
    codec, item_net = _conditional(config, conditional_prior=False, conditional_posterior=False)
    size = config.embedding_dim or EMBEDDING_DIM
    query_net = mlp((config.code_dim, 2 * size, size))
    return SoftAttentionModel(codec, item_net, query_net, **given(config, "similarity", "num_slots", "content_std"))


def matching(config: ModelConfig) -> CodecModel:
    assert config.image_shape is not None
    nets: dict[str, Any] = {"architecture": config.architecture, "num_filters": config.num_filters}
    size = config.embedding_dim or EMBEDDING_DIM
    codec, value_net = matching_nets(config.image_shape, config.code_dim, size, likelihood=config.likelihood, **nets)
    item_net, start_net = (embedding_net(config.image_shape, size, **nets) for _ in range(2))
    code_net = mlp((config.code_dim, 2 * size, size))
    options = given(config, "similarity", "num_matching_steps", "vary_items")
    return MatchingModel(codec, item_net, value_net, start_net, code_net, size, **options)


def _tsm_codec(config: ModelConfig, **options: Any) -> Codec:
    """The nets of Kanerva++, which have no other architectures."""
    assert config.image_shape is not None
    if config.architecture != ModelConfig.architecture:
        raise ValueError(
            f"model.architecture: {config.kind} has nets of its own, got {config.architecture}; leave it out"
        )
    sizes: dict[str, Any] = {"num_filters": config.num_filters, **given(config, "hidden")}
    sizes["stem"] = "large" if min(config.image_shape[1:]) >= LARGE_IMAGE else "small"
    return tsm_codec(config.image_shape, config.code_dim, likelihood=config.likelihood, **sizes, **options)


def kanerva_tsm(config: ModelConfig) -> CodecModel:
    codec = _tsm_codec(config, head=False, encoding_dim=config.code_dim)
    return _machine(config, codec, encode_together=True)


def pseudo_inverse(config: ModelConfig) -> CodecModel:
    options = given(config, "input_var", "inverse_steps")
    memory = PseudoInverseMemory(config.code_dim, config.num_slots or 32, **options)
    codec = _tsm_codec(config, head=False, encoding_dim=config.code_dim)
    options = given(config, "autoencoder_weight")
    return PseudoInverseModel(codec, memory, shared_noise=config.shared_noise, **options)


def vae_tsm(config: ModelConfig) -> CodecModel:
    return VAE(_tsm_codec(config))


def kanerva_pp(config: ModelConfig) -> CodecModel:
    if config.block_write:
        return _kanerva_blocks(config)
    sizes: dict[str, Any] = {"num_filters": config.num_filters, **given(config, "hidden")}
    options = given(config, "num_reads", "map_shape", "read_size")
    return KanervaPlusPlus(_tsm_codec(config), dense_readout=config.dense_readout, **sizes, **options)


def _kanerva_blocks(config: ModelConfig) -> CodecModel:
    if config.dense_readout:
        raise ValueError(
            "model.block_write: expected dense_readout or block_write, got both; dense layers read no blocks"
        )
    if config.num_reads not in (None, 1):
        raise ValueError(
            f"model.num_reads: expected 1 with block_write, got {config.num_reads}; a frame has one block, make it "
            "larger by read_size"
        )
    return KanervaBlocks(_tsm_codec(config), **given(config, "map_shape", "read_size"))


def _energy_net(config: ModelConfig) -> EnergyNet:
    assert config.image_shape is not None
    sizes = given(config, "dynamic_size", "hidden", "num_hops")
    if config.energy != "reconstruction" and config.embedding_dim is not None:
        raise ValueError(f"model.embedding_dim: the {config.energy} energy has no keys; leave it out")
    if config.energy == "pairwise":
        if sizes:
            raise ValueError(f"model.{next(iter(sizes))}: a pairwise energy has no sizes to choose; leave it out")
        return PairwiseEnergy(config.image_shape)
    if config.energy == "gated":
        return GatedEnergy(config.image_shape, **sizes)
    sizes["channels"] = config.num_filters
    if config.energy == "reconstruction":
        return _reconstruction_net(config, sizes)
    if config.energy == "resnet":
        return ResNetEnergy(config.image_shape, **sizes)
    return ConvEnergy(config.image_shape, both_halve=config.energy == "conv_large", **sizes)


def _reconstruction_net(config: ModelConfig, sizes: dict[str, Any]) -> ReconstructionEnergy:
    assert config.image_shape is not None
    if "num_hops" in sizes:
        raise ValueError("model.num_hops: a reconstruction energy has no hops; leave it out")
    keys = {} if config.embedding_dim is None else {"key_size": config.embedding_dim}
    return ReconstructionEnergy(config.image_shape, **sizes, **keys)


def energy(config: ModelConfig) -> EnergyModel:
    return EnergyModel(
        _energy_net(config),
        use_gradient=config.gradient_term,
        stepwise=config.stepwise,
        recompute=config.recompute,
        **given(config, "write_steps", "read_steps", "write_rate", "read_rate", "read_momentum", "reference_count"),
    )
