"""mnemon: generative memories. Write a few examples in one pass; recall, generate and score from them."""

from mnemon.core.episode import Codes
from mnemon.core.protocol import Bound, Terms
from mnemon.core.state import State
from mnemon.memories import (
    CategoricalMemory,
    GaussianMemory,
    KanervaMemory,
    MixtureMemory,
    PseudoInverseMemory,
    TreeMemory,
)
from mnemon.pretrained import from_pretrained, load_memory, save_memory, save_pretrained

__version__ = "0.1.0"

__all__ = [
    "Bound",
    "CategoricalMemory",
    "Codes",
    "GaussianMemory",
    "KanervaMemory",
    "MixtureMemory",
    "PseudoInverseMemory",
    "State",
    "Terms",
    "TreeMemory",
    "from_pretrained",
    "load_memory",
    "save_memory",
    "save_pretrained",
]
