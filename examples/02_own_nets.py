"""Bring your own encoder and decoder: train them around a memory, then write digits and recall noisy ones.

Run: python examples/02_own_nets.py
"""

import torch
from sklearn.datasets import load_digits
from torch import nn

from mnemon import MixtureMemory
from mnemon.distributions.pixels import BernoulliPixels
from mnemon.models import MemoryVAE
from mnemon.nets.codec import Codec
from mnemon.nets.conv import GaussianHead

torch.manual_seed(0)
IMAGE, CODE, WIDTH = (1, 8, 8), 8, 128

# Handwritten digits as images (1, 8, 8). The last ones are kept for the test: training never sees them.
digits = torch.tensor(load_digits().images / 16, dtype=torch.float32).round()[:, None]
train, test = digits[:1500], digits[1500:]

# Any encoder that maps images (N, 1, 8, 8) to vectors, any decoder that maps codes to the likelihood's outputs.
codec = Codec(
    IMAGE,
    CODE,
    encoder=nn.Sequential(nn.Flatten(), nn.Linear(64, WIDTH), nn.SiLU()),
    head=GaussianHead(WIDTH, CODE),  # mean and standard deviation of q(z | x)
    decoder=nn.Sequential(nn.Linear(CODE, WIDTH), nn.SiLU(), nn.Linear(WIDTH, 64), nn.Unflatten(1, IMAGE)),
    likelihood=BernoulliPixels(),  # the decoder gives logits
)
# The variances set the scale of the codes: the nets find codes that suit them.
memory = MixtureMemory(CODE, num_slots=2, num_clusters=5, noise_var=1.0, slot_var=1.0, location_var=10.0)
model = MemoryVAE(codec, memory, num_steps=5)

episode = test[:64]
noisy = torch.where(torch.rand_like(episode) < 0.15, 1 - episode, episode)  # 15% of the pixels flipped


def show(when: str) -> float:
    """Write the test episode (no training happens here), read the noisy digits, and score both."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        bound = model.terms(episode, generator=generator).per_frame.item()
        state = model.write(episode, generator=generator)
        recalled = model.read(state, noisy)
    error = (recalled - episode).square().mean().item()
    print(f"{when}: bound {bound:.1f} nats per digit, recall error {error:.3f}")
    return error


before = show("before training")

# Training is plain PyTorch: an episode is a few images, `terms` writes it and gives the parts of the bound.
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(200):
    batch = train[torch.randint(len(train), (8, 64))]  # 8 episodes of 64 digits
    loss = -model.terms(batch).per_frame.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step}: loss {loss.item():.1f} nats per digit")

after = show("after training")
print(f"recall: error {before:.3f} -> {after:.3f}")
print(f"noise: error {(noisy - episode).square().mean():.3f} -> {after:.3f}")

# The memory is written, never trained: other digits make another memory, with as many clusters as you like.
state = model.write(test[64:160], num_clusters=12)
print(f"12 clusters hold 96 digits in {state.nbytes} bytes; samples {tuple(model.sample(state, 4).shape)}")
