"""Training steps replayed as CUDA graphs.

A step is thousands of small kernels, and on a GPU launching them from Python takes longer than running them. Their
sequence depends on shapes alone, so forward and backward are captured once and replayed as one launch. The optimiser
stays outside: its learning rate changes, and its state belongs to the checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mnemon.memories.graphs import Uncapturable, capturable

WARM_UPS = 3
"""Steps before a capture, in which libraries choose their algorithms and take their memory."""

Inputs = tuple[Tensor, Tensor | None, Tensor | None, Tensor | None, Tensor | None]
"""Images, mask, places of the written and of the scored items, which factors are constant."""
Step = Callable[[Inputs, torch.Generator, Tensor], tuple[Tensor, Tensor]]
"""Inputs, random numbers, and numbers that change in the course of a training, to the loss and the reported values."""


@dataclass(frozen=True, eq=False)
class _Captured:
    graph: torch.cuda.CUDAGraph
    inputs: Inputs
    generator: torch.Generator
    numbers: Tensor
    values: Tensor
    gradients: list[Tensor | None]


class StepGraphs:
    """Forward and backward of one training step, by the shapes of its inputs.

    A replay draws the random numbers that the plain step would draw, since its generator is seeded anew each time.
    Matrices that need jitter get a fixed one, and values are not checked: a graph can neither branch nor wait. What
    is not finite is noticed by the loop, which looks at the reported values. A step that has to wait for a value all
    the same, as a mixture's does whose episodes are of different lengths, is taken plainly.

    module    whose parameters get the gradients; its buffers are as before after a capture
    backward  differentiates the loss
    """

    def __init__(self, module: nn.Module, step: Step, backward: Callable[[Tensor], None]) -> None:
        self._module, self._step, self._backward = module, step, backward
        self._captured: dict[tuple[tuple[torch.Size, torch.dtype] | None, ...], _Captured | None] = {}

    def run(self, inputs: Inputs, seed: int, numbers: Sequence[float]) -> Tensor:
        """One step: gradients are left in the parameters, and the values returned. Shapes: -> as the step has them"""
        key = tuple(None if part is None else (part.shape, part.dtype) for part in inputs)
        if key not in self._captured:
            self._captured[key] = self._capture(inputs, len(numbers))
        captured = self._captured[key]
        if captured is None:
            device = inputs[0].device
            generator = torch.Generator(device).manual_seed(seed)
            return self._once(inputs, generator, torch.tensor(numbers, device=device))
        for place, part in zip(captured.inputs, inputs, strict=True):
            if place is not None and part is not None:
                place.copy_(part)
        for weight, number in zip(captured.numbers.unbind(), numbers, strict=True):
            weight.fill_(number)  # a copy from the CPU would wait for the step before
        captured.generator.manual_seed(seed)
        captured.graph.replay()
        for parameter, gradient in zip(self._module.parameters(), captured.gradients, strict=True):
            parameter.grad = gradient
        return captured.values.clone()

    def _capture(self, inputs: Inputs, count: int) -> _Captured | None:
        """None where the step cannot be captured."""
        images, *others = inputs
        places: Inputs = (images.clone(), *map(_copy, others))  # type: ignore[assignment]
        device = images.device
        generator, numbers = torch.Generator(device).manual_seed(0), torch.ones(count, device=device)
        buffers = [buffer.clone() for buffer in self._module.buffers()]
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(generator)
        try:
            with capturable():
                self._warm_up(places, generator, numbers)
                with torch.cuda.graph(graph):
                    values = self._once(places, generator, numbers)
        except Uncapturable:
            return None
        finally:
            for buffer, before in zip(self._module.buffers(), buffers, strict=True):
                buffer.copy_(before)
        gradients = [parameter.grad for parameter in self._module.parameters()]
        return _Captured(graph, places, generator, numbers, values, gradients)

    def _warm_up(self, inputs: Inputs, generator: torch.Generator, numbers: Tensor) -> None:
        """On another stream, as captures want it."""
        here, side = torch.cuda.current_stream(inputs[0].device), torch.cuda.Stream(inputs[0].device)
        side.wait_stream(here)
        try:
            with torch.cuda.stream(side):
                for _ in range(WARM_UPS):
                    self._once(inputs, generator, numbers)
        finally:
            here.wait_stream(side)
            self._forget_gradients()

    def _once(self, inputs: Inputs, generator: torch.Generator, numbers: Tensor) -> Tensor:
        self._forget_gradients()
        loss, values = self._step(inputs, generator, numbers)
        self._backward(loss)
        return values

    def _forget_gradients(self) -> None:
        """So that backward writes them anew, into the graph's own memory, in place of adding to what is there."""
        for parameter in self._module.parameters():
            parameter.grad = None


def _copy(part: Tensor | None) -> Tensor | None:
    return None if part is None else part.clone()
