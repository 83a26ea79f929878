"""Kanerva++: an episode becomes one small map, and each item's keys say which windows of it to read.

    M = f(mean_t E_t),  y_tk ~ N(0, I),  z_t | M, y_t ~ N(mu(reads), std(reads)^2),  x_t ~ p(x | z_t)

E_t are encodings of the episode's frames; q(y_tk | x_t) and q(z_t | x_t) are made of them too. K++, equations 2 to 7.
The map is computed, not inferred: there is a bound on log p(episode | memory), and none on log p(episode).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from mnemon.core.checks import check_size
from mnemon.core.protocol import Terms
from mnemon.distributions.gaussian import DiagonalGaussian, standard_normal_like
from mnemon.memories.frames import Frames
from mnemon.memories.spatial import KEY_DIM, SpatialState, corner_keys, read_windows, windows_of
from mnemon.models.codec_model import CodeModel, Writing, full_precision, no_autocast
from mnemon.nets.codec import Codec, parts_of
from mnemon.nets.evonorm import MapWriter, ReadEncoder
from mnemon.nets.mlp import DenseReader
from mnemon.nets.resnet_tsm import TSMResNet
from mnemon.nets.spectral import GaussianDense

FIRST_KEY, KEY_SPREAD, KEY_STD = (1.0, 0.0, 0.0), 0.1, 0.05
"""Where keys start: all near one window, of three quarters of the map. Windows that are drawn from p(y) at once show
another piece of the map at another scale each time, and what a read tells of the episode is lost in that: models that
start so learn to do without their memory. From one window they learn to read within a hundred steps."""


class KanervaPlusPlus(CodeModel):
    """A spatial memory read by affine keys.

    codec      with a `TSMResNet` as encoder: see `tsm_codec`
    num_reads  windows that each item reads (K++, 4.3: two)
    map_shape  (channels, height, width) of the memory
    read_size  pixels on a side of a window (the paper leaves it open)
    num_filters  of the first convolution over the reads; the map's net starts from four times as many
    hidden     width of the key net
    dense_readout  the ablation without block memory (K++, 4.2): the prior of codes sees the whole map and the keys
               through dense layers, and no window is read. Differs from paper: there, it sees no keys

    `write` and `terms` encode the frames of an episode together. A cue, and what `log_weights` scores, is an episode of
    one: what is found for it does not depend on which others are asked with it. So `terms` is the paper's number, and
    `log_likelihood` that of single items, also on the same frames.

    The temporal shift makes the memory depend on the order of the frames, if only through their neighbours; a masked
    frame is as good as absent, but in training it counts in the batch's statistics.

    Differs from paper: keys are drawn with their standard deviation, where equation 6 has its square.
    """

    def __init__(
        self,
        codec: Codec,
        *,
        num_reads: int = 2,
        map_shape: tuple[int, int, int] = (3, 64, 64),
        read_size: int = 32,
        num_filters: int = 64,
        hidden: int = 512,
        dense_readout: bool = False,
    ) -> None:
        super().__init__(codec)
        for name, size in {"num_reads": num_reads, "read_size": read_size, "num_filters": num_filters}.items():
            check_size(name, size)
        if len(map_shape) != 3 or min(map_shape) < 1:
            raise ValueError(f"map_shape: expected (channels, height, width), got {map_shape}")
        if not isinstance(codec.encoder, TSMResNet) or codec.head is None:
            raise ValueError(
                "KanervaPlusPlus: expected a codec with a TSMResNet as encoder, and a head, got another; make it with "
                "tsm_codec"
            )
        self.num_reads, self.map_shape, self.read_size = num_reads, tuple(map_shape), read_size
        width = codec.encoder.width
        self.dense_readout = dense_readout
        self.key_net = GaussianDense(width, num_reads * KEY_DIM, hidden=hidden, spread=KEY_SPREAD, std=KEY_STD)
        with torch.no_grad():
            self.key_net.offset[: num_reads * KEY_DIM].copy_(torch.tensor(FIRST_KEY).repeat(num_reads))
        self.map_net = MapWriter(map_shape, width, num_filters=4 * num_filters)
        self.prior_net: DenseReader | ReadEncoder
        if dense_readout:
            sizes = (math.prod(map_shape), num_reads * KEY_DIM, codec.code_dim)
            self.prior_net = DenseReader(*sizes, hidden=hidden)
        else:
            self.prior_net = ReadEncoder(num_reads * map_shape[0], read_size, codec.code_dim, num_filters=num_filters)

    @property
    def encodes_together(self) -> bool:
        return True

    def _write(self, x: Tensor, how: Writing) -> SpatialState:
        """The map of the frames' mean encoding, in one pass; there are no sweeps for `num_steps` to count.

        Weights count in the mean. Frames beside each other see each other once, whatever they weigh; those of weight
        0 are absent.
        """
        if how.prior is not None:
            raise ValueError(
                "write: expected no prior, got one; the map of Kanerva++ is made in one pass from the mean encoding of "
                "frames that were encoded together, which cannot be had from a map again; write all frames at once, or "
                "set block_write"
            )
        counts = self._counts("write", x, how.mask, how.weights)
        return self._store("write", self._encode_episodes(self._present(x, how.mask), counts), counts)

    def _terms(
        self, x: Tensor, mask: Tensor | None, write_mask: Tensor | None, generator: torch.Generator | None
    ) -> tuple[Terms, Any]:
        """One draw of keys and codes; code_kl is KL(q(z | x) || p(z | reads)) at those keys. K++, equation 4.

        With `write_mask`, the written frames are encoded once more without the others: the shift would carry the
        others into the memory.
        """
        counts, subset = (self._counts("terms", x, some) for some in (mask, self._subset(mask, write_mask)))
        encodings = self._encode_episodes(x, counts)
        written = encodings if write_mask is None else self._encode_episodes(x, subset)
        state = self._store("terms", written, subset)
        q_key, q_code = self._posteriors(encodings)
        code_prior = self._code_prior(state, q_key.rsample(generator=generator))
        code_kl = q_code.kl(code_prior)
        address_kl = q_key.kl(_standard(q_key)).sum(-1)
        reconstruction = self.codec.log_prob(q_code.rsample(generator=generator), x)
        return Terms(reconstruction, code_kl, address_kl, None, counts), state

    def perturbed(
        self,
        state: SpatialState,
        cue: Tensor,
        n: int = 1,
        *,
        std: float = 0.1,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Images around each cue: its expected keys, moved a little. K++, 4.1.1.

        Shapes: (*B, Q, *X) -> (*B, Q, n, *X)
        """
        check_size("n", n)
        if not 0 <= std < math.inf:
            raise ValueError(f"std: expected a finite deviation of at least 0, got {std}")
        self.codec.check("perturbed", cue)
        self._check_asked("perturbed", state, cue)
        keys = self._keys(self.codec.encodings(cue)).mean[..., None, :, :]
        keys = keys.expand(*keys.shape[:-3], n, *keys.shape[-2:])
        keys = keys + std * standard_normal_like(keys, keys.shape, generator)
        around = self._code_prior(state, keys.flatten(-4, -3)).mean
        return self.codec.image(around).unflatten(len(around.shape) - 2, (-1, n))

    def _encode_episodes(self, x: Tensor, counts: Tensor | None) -> Tensor:
        """Shapes: (*B, T, *X), (*B, T) -> (*B, T, width)"""
        assert isinstance(self.codec.encoder, TSMResNet)
        return self.codec.encoder.encode_episodes(x, None if counts is None else counts > 0)

    def _store(self, where: str, encodings: Tensor, counts: Tensor | None) -> SpatialState:
        """The map of the mean over the frames that are written. Shapes: encodings (*B, T, width), counts (*B, T)"""
        frames = Frames.gather(where, full_precision(encodings), encodings.shape[-1], weights=counts)
        pooled = frames.centre[..., 0, :]
        memory = self.map_net(pooled.reshape(-1, pooled.shape[-1]))
        return SpatialState(full_precision(memory).reshape(*pooled.shape[:-1], *self.map_shape))

    def _posteriors(self, encodings: Tensor) -> tuple[DiagonalGaussian, DiagonalGaussian]:
        """q(y | x) and q(z | x). Shapes: (*B, T, width) -> (*B, T, num_reads, 3), (*B, T, C)"""
        assert self.codec.head is not None
        return self._keys(encodings), DiagonalGaussian(*map(full_precision, self.codec.head(encodings)))

    def _keys(self, encodings: Tensor) -> DiagonalGaussian:
        """q(y | x). Shapes: (*B, T, width) -> (*B, T, num_reads, 3)"""
        keys = DiagonalGaussian(*map(full_precision, self.key_net(encodings)))
        return keys.map(lambda part: part.unflatten(-1, (self.num_reads, KEY_DIM)))

    def _code_prior(self, state: SpatialState, keys: Tensor) -> DiagonalGaussian:
        """p(z | reads). Shapes: keys (*B, Q, num_reads, 3) -> (*B, Q, C)"""
        if self.dense_readout:
            mean, std = self.prior_net(state.memory.flatten(-3)[..., None, :], keys.flatten(-2))
            return DiagonalGaussian(full_precision(mean), full_precision(std))
        batch = torch.broadcast_shapes(state.batch_shape, keys.shape[:-3])
        with no_autocast(keys):
            windows = windows_of(keys).expand(*batch, *keys.shape[-3:])
            reads = read_windows(state.expand(batch), windows, self.read_size)
        stacked = reads.flatten(-4, -3)
        leading = stacked.shape[:-3]
        mean, std = self.prior_net(stacked.reshape(-1, *stacked.shape[-3:]))
        return DiagonalGaussian(full_precision(mean), full_precision(std)).map(lambda part: part.unflatten(0, leading))

    def _recall_codes(self, state: SpatialState, cue: Tensor, generator: torch.Generator | None) -> Tensor:
        """What the memory says at the cue's keys; asked again with its own answer, it reads iteratively. K++, eq. 7."""
        keys = self._keys(self.codec.encodings(cue))
        if generator is None:
            return self._code_prior(state, keys.mean).mean
        return self._code_prior(state, keys.rsample(generator=generator)).rsample(generator=generator)

    def _sample_codes(self, state: SpatialState, n: int, generator: torch.Generator | None) -> Tensor:
        shape = torch.Size((*state.batch_shape, n, self.num_reads, KEY_DIM))
        keys = standard_normal_like(state.memory, shape, generator)
        return self._code_prior(state, keys).rsample(generator=generator)

    def _mean_code(self, state: SpatialState) -> Tensor:
        """The mean over eight keys that stand for p(y), the same for all reads."""
        keys = corner_keys(state.memory)[:, None, :].expand(-1, self.num_reads, -1)
        return self._code_prior(state, keys.expand(*state.batch_shape, *keys.shape)).mean.mean(-2)

    def log_weights(
        self, state: SpatialState, x: Tensor, *, num_samples: int = 1, generator: torch.Generator | None = None
    ) -> Tensor:
        """Keys and codes are drawn anew for every sample; images are encoded once, each alone."""
        check_size("num_samples", num_samples)
        self.codec.check("log_weights", x)
        self._check_asked("log_weights", state, x)
        posteriors = self._posteriors(self.codec.encodings(x))
        sizes = parts_of(num_samples, posteriors[1].batch_shape.numel())
        return torch.cat([self._weigh(state, x, *posteriors, size, generator) for size in sizes])

    def _log_weight(
        self, state: SpatialState, x: Tensor, encodings: Tensor, generator: torch.Generator | None
    ) -> Tensor:
        return self._weigh(state, x, *self._posteriors(encodings), 1, generator)[0]

    def _weigh(
        self,
        state: SpatialState,
        x: Tensor,
        q_key: DiagonalGaussian,
        q_code: DiagonalGaussian,
        num_samples: int,
        generator: torch.Generator | None,
    ) -> Tensor:
        """All samples of an item beside each other: they read the same map. Shapes: -> (num_samples, *B, Q)"""
        leading = q_code.batch_shape
        depth = len(leading)
        q_key, q_code = (
            q.map(lambda part: part.unsqueeze(depth).expand(*leading, num_samples, *part.shape[depth:]))
            for q in (q_key, q_code)
        )
        keys, z = q_key.rsample(generator=generator), q_code.rsample(generator=generator)
        code_prior = self._code_prior(state, keys.flatten(depth - 1, depth))
        code_prior = code_prior.map(lambda part: part.unflatten(-2, (-1, num_samples)))
        ratio = code_prior.log_prob(z) - q_code.log_prob(z)
        ratio = ratio + (_standard(q_key).log_prob(keys) - q_key.log_prob(keys)).sum(-1)
        images = x.unsqueeze(depth).expand(*leading, num_samples, *self.codec.image_shape)
        return (self.codec.log_prob(z, images) + ratio).movedim(-1, 0)

    def _check_state(self, where: str, state: SpatialState) -> None:
        if not isinstance(state, SpatialState) or tuple(state.memory.shape[-3:]) != self.map_shape:
            got = tuple(state.memory.shape) if isinstance(state, SpatialState) else type(state).__name__
            shape = ", ".join(map(str, self.map_shape))
            raise ValueError(
                f"{where}: expected a SpatialState with memory (*B, {shape}), got {got}; a map of another size belongs "
                "to another model"
            )


def _standard(q: DiagonalGaussian) -> DiagonalGaussian:
    return DiagonalGaussian(torch.zeros_like(q.mean), torch.ones_like(q.std))
