"""Batches of episodes through model and objective: which part of a batch a process takes, and its random numbers."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from mnemon.core.random import stream
from mnemon.data.episodes import EpisodeBatches
from mnemon.training.config import StageConfig
from mnemon.training.schedules import FULL_BOUND, BoundWeights
from mnemon.training.setup import Fabric
from mnemon.training.step_graph import Inputs, Step
from mnemon.training.streams import EpisodeShard


class Part(NamedTuple):
    """What a process takes of a batch: images, mask, written and scored places; and which part of how many it is."""

    inputs: Inputs
    rank: int
    world: int


class Passes:
    """Passes of a step module (`TrainingStep`, as Fabric wraps it).

    What is drawn follows from the seed, the purpose and the batch, whatever was drawn before and however many processes
    share the batch.
    """

    def __init__(self, step_module: Any, fabric: Fabric, seed: int) -> None:
        self._module, self._fabric, self._seed = step_module, fabric, seed

    def deal(self, batches: EpisodeBatches, batch: int, images: Tensor, duplicate: int = 1) -> Part:
        """This process's part of a batch of places in `images`, every episode so many times."""
        index, mask = batches[batch]
        roles = batches.roles(batch)
        if duplicate > 1:
            index, mask = index.repeat(duplicate, 1), None if mask is None else mask.repeat(duplicate, 1)
            roles = roles.map(lambda places: places.repeat(duplicate, 1))
        device, world, rank = self._fabric.device, self._fabric.world_size, self._fabric.global_rank
        if len(index) % world:  # a validation batch that cannot be dealt out: every process takes all of it
            world, rank = 1, 0
        episodes = len(index) // world
        mine = slice(rank * episodes, (rank + 1) * episodes)
        chosen = images[index[mine].to(images.device)].to(device)
        mask = None if mask is None else mask[mine].to(device)
        roles = roles.map(lambda places: places[mine].to(device))
        return Part((chosen, mask, roles.written, roles.scored, roles.constant), rank, world)

    def run(self, part: Part, purpose: tuple[int, int], weights: BoundWeights = FULL_BOUND) -> tuple[Tensor, Tensor]:
        """Loss and values of a part, with random numbers that belong to its episodes."""
        generator = stream(self._seed, *purpose, device=self._fabric.device)
        if part.world == 1:
            return self._pass(part.inputs, generator, weights)
        with EpisodeShard(generator, len(part.inputs[0]), part.rank, part.world):
            return self._pass(part.inputs, generator, weights)

    def of_numbers(self, stage: StageConfig) -> Step:
        """A pass of a stage by its inputs, whose weights can change from one replay to the next."""

        def step(inputs: Inputs, generator: torch.Generator, numbers: Tensor) -> tuple[Tensor, Tensor]:
            reconstruction, latent, choice, code = numbers.unbind()
            weights = BoundWeights(reconstruction, latent, choice, code, None, stage.estimator, stage.codes)
            return self._pass(inputs, generator, weights)

        return step

    def _pass(self, inputs: Inputs, generator: torch.Generator, weights: BoundWeights) -> tuple[Tensor, Tensor]:
        images, mask, *roles = inputs
        result: tuple[Tensor, Tensor] = self._module(images, mask, generator, weights, *roles)
        return result
