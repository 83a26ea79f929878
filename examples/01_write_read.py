"""Write a memory from a few vectors, then recall, complete, generate and score from it.

Run: python examples/01_write_read.py
"""

import tempfile
from pathlib import Path

import torch
from sklearn.datasets import load_digits

from mnemon import MixtureMemory, State
from mnemon.memories.variances import choose_variances

torch.manual_seed(0)

# An episode: 40 handwritten digits as vectors of 64 numbers. No labels are used anywhere.
digits = torch.tensor(load_digits().data / 16, dtype=torch.float32)
episode, others = digits[:40], digits[40:80]

# A memory is a few hyperparameters; the state it writes holds everything it learned.
memory = MixtureMemory(code_dim=64, num_slots=3, num_clusters=6, noise_var=0.02, slot_var=0.02, location_var=0.1)
memory = choose_variances(memory, episode)  # noise_var and slot_var, by the bound
written = memory.write(episode, num_steps=20, return_trace=True)
state = written.state
print(f"wrote {len(episode)} digits ({episode.nbytes} bytes) into {state.nbytes} bytes")

# Each sweep raises a lower bound on log p(episode); terms() shows what it is made of.
terms = memory.terms(episode, written)
print(f"bound per digit: first sweep {written.trace[0] / 40:.1f}, last {terms.per_frame:.1f} nats")
print(f"of this, the memory itself costs {terms.memory_kl / 40:.1f} nats per digit")

# Recall: a noisy digit goes in, the memory's idea of it comes out.
noisy = episode + 0.3 * torch.randn_like(episode)
recalled = memory.recall(state, noisy)
print(f"noise: error {(noisy - episode).square().mean():.3f} -> {(recalled - episode).square().mean():.3f}")

# Complete: half of the pixels are missing; each read fills them in from the one before.
observed = torch.arange(64) % 8 < 4
completed = memory.recall(state, episode, observed=observed, steps=20)
blank = torch.where(observed, episode, 0.0)
print(f"halves: error {(blank - episode).square().mean():.3f} -> {(completed - episode).square().mean():.3f}")

# Generate, and score: how likely is a digit, given the memory?
samples = memory.sample(state, 5)
print(f"5 new vectors: {tuple(samples.shape)}")
density = [memory.log_density(state, x).mean().item() for x in (episode, others)]
print(f"log p(x | memory): written digits {density[0]:.1f}, other digits {density[1]:.1f} nats")

# Write on: what was learned becomes the prior of the next write. Save and load: one file.
state = memory.write(others, prior=state).state
print(f"after writing the others too, they have {memory.log_density(state, others).mean():.1f} nats")
with tempfile.TemporaryDirectory() as folder:
    state.save(Path(folder) / "memory.safetensors")
    assert torch.equal(State.load(Path(folder) / "memory.safetensors").R, state.R)
