"""Latent memories: conjugate algebra on codes, without nets and images. Useful alone, on any vectors."""

from mnemon.memories.blocks import BlockState
from mnemon.memories.categorical import CategoricalAddress, CategoricalMemory, CategoricalState
from mnemon.memories.fast_weights import FastWeightState
from mnemon.memories.gaussian import GaussianAddress, GaussianMemory, GaussianState
from mnemon.memories.hopfield import HopfieldState
from mnemon.memories.kanerva import KanervaAddress, KanervaMemory, KanervaState
from mnemon.memories.mixture import MixtureAddress, MixtureMemory, MixtureState
from mnemon.memories.pseudo_inverse import PseudoInverseAddress, PseudoInverseMemory, PseudoInverseState
from mnemon.memories.slots import ItemState, SlotAddress
from mnemon.memories.spatial import SpatialState
from mnemon.memories.tree import TreeMemory, TreeState

__all__ = [
    "BlockState",
    "CategoricalAddress",
    "CategoricalMemory",
    "CategoricalState",
    "FastWeightState",
    "GaussianAddress",
    "GaussianMemory",
    "GaussianState",
    "HopfieldState",
    "ItemState",
    "KanervaAddress",
    "KanervaMemory",
    "KanervaState",
    "MixtureAddress",
    "MixtureMemory",
    "MixtureState",
    "PseudoInverseAddress",
    "PseudoInverseMemory",
    "PseudoInverseState",
    "SlotAddress",
    "SpatialState",
    "TreeMemory",
    "TreeState",
]
