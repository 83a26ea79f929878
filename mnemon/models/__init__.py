"""Deep generative memories: an encoder, a memory and a decoder."""

from mnemon.models.memory_vae import MemoryVAE, StochasticRegulariser
from mnemon.models.vae import VAE, CountState

__all__ = ["VAE", "CountState", "MemoryVAE", "StochasticRegulariser"]
