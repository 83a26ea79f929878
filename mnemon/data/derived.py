"""Data sets that are made of others, or drawn: by name, for the catalog."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch

from mnemon.data.factors import black_and_white, rotated, split_classes, with_quarter_turns
from mnemon.data.glyph_factors import glyph_factors
from mnemon.data.images import ImageSet
from mnemon.data.synthetic import SET_SIZE, family_sets

Load = Callable[[str, str], ImageSet]
"""A set of the catalog by name and split."""
OMNIGLOT_CLASSES = {"train": 1200, "valid": 323, "test": 100}
"""Edwards and Storkey, 4.3."""
FAMILY_SETS = {"train": 10000, "test": 1000}
"""Thesis, 5.3.1."""


def make(name: str, split: str, load: Load) -> ImageSet:
    """The split of a derived set, from splits of the sets that it is made of."""
    if split == "valid" and name != "omniglot1200":
        raise ValueError(f"load: {name} has no split 'valid'; take train and split some off: data.split_off(0.1)")
    return dataclasses.replace(MAKERS[name](split, load), name=name, split=split)


def _families(split: str, load: Load) -> ImageSet:
    """Each set is a class; its family is the group."""
    drawn = family_sets(FAMILY_SETS[split], seed=int(split == "test"))
    labels = torch.arange(len(drawn.family)).repeat_interleave(SET_SIZE)
    return ImageSet(drawn.values.reshape(-1, 1, 1, 1), labels, groups=drawn.family.repeat_interleave(SET_SIZE))


def _omniglot1200(split: str, load: Load) -> ImageSet:
    """1,200 characters and their quarter turns to train, 323 and 100 others; alphabets are not kept apart."""
    parts = split_classes(load("omniglot", "all"), tuple(OMNIGLOT_CLASSES.values()))
    part = parts[list(OMNIGLOT_CLASSES).index(split)]
    return with_quarter_turns(part) if split == "train" else dataclasses.replace(part, groups=None)


MAKERS: dict[str, Callable[[str, Load], ImageSet]] = {
    "families": _families,
    "omniglot1200": _omniglot1200,
    "black_white_mnist": lambda split, load: black_and_white(load("mnist", split)),
    "black_white_digits": lambda split, load: black_and_white(load("digits", split)),
    "rotated_mnist": lambda split, load: rotated(load("mnist", split)),
    "rotated_digits": lambda split, load: rotated(load("digits", split)),
    "glyph_factors": lambda split, load: glyph_factors(split),
}
SOURCES = {
    "omniglot1200": "omniglot",
    "black_white_mnist": "mnist",
    "rotated_mnist": "mnist",
}
"""Sets that have to be there first."""
