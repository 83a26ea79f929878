"""What memories hand out beside their states: a finished write, and an explanation of codes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from mnemon.core.state import STATIC, Record


@dataclass(frozen=True, eq=False)
class Written(Record):
    """What a write leaves: q(memory), q(address) of the last sweep, and what `terms` needs of the call.

    `address` is None when the episode was written in chunks. `trace` holds the joint bound after each sweep.

    Shapes: counts (*B, T), trace (num_sweeps, *B)
    """

    state: Any
    address: Any = None
    prior: Any = None
    counts: Tensor | None = None
    trace: Tensor | None = None
    chunk_size: int | None = field(default=None, metadata=STATIC)


@dataclass(frozen=True, eq=False)
class Explanation(Record):
    """A draw of each code's address, and N(mean, variance I): the codes it stands for, the memory integrated out.

    Shapes: mean (*B, T, C), variance broadcasts to it, log_ratio = log p(y) / q(y) (*B, T)
    """

    mean: Tensor
    variance: Tensor
    log_ratio: Tensor
