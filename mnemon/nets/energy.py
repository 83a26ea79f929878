"""Energies of items with a writable part: what EBMM descends. The gated net (B.1) and the parts that all nets share.

Every net maps (N, *X) to (N) and is smooth, since its gradient is differentiated again, by the write and by training.
Its writable layers are called `memory`; their parameters are where writing starts from, and
`torch.func.functional_call` puts an episode's own in their place.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call

from mnemon.core.checks import check_size


class EnergyNet(nn.Module, ABC):
    """An energy of items of one shape. Modules called `memory` are writable.

    Shapes: (N, *X) -> (N)
    """

    def __init__(self, image_shape: Sequence[int]) -> None:
        super().__init__()
        self.image_shape = tuple(image_shape)

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor: ...

    def memory_parameters(self) -> dict[str, nn.Parameter]:
        """The writable parameters by name, in the order in which flat weights hold them."""
        return {name: value for name, value in self.named_parameters() if "memory" in name.split(".")}

    def memory_layers(self) -> list[int]:
        """How many of the flat weights belong to each writable layer."""
        sizes: dict[str, int] = {}
        for name, value in self.memory_parameters().items():
            layer = name.rpartition(".")[0]
            sizes[layer] = sizes.get(layer, 0) + value.numel()
        return list(sizes.values())

    def memory_weights(self) -> Tensor:
        """The writable parameters as one vector, where writing starts from. Shapes: -> (P)"""
        return torch.cat([value.flatten() for value in self.memory_parameters().values()])

    def with_memory(self, weights: Tensor, x: Tensor) -> Tensor:
        """The energy of one episode's items under its own weights. Shapes: (P), (T, *X) -> (T)"""
        shapes = {name: value.shape for name, value in self.memory_parameters().items()}
        parts = weights.split([shape.numel() for shape in shapes.values()])
        memory = {name: part.view(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}
        energies: Tensor = functional_call(self, memory, (x,))
        return energies


class GatedEnergy(EnergyNet):
    """A net of units that are refined in a few hops through an update gate; writable is what the item itself adds to
    some of them.

        c = tanh([M x, S (x, h)]),  u = sigmoid(G (x, h)),  h <- u c + (1 - u) h;   E = w h

    dynamic_size  writable units: 64 with 128 inputs make 8,256 weights, as many as a Hopfield net of 128 units has

    Differs from paper: x enters as 2 x - 1, so that different random patterns are nearly orthogonal.

    Shapes: (N, *X) -> (N). EBMM, B.1.
    """

    def __init__(
        self, image_shape: Sequence[int], *, hidden: int = 1024, dynamic_size: int = 64, num_hops: int = 5
    ) -> None:
        super().__init__(image_shape)
        for name, value in (("hidden", hidden), ("dynamic_size", dynamic_size), ("num_hops", num_hops)):
            check_size(name, value)
        if dynamic_size >= hidden:
            raise ValueError(f"dynamic_size: expected fewer than the {hidden} hidden units, got {dynamic_size}")
        self.hidden, self.num_hops = hidden, num_hops
        size = math.prod(image_shape)
        self.memory = nn.Linear(size, dynamic_size)
        outputs = 2 * hidden - dynamic_size  # gate, then static units: one product for both
        self.by_item, self.by_state = nn.Linear(size, outputs), nn.Linear(hidden, outputs, bias=False)
        self.energy = nn.Linear(hidden, 1, bias=False)  # a constant would change nothing
        he_normal(self.memory, self.energy)
        he_normal(self.by_item, self.by_state, fan_in=size + hidden)

    def forward(self, x: Tensor) -> Tensor:
        x = 2 * x.flatten(1) - 1
        dynamic, fixed = self.memory(x), self.by_item(x)
        state: Tensor | None = None
        for _ in range(self.num_hops):
            mixed = fixed if state is None else fixed + self.by_state(state)
            gate, static = mixed.tensor_split((self.hidden,), -1)
            update = torch.tanh(torch.cat((dynamic, static), -1))
            gate = torch.sigmoid(gate)
            state = gate * update if state is None else state + gate * (update - state)
        assert state is not None
        return self.energy(state).squeeze(-1)


def he_normal(*layers: nn.Linear | nn.Conv2d, fan_in: int | None = None) -> None:
    """Weights N(0, 2 / fan_in), biases 0. fan_in: of layers whose outputs are added up; each one's own when None"""
    for layer in layers:
        inputs = layer.weight[0].numel() if fan_in is None else fan_in
        nn.init.normal_(layer.weight, std=math.sqrt(2 / inputs))
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
