"""An episode's codes, checked and brought into the one shape that the memories compute on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from mnemon.core.checks import check_broadcast, check_codes, check_finite, check_item_shape, holds
from mnemon.core.episode import Codes
from mnemon.core.linalg import as_scalar
from mnemon.core.protocol import Terms
from mnemon.core.state import Record
from mnemon.distributions.gaussian import LOG_2PI


@dataclass(frozen=True, eq=False)
class Frames(Record):
    """Checked codes: masked items zeroed and given count 0, variances reduced to what the bound needs.

    Shapes: mean (*B, T, C), counts, var_sum, log_var_sum (*B, T); the last two are None for observed vectors
    """

    mean: Tensor
    counts: Tensor | None = None
    var_sum: Tensor | None = None
    log_var_sum: Tensor | None = None

    @classmethod
    def gather(
        cls,
        where: str,
        codes: Tensor | Codes,
        code_dim: int,
        mask: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Frames:
        """Check codes, mask and weights, and put them into one shape."""
        mean = codes.mean if isinstance(codes, Codes) else codes
        check_codes(where, mean, code_dim)
        std = None
        if isinstance(codes, Codes):
            check_broadcast(f"{where}: code std", codes.std, mean.shape)
            std = codes.std.expand(mean.shape)
        counts = None
        if mask is not None:
            check_item_shape(where, "mask", mask, mean.shape[:-1])
            mask = mask.bool()
            if not holds(mask.any(-1)):
                raise ValueError(f"{where}: expected an unmasked item in every episode, got one with all masked")
            mean = torch.where(mask[..., None], mean, 0.0)
            std = std if std is None else torch.where(mask[..., None], std, 1.0)
            counts = mask.to(mean.dtype)
        if weights is not None:
            counts = cls._count(where, weights, mean, counts)
        check_finite(f"{where}: codes", mean, "mask such items, or drop them")
        if std is None:
            return cls(mean, counts)
        check_finite(f"{where}: code std", std, "check the encoder")
        if not holds(std > 0):
            raise ValueError(f"{where}: expected positive code std, got zeros or negatives; pass std, not log std")
        return cls(mean, counts, std.square().sum(-1), 2 * std.log().sum(-1))

    @staticmethod
    def _count(where: str, weights: Tensor, mean: Tensor, counts: Tensor | None) -> Tensor:
        check_item_shape(where, "weights", weights, mean.shape[:-1])
        check_finite(f"{where}: weights", weights, "weights are multiplicities")
        if not holds(weights >= 0):
            raise ValueError(f"{where}: expected weights >= 0 (multiplicities), got negative ones")
        weights = weights.to(mean.dtype)
        counts = weights if counts is None else counts * weights
        if not holds(counts.sum(-1) > 0):
            raise ValueError(f"{where}: expected an item of positive weight in every episode, got one with none")
        return counts

    @property
    def batch_shape(self) -> torch.Size:
        return self.mean.shape[:-2]

    def expand(self, batch_shape: torch.Size) -> Frames:
        """The same frames for every element of a batch, without copying."""
        if batch_shape == self.batch_shape:
            return self
        depth = len(self.batch_shape)
        return self.map(lambda tensor: tensor.expand(batch_shape + tensor.shape[depth:]))

    @property
    def num_items(self) -> int:
        return self.mean.shape[-2]

    @property
    def num_present(self) -> Tensor:
        """Items that count at all. Shapes: -> int (*B)"""
        if self.counts is None:
            return torch.full(self.batch_shape, self.num_items, device=self.mean.device)
        return (self.counts > 0).sum(-1)

    @property
    def total(self) -> Tensor:
        """Items counted. Shapes: -> (*B)"""
        if self.counts is None:
            return self.mean.new_full((), float(self.num_items)).expand(self.batch_shape)
        return self.counts.sum(-1)

    @property
    def centre(self) -> Tensor:
        """Mean of the items counted. Shapes: -> (*B, 1, C)"""
        if self.counts is None:
            return self.mean.mean(-2, keepdim=True)
        # a chunk may hold no counted item; anything will do as its centre
        return self.counts[..., None, :] @ self.mean / self.total.clamp(min=1e-6)[..., None, None]

    def count(self, values: Tensor) -> Tensor:
        """Multiply per-item values (*B, T, ...) by the items' counts."""
        if self.counts is None:
            return values
        return values * self.counts.reshape(self.counts.shape + (1,) * (values.ndim - self.counts.ndim))

    def chunks(self, chunk_size: int | None) -> Iterator[Frames]:
        """Consecutive pieces of at most `chunk_size` items, without copying the codes."""
        size = chunk_size or self.num_items
        for start in range(0, self.num_items, size):
            stop = start + size
            yield Frames(
                self.mean[..., start:stop, :],
                *(
                    part if part is None else part[..., start:stop]
                    for part in (self.counts, self.var_sum, self.log_var_sum)
                ),
            )

    def constant(self, noise_var: float | Tensor) -> Tensor:
        """The part of log p(z|y,M) (observed), or of -code_kl, that no address and no memory changes.

        The rest is -E||mean of q(z) - M'w - b||^2 / (2 noise_var).

        Shapes: -> (*B, T)
        """
        C = self.mean.shape[-1]
        log_noise = as_scalar(noise_var, dtype=self.mean.dtype, device=self.mean.device).log()
        if self.var_sum is None or self.log_var_sum is None:
            return (-0.5 * C * (LOG_2PI + log_noise)).expand(self.mean.shape[:-1])
        return 0.5 * (C - C * log_noise + self.log_var_sum - self.var_sum / noise_var)

    def terms(self, fit: Tensor, address_kl: Tensor, memory_kl: Tensor | None) -> Terms:
        """Put reconstruction - code_kl = `fit` where it belongs: observed vectors have no code_kl."""
        zero = torch.zeros_like(fit)
        observed = self.var_sum is None
        return Terms(
            reconstruction=fit if observed else zero,
            code_kl=zero if observed else -fit,
            address_kl=address_kl,
            memory_kl=memory_kl,
            counts=self.counts,
        )
