"""Kanerva++ with allocated blocks: every frame writes its code into a block of its own, and keys name blocks.

    M: block b holds m_b, the code of the frame written there,  y ~ N(0, I) names a block or none,
    z | M, y ~ N(m_b, s^2), or N(0, I) where nothing stands,  x ~ p(x | z)

    q(z | x, block) = N(m(x), s^2), fine;  q(z | x, nothing) as in a VAE, coarse;
    q(y | x, M) the best one for them, in proportion to exp(-KL(q(z | x, y) || p(z | M, y))) on p(y)

The map is computed, not inferred: there is a bound on log p(episode | memory), and none on log p(episode).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mnemon.core.checks import check_finite, check_size
from mnemon.core.protocol import Terms
from mnemon.core.state import Record
from mnemon.distributions.gaussian import DiagonalGaussian, standard_normal_like
from mnemon.memories.blocks import BlockGrid, BlockState
from mnemon.memories.spatial import KEY_DIM
from mnemon.models.codec_model import CodeModel, Writing, full_precision, no_autocast
from mnemon.nets.codec import Codec, parts_of

FINE_STD, FINEST_STD = 0.1, 0.02
"""Deviation s of fine codes before training, and the least there is. Between a frame and its block none costs anything;
but a cue that is encoded again, with others or on another machine, comes out a little different."""
NEVER = 1e30
"""Nats of a block in which nothing stands: it counts among those that name nothing."""


@dataclass(frozen=True, eq=False)
class _Posterior(Record):
    """q(y, z | x, M), with what each choice of y costs. `log_probs` and `divergence` are of the blocks, the last of
    all places where nothing stands, `num_free` of them.

    Shapes: fine, coarse (*B, Q, C), log_probs, divergence (*B, Q, num_blocks + 1), num_free (*B, 1)
    """

    fine: DiagonalGaussian
    coarse: DiagonalGaussian
    log_probs: Tensor
    divergence: Tensor
    num_free: Tensor

    @property
    def code_kl(self) -> Tensor:
        return (self.log_probs.exp() * self.divergence).sum(-1)

    @property
    def address_kl(self) -> Tensor:
        """sum_y q(y) log q(y) / p(y); the free places share their probability."""
        probs = self.log_probs.exp()
        shared = torch.cat((torch.zeros_like(self.divergence[..., :-1]), self.log_free), -1)
        return (probs * (self.log_probs - shared)).sum(-1) + math.log(self.log_probs.shape[-1])

    @property
    def log_free(self) -> Tensor:
        """Shapes: -> (*B, Q, 1)"""
        return self.num_free.log()[..., None].expand(*self.log_probs.shape[:-1], 1)


class KanervaBlocks(CodeModel):
    """Kanerva++ that is allocated like a heap: `kanerva-pp` with `block_write`.

    codec      any with a head, which gives coarse codes; the presets take `tsm_codec`
    map_shape  (channels, height, width) of the memory
    read_size  pixels on a side of a block; a block holds a code

    Blocks are taken in the order of writing, the oldest again when there is no other. A frame of any weight above 0
    takes one block. Every frame is encoded alone, so `terms` and `log_likelihood` bound the same with the same q.

    Differs from paper: what a key reads is a block of the heap, not a window at any place and scale; keys are not
    amortised, since for given codes the best q(y | x, M) has a closed form; blocks hold p(z | M, y) itself, and no nets
    write and read them; no frame sees its neighbours.
    """

    def __init__(
        self,
        codec: Codec,
        *,
        map_shape: tuple[int, int, int] = (3, 64, 64),
        read_size: int = 8,
    ) -> None:
        super().__init__(codec)
        if codec.head is None or codec.encoding_dim is None:
            raise ValueError(
                "KanervaBlocks: expected a codec with a head that knows the size of its encodings, got one without; "
                "make it with tsm_codec or Codec.convolutional"
            )
        self.grid = BlockGrid(map_shape, read_size)
        if self.grid.block_floats < codec.code_dim:
            raise ValueError(
                f"read_size: expected blocks that hold a code of size {codec.code_dim}, got "
                f"{self.grid.block_floats} numbers in a block; take larger blocks, more channels or smaller codes"
            )
        self.fine_head = nn.Linear(codec.encoding_dim, codec.code_dim)
        self.fine_log_std = nn.Parameter(torch.full((codec.code_dim,), math.log(FINE_STD - FINEST_STD)))

    # -- writing -----------------------------------------------------------------------------------

    def prior_state(self, batch_shape: tuple[int, ...] = ()) -> BlockState:
        """An empty map."""
        return self.grid.empty(self._like, batch_shape)

    def _write(self, x: Tensor, how: Writing) -> BlockState:
        x = self._present(x, how.mask)
        counts = self._counts("write", x, how.mask, how.weights)
        if how.prior is not None:
            self._check_state("write", how.prior)
        return self._store("write", self._codes(x)[0].mean, counts, how.prior)

    def _store(self, where: str, codes: Tensor, counts: Tensor | None, prior: BlockState | None = None) -> BlockState:
        check_finite(f"{where}: codes", codes, "mask such items, or drop them")
        state = self.prior_state(tuple(codes.shape[:-2])) if prior is None else prior
        return self.grid.write(state, codes, None if counts is None else counts > 0)

    def _codes(self, x: Tensor) -> tuple[DiagonalGaussian, DiagonalGaussian]:
        """q(z | x, block) and q(z | x, nothing). Shapes: (*B, T, *X) -> (*B, T, C) both"""
        assert self.codec.head is not None
        encodings = self.codec.encodings(x)
        coarse = DiagonalGaussian(*map(full_precision, self.codec.head(encodings)))
        with no_autocast(x):  # finer than half precision is
            mean = self.fine_head(full_precision(encodings))
        return DiagonalGaussian(mean, self._fine_std.expand_as(mean)), coarse

    @property
    def _fine_std(self) -> Tensor:
        return FINEST_STD + full_precision(self.fine_log_std).exp()

    # -- bounds ------------------------------------------------------------------------------------

    def _code_priors(self, state: BlockState) -> DiagonalGaussian:
        """p(z | M, y) for every block, and last for none. Shapes: -> (*B, num_blocks + 1, C)"""
        contents, taken = self.grid.contents(state), self.grid.taken(state)
        mean = nn.functional.pad(contents[..., : self.codec.code_dim], (0, 0, 0, 1))
        held = nn.functional.pad(taken, (0, 1))[..., None]  # where nothing stands, zeros do
        return DiagonalGaussian(mean, torch.where(held, self._fine_std.to(mean.dtype), 1.0))

    def _find(self, state: BlockState, fine: DiagonalGaussian, coarse: DiagonalGaussian) -> _Posterior:
        """The q(y | x, M) with the smallest KL from p, for given q(z | x, y)."""
        with no_autocast(fine.mean):
            priors = self._code_priors(state)
            blocks = DiagonalGaussian(priors.mean[..., None, :-1, :], priors.std[..., None, :-1, :])
            each = DiagonalGaussian(fine.mean[..., None, :], fine.std[..., None, :])
            taken = self.grid.taken(state)
            of_blocks = torch.where(taken[..., None, :], each.kl(blocks), NEVER)
            standard = DiagonalGaussian(torch.zeros_like(coarse.mean), torch.ones_like(coarse.std))
            of_nothing = coarse.kl(standard)[..., None].expand(*of_blocks.shape[:-1], 1)
            num_free = (1 + self.grid.num_blocks - taken.sum(-1, keepdim=True)).to(of_blocks.dtype)
            divergence = torch.cat((of_blocks, of_nothing), -1)
            log_counts = num_free.log()[..., None].expand_as(of_nothing)
            scores = torch.cat((-of_blocks, log_counts - of_nothing), -1)
            return _Posterior(fine, coarse, scores.log_softmax(-1), divergence, num_free)

    def _terms(
        self, x: Tensor, mask: Tensor | None, write_mask: Tensor | None, generator: torch.Generator | None
    ) -> tuple[Terms, Any]:
        """A fine and a coarse code are drawn for every frame; which of them is meant is summed over."""
        counts, subset = (self._counts("terms", x, some) for some in (mask, self._subset(mask, write_mask)))
        fine, coarse = self._codes(x)
        state = self._store("terms", fine.mean, subset)
        found = self._find(state, fine, coarse)
        with_fine, with_coarse = (self.codec.log_prob(q.rsample(generator=generator), x) for q in (fine, coarse))
        nothing = found.log_probs[..., -1].exp()
        reconstruction = (1 - nothing) * with_fine + nothing * with_coarse
        return Terms(reconstruction, found.code_kl, found.address_kl, None, counts), state

    def log_weights(
        self, state: BlockState, x: Tensor, *, num_samples: int = 1, generator: torch.Generator | None = None
    ) -> Tensor:
        """Blocks and codes are drawn anew for every sample; images are encoded and looked for once."""
        check_size("num_samples", num_samples)
        self.codec.check("log_weights", x)
        self._check_asked("log_weights", state, x)
        found, priors = self._find(state, *self._codes(x)), self._code_priors(state)
        sizes = parts_of(num_samples, found.log_probs.shape[:-1].numel())
        return torch.cat([self._weigh(found, priors, x, size, generator) for size in sizes])

    def _log_weight(self, state: BlockState, x: Tensor, encoded: Any, generator: torch.Generator | None) -> Tensor:
        return self.log_weights(state, x, generator=generator)[0]

    def _weigh(
        self,
        found: _Posterior,
        priors: DiagonalGaussian,
        x: Tensor,
        num_samples: int,
        generator: torch.Generator | None,
    ) -> Tensor:
        """All samples of an item beside each other. Shapes: -> (num_samples, *B, Q)"""
        place = _draw(found.log_probs, num_samples, generator)
        leading, nothing = place.shape, place == self.grid.num_blocks
        fine, coarse = (
            q.map(lambda part: part[..., None, :].expand(*leading, part.shape[-1])) for q in (found.fine, found.coarse)
        )
        parts = zip(coarse.tensors().values(), fine.tensors().values(), strict=True)
        q = DiagonalGaussian(*(torch.where(nothing[..., None], *pair) for pair in parts))
        z = q.rsample(generator=generator)
        ratio = _take(priors, place.flatten(-2)).map(lambda part: part.unflatten(-2, leading[-2:])).log_prob(z)
        ratio = ratio - q.log_prob(z) - found.log_probs.expand(*leading[:-1], -1).gather(-1, place)
        ratio = ratio + torch.where(nothing, found.log_free, 0.0) - math.log(self.grid.num_blocks + 1)
        images = x.unsqueeze(len(leading) - 1).expand(*leading, *self.codec.image_shape)
        return (self.codec.log_prob(z, images) + ratio).movedim(-1, 0)

    # -- reading -----------------------------------------------------------------------------------

    def _recall_codes(self, state: BlockState, cue: Tensor, generator: torch.Generator | None) -> Tensor:
        """What stands in the block that fits a cue best; with a generator, a draw. Nothing written, nothing found."""
        found = self._find(state, *self._codes(cue))
        written = found.log_probs[..., :-1]
        empty = (state.written < 1)[..., None]
        place = written.argmax(-1) if generator is None else _draw(written.log_softmax(-1), 1, generator)[..., 0]
        codes = _take(self._code_priors(state), torch.where(empty, self.grid.num_blocks, place))
        return codes.mean if generator is None else codes.rsample(generator=generator)

    def _sample_codes(self, state: BlockState, n: int, generator: torch.Generator | None) -> Tensor:
        keys = standard_normal_like(state.memory, torch.Size((*state.batch_shape, n, KEY_DIM)), generator)
        return _take(self._code_priors(state), self.grid.named(keys)).rsample(generator=generator)

    def _mean_code(self, state: BlockState) -> Tensor:
        return self._code_priors(state).mean.mean(-2)

    def _check_state(self, where: str, state: BlockState) -> None:
        if not isinstance(state, BlockState) or tuple(state.memory.shape[-3:]) != self.grid.map_shape:
            got = tuple(state.memory.shape) if isinstance(state, BlockState) else type(state).__name__
            shape = ", ".join(map(str, self.grid.map_shape))
            raise ValueError(
                f"{where}: expected a BlockState with memory (*B, {shape}), got {got}; a map of another size "
                "belongs to another model"
            )


def _draw(log_probs: Tensor, num_samples: int, generator: torch.Generator | None) -> Tensor:
    """Places, by inverting the distribution function. Shapes: (..., N) -> int64 (..., num_samples)"""
    bounds = log_probs.exp().cumsum(-1)
    bounds = bounds / bounds[..., -1:]  # rounded sums may end below 1, and the last place need not be a likely one
    shape = (*log_probs.shape[:-1], num_samples)
    uniform = torch.rand(shape, dtype=bounds.dtype, device=bounds.device, generator=generator)
    return torch.searchsorted(bounds, uniform, right=True).clamp(max=log_probs.shape[-1] - 1)


def _take(codes: DiagonalGaussian, places: Tensor) -> DiagonalGaussian:
    """Of each memory those at given places. Shapes: codes (*B, N, C), places (*B, Q) -> (*B, Q, C)"""
    batch = torch.broadcast_shapes(codes.batch_shape[:-1], places.shape[:-1])
    index = places.expand(*batch, places.shape[-1])[..., None].expand(*batch, places.shape[-1], codes.mean.shape[-1])
    return codes.map(lambda part: part.expand(*batch, *part.shape[-2:]).gather(-2, index))
