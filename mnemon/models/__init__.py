"""Deep generative memories: an encoder, a memory and a decoder."""

from mnemon.memories.regulariser import StochasticRegulariser
from mnemon.models.addressing import AddressingModel
from mnemon.models.context_aware import ContextAwareLearner, ContextsState
from mnemon.models.energy import EnergyModel
from mnemon.models.full_statistician import FullStatistician
from mnemon.models.hopfield import HopfieldModel, ModernHopfieldModel, SlotMemory
from mnemon.models.kanerva_blocks import KanervaBlocks
from mnemon.models.kanerva_machine import KanervaMachine
from mnemon.models.kanerva_pp import KanervaPlusPlus
from mnemon.models.matching import MatchingModel
from mnemon.models.memory_vae import MemoryVAE
from mnemon.models.pseudo_inverse_model import PseudoInverseModel
from mnemon.models.reading import iterate, nearest
from mnemon.models.soft_attention import SoftAttentionModel
from mnemon.models.statistician import ContextState, NeuralStatistician
from mnemon.models.vae import VAE, CountState

__all__ = [
    "VAE",
    "AddressingModel",
    "ContextAwareLearner",
    "ContextState",
    "ContextsState",
    "CountState",
    "EnergyModel",
    "FullStatistician",
    "HopfieldModel",
    "KanervaBlocks",
    "KanervaMachine",
    "KanervaPlusPlus",
    "MatchingModel",
    "MemoryVAE",
    "ModernHopfieldModel",
    "NeuralStatistician",
    "PseudoInverseModel",
    "SlotMemory",
    "SoftAttentionModel",
    "StochasticRegulariser",
    "iterate",
    "nearest",
]
