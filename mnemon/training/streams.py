"""Random numbers that do not depend on how a batch is dealt out to processes.

Every step seeds one generator from (seed, step), the same in every process. A process that holds episodes i to j of
the batch draws the numbers of the whole batch and keeps its own: two processes then see exactly what one sees.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

FACTORIES: set[Any] = {torch.rand, torch.randn}
INTEGERS: set[Any] = {torch.randint}
BY_VALUE: set[Any] = {torch.bernoulli, torch._standard_gamma}


class EpisodeShard(TorchFunctionMode):
    """While active, draws of a shape (episodes, ...) with `generator` are of `count` times as many episodes, of which
    part number `index` is kept. Other draws are left alone. Poisson draws are refused: how many numbers they take
    depends on the other processes' images."""

    def __init__(self, generator: torch.Generator, episodes: int, index: int, count: int) -> None:
        super().__init__()
        self.generator, self.episodes, self.index, self.count = generator, episodes, index, count

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if kwargs.get("generator") is not self.generator:
            return func(*args, **kwargs)
        mine = slice(self.index * self.episodes, (self.index + 1) * self.episodes)
        if func in FACTORIES:
            shape = args[0] if len(args) == 1 and not isinstance(args[0], int) else args
            if shape and shape[0] == self.episodes:
                return func((self.count * self.episodes, *shape[1:]), **kwargs)[mine]
        elif func in INTEGERS:
            shape = args[-1]
            if shape and shape[0] == self.episodes:
                return func(*args[:-1], (self.count * self.episodes, *shape[1:]), **kwargs)[mine]
        elif func is torch.poisson:
            raise ValueError("several processes: poisson noise cannot be dealt out; use another objective.corruption")
        elif func in BY_VALUE:
            (given, *rest) = args
            if given.ndim and given.shape[0] == self.episodes:
                # others' places hold what the first of mine holds: how many numbers a gamma draw takes depends on it
                whole = given.detach()[:1].repeat(self.count * self.episodes, *(1,) * (given.ndim - 1))
                whole[mine] = given.detach()
                return func(whole, *rest, **kwargs)[mine]
        return func(*args, **kwargs)
