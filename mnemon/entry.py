"""What the registry knows of a model, and the nets that its settings ask for.

A model of your own is one file that ends in an `Entry`: see docs/extending.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mnemon.core.protocol import MemoryModel
from mnemon.nets.codec import Codec
from mnemon.training.sections import ModelConfig

SHARED = frozenset({"kind", "image_shape", "likelihood", "architecture", "num_filters", "code_dim"})
"""Settings that every model takes."""


@dataclass(frozen=True)
class Entry:
    """A model of the registry.

    title         what it is called
    paper         where it comes from
    memory        what its memory is, in a few words
    state_floats  numbers in one episode's memory, in the symbols of `mnemon.registry.SYMBOLS`
    uses          settings of `ModelConfig` that it takes beside the shared ones; it refuses the others
    build         makes it, with fresh weights
    floor         the model without a memory that has the same nets; beside it the benchmark shows what the memory adds
    """

    title: str
    paper: str
    memory: str
    state_floats: str
    uses: frozenset[str]
    build: Callable[[ModelConfig], MemoryModel]
    floor: str = ""


def codec_of(config: ModelConfig, **options: Any) -> Codec:
    """The encoder, the decoder and the likelihood that a model's settings ask for."""
    assert config.image_shape is not None
    return Codec.convolutional(
        config.image_shape,
        config.code_dim,
        likelihood=config.likelihood,
        architecture=config.architecture,
        num_filters=config.num_filters,
        **options,
    )


def given(config: ModelConfig, *names: str) -> dict[str, Any]:
    """The settings that were given; the classes' own defaults stand for the others."""
    values = {name: getattr(config, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}
