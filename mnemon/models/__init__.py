"""Deep generative memories: an encoder, a memory and a decoder."""

from mnemon.models.kanerva_machine import KanervaMachine
from mnemon.models.memory_vae import MemoryVAE, StochasticRegulariser
from mnemon.models.reading import iterate, nearest
from mnemon.models.statistician import ContextState, NeuralStatistician
from mnemon.models.vae import VAE, CountState

__all__ = [
    "VAE",
    "ContextState",
    "CountState",
    "KanervaMachine",
    "MemoryVAE",
    "NeuralStatistician",
    "StochasticRegulariser",
    "iterate",
    "nearest",
]
