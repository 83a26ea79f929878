"""What the models with a codec share: reading by steps, importance-weighted bounds, input checks."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from mnemon import objectives
from mnemon.core.checks import check_finite, check_item_shape, check_observed, check_size, common_batch
from mnemon.core.episode import EVERY_ROLE, Roles
from mnemon.core.protocol import Bound, MemoryModel, Terms
from mnemon.core.state import State
from mnemon.distributions.gaussian import LOG_2PI
from mnemon.memories.frames import Frames
from mnemon.memories.graphs import WriteGraphs
from mnemon.nets.codec import Codec, ImageCodec
from mnemon.objectives import Estimator, Request, Surrogate


@dataclass(frozen=True, eq=False)
class Writing:
    """How images are to be written: the options of `MemoryModel.write`."""

    prior: Any
    mask: Tensor | None
    weights: Tensor | None
    num_steps: int | None
    generator: torch.Generator | None


class CodecModel(MemoryModel):
    """A memory model of images with a codec. A subclass says what is recalled and generated.

    Outputs are those of the decoder, from which the likelihood makes images.
    """

    codec: ImageCodec
    estimators: ClassVar[tuple[str, ...]] = ("terms",)
    """Kinds of `Estimator` that it can be trained with, its own choice first."""
    trains_without_codes: ClassVar[bool] = False
    """Whether other latents can say what codes say, so that a stage of training may leave these out."""

    def __init__(self, codec: ImageCodec) -> None:
        super().__init__()
        self.codec = codec
        self._graphs: WriteGraphs | None = None

    @property
    def image_shape(self) -> tuple[int, ...]:
        return self.codec.image_shape

    @property
    def encodes_together(self) -> bool:
        """Whether `terms` encodes the frames of an episode together, where `log_weights` encodes each alone."""
        return False

    def use_graphs(self) -> None:
        """Replay the sweeps of `terms`, if there are any, as CUDA graphs, for training steps: see `WriteGraphs`."""
        self._graphs = WriteGraphs()

    @abstractmethod
    def _recall(self, state: Any, cue: Tensor, generator: torch.Generator | None) -> Tensor:
        """Outputs that the memory recalls from images. Shapes: (*B, Q, *X) -> (*B, Q, *outputs)"""

    @abstractmethod
    def _generate(self, state: Any, n: int, generator: torch.Generator | None) -> Tensor:
        """Outputs that the memory generates. Shapes: -> (*B, n, *outputs)"""

    @abstractmethod
    def _blank(self, state: Any) -> Tensor:
        """The image that unobserved pixels start from. Shapes: -> (*B, 1, *X)"""

    @abstractmethod
    def _write(self, x: Tensor, how: Writing) -> Any:
        """The memory of images of the right shape; masked ones may hold anything. Shapes: x (*B, T, *X)"""

    def write(
        self,
        x: Tensor,
        *,
        prior: Any = None,
        mask: Tensor | None = None,
        weights: Tensor | None = None,
        num_steps: int | None = None,
        generator: torch.Generator | None = None,
    ) -> Any:
        self.codec.check("write", x)
        mask = self._item_mask("write", "mask", x, mask)
        return self._write(x, Writing(prior, mask, weights, num_steps, generator)).contiguous()

    @abstractmethod
    def _terms(
        self, x: Tensor, mask: Tensor | None, write_mask: Tensor | None, generator: torch.Generator | None
    ) -> tuple[Terms, Any]:
        """The parts of the bound and the memory of images that are checked already, blank where they are masked."""

    def terms_and_state(
        self,
        x: Tensor,
        *,
        mask: Tensor | None = None,
        write_mask: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> tuple[Terms, Any]:
        """The parts of the bound, and the memory that was written for them (a training may read from it)."""
        return self._terms(*self._checked("terms", x, mask, write_mask), generator)

    def _checked(
        self, where: str, x: Tensor, mask: Tensor | None, write_mask: Tensor | None
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Images, blank where they are masked, and the masks as bool."""
        self.codec.check(where, x)
        mask = self._item_mask(where, "mask", x, mask)
        return self._present(x, mask), mask, self._item_mask(where, "write_mask", x, write_mask)

    def _terms_and_extra(
        self, x: Tensor, mask: Tensor | None, write_mask: Tensor | None, generator: torch.Generator | None
    ) -> tuple[Terms, Any, Tensor | None]:
        """The same, and `auxiliary` where a model has it from what it made for the terms."""
        return *self._terms(x, mask, write_mask, generator), None

    def terms(
        self,
        x: Tensor,
        *,
        mask: Tensor | None = None,
        write_mask: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Terms:
        return self.terms_and_state(x, mask=mask, write_mask=write_mask, generator=generator)[0]

    def surrogate(
        self,
        x: Tensor,
        estimator: Estimator,
        *,
        mask: Tensor | None = None,
        write_mask: Tensor | None = None,
        roles: Roles = EVERY_ROLE,
        kl_weight: float | Tensor = 1.0,
        generator: torch.Generator | None = None,
    ) -> Surrogate:
        """What training maximises.

        roles      which items are written and which are scored, where these are not all
        kl_weight  scales the KL parts of what is maximised (a warm-up), not of what is reported
        """
        self._check_estimator(estimator)
        return self._surrogate(x, Request(estimator, mask, write_mask, roles, kl_weight), generator)

    def _surrogate(self, x: Tensor, asked: Request, generator: torch.Generator | None) -> Surrogate:
        """The bound itself; a model whose gradient is estimated otherwise says how."""
        write_mask, roles = asked.write_mask, asked.roles
        if roles.written is not None:
            write_mask = roles.write_mask(x.shape[: roles.written.ndim])
        checked = self._checked("terms", x, asked.mask, write_mask)
        terms, state, extra = self._terms_and_extra(*checked, generator)
        return Surrogate(None, terms if roles.scored is None else _terms_at(terms, roles.scored), state, extra=extra)

    def _check_estimator(self, estimator: Estimator) -> None:
        if estimator.kind not in self.estimators:
            raise ValueError(
                f"estimator: {type(self).__name__} is trained with {' or '.join(self.estimators)}, got {estimator.kind}"
            )
        if not (estimator.codes or self.trains_without_codes):
            raise ValueError(
                f"estimator: {type(self).__name__} says everything by its codes; leave stages.codes as it is, or train "
                "a context-aware learner"
            )

    def recall_log_prob(self, state: Any, cue: Tensor, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """log p(x | what is recalled from a cue), which training may maximise; with a generator, of drawn latents.

        Shapes: (*B, Q, *X) -> (*B, Q)
        """
        return self.codec.likelihood.log_prob(self._recall(state, cue, generator), x)

    @property
    def _like(self) -> Tensor:
        """An empty tensor on the model's device, of the dtype that its memory computes in."""
        return full_precision(next(self.parameters()).detach()).new_empty(0)

    def _item_mask(self, where: str, name: str, x: Tensor, mask: Tensor | None) -> Tensor | None:
        """Which items are meant, after checks, as bool. Shapes: (*B, T) both"""
        if mask is None:
            return None
        check_item_shape(where, name, mask, x.shape[: x.ndim - len(self.codec.image_shape)])
        return mask.bool()

    def _check_state(self, where: str, state: Any) -> None:
        """Refuse what no memory is; a subclass, also memories of other models."""
        if not isinstance(state, State):
            raise ValueError(f"{where}: expected a memory, as write gives it, got {type(state).__name__}")

    def _check_asked(self, where: str, state: Any, x: Tensor) -> None:
        """Refuse a memory that is not this model's, or one that is not for these images."""
        self._check_state(where, state)
        common_batch(where, state.batch_shape, x.shape[: x.ndim - len(self.codec.image_shape) - 1])

    def _present(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Masked images may hold anything, also NaN, which would spread through the gradient: blank them."""
        return x if mask is None else torch.where(mask.reshape(mask.shape + (1,) * len(self.codec.image_shape)), x, 0.0)

    def _counts(self, where: str, x: Tensor, mask: Tensor | None, weights: Tensor | None = None) -> Tensor | None:
        """How often each item counts, after checks of what says so; None: all once. Shapes: -> (*B, T)"""
        leading = x.shape[: x.ndim - len(self.codec.image_shape)]
        return Frames.gather(where, self._like.new_zeros((*leading, 1)), 1, mask, weights).counts

    def _subset(self, mask: Tensor | None, write_mask: Tensor | None) -> Tensor | None:
        """Which items are written: those that are to be, and are there."""
        if mask is None or write_mask is None:
            return mask if write_mask is None else write_mask
        return mask & write_mask

    def _image(self, outputs: Tensor, sample_pixels: bool, generator: torch.Generator | None) -> Tensor:
        likelihood = self.codec.likelihood
        return likelihood.sample(outputs, generator) if sample_pixels else likelihood.mean(outputs)

    def read(
        self,
        state: Any,
        cue: Tensor,
        *,
        observed: Tensor | None = None,
        steps: int = 1,
        sample_pixels: bool = True,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Recall cues. With a generator the latents are drawn, and the pixels too: `sample_pixels=False` gives
        the mean images of drawn codes instead. Without a generator nothing is drawn.

        Shapes: (*B, Q, *X) -> (*B, Q, *X)
        """
        check_size("steps", steps)
        self.codec.check("read", cue)
        self._check_asked("read", state, cue)
        current = cue
        if observed is not None:
            check_observed("read", observed, cue.shape)
            current = torch.where(observed, cue, self._blank(state))
        if cue.numel():
            check_finite("read: cue", current, "tell which pixels are there by observed, or drop such images")
        recalled = current
        for _ in range(steps):
            outputs = self._recall(state, current, generator)
            recalled = self._image(outputs, sample_pixels and generator is not None, generator)
            current = recalled if observed is None else torch.where(observed, cue, recalled)
        return recalled

    def sample(
        self, state: Any, n: int = 1, *, sample_pixels: bool = False, generator: torch.Generator | None = None
    ) -> Tensor:
        """Generate: mean images of drawn codes, or with `sample_pixels` drawn images. Shapes: -> (*B, n, *X)"""
        check_size("n", n)
        self._check_state("sample", state)
        return self._image(self._generate(state, n, generator), sample_pixels, generator)

    def log_likelihood(
        self, state: Any, x: Tensor, *, num_samples: int = 1, generator: torch.Generator | None = None
    ) -> Bound:
        return objectives.bound(self.log_weights(state, x, num_samples=num_samples, generator=generator))


class CodeModel(CodecModel):
    """A model whose memory reaches the pixels only through a code. A subclass says what its memory makes of a code."""

    codec: Codec

    def __init__(self, codec: Codec) -> None:
        super().__init__(codec)

    @abstractmethod
    def _recall_codes(self, state: Any, cue: Tensor, generator: torch.Generator | None) -> Tensor:
        """Codes that the memory recalls from images. Shapes: (*B, Q, *X) -> (*B, Q, C)"""

    @abstractmethod
    def _sample_codes(self, state: Any, n: int, generator: torch.Generator | None) -> Tensor:
        """Codes that the memory generates. Shapes: -> (*B, n, C)"""

    @abstractmethod
    def _mean_code(self, state: Any) -> Tensor:
        """Mean of the codes that the memory generates: unobserved pixels start from its image. Shapes: -> (*B, C)"""

    def _encoded(self, x: Tensor) -> Any:
        """What all draws of `_log_weight` take from the images: codes, or encodings of a codec without a head."""
        return self.codec.encodings(x) if self.codec.head is None else self.codec.encode(x).map(full_precision)

    @abstractmethod
    def _log_weight(self, state: Any, x: Tensor, encoded: Any, generator: torch.Generator | None) -> Tensor:
        """One draw of log p(x, latents | memory) / q(latents). Shapes: (*B, Q, *X) -> (*B, Q)"""

    def _recall(self, state: Any, cue: Tensor, generator: torch.Generator | None) -> Tensor:
        return self.codec.decode(self._recall_codes(state, cue, generator))

    def _generate(self, state: Any, n: int, generator: torch.Generator | None) -> Tensor:
        return self.codec.decode(self._sample_codes(state, n, generator))

    def _blank(self, state: Any) -> Tensor:
        return self.codec.image(self._mean_code(state).unsqueeze(-2))

    def log_weights(
        self, state: Any, x: Tensor, *, num_samples: int = 1, generator: torch.Generator | None = None
    ) -> Tensor:
        check_size("num_samples", num_samples)
        self.codec.check("log_weights", x)
        self._check_asked("log_weights", state, x)
        encoded = self._encoded(x)
        return torch.stack([self._log_weight(state, x, encoded, generator) for _ in range(num_samples)])


def take_items(x: Tensor, places: Tensor) -> Tensor:
    """The items at given places of each episode. Shapes: x (*B, T, *X), places (*B, Q) -> (*B, Q, *X)"""
    depth = places.ndim
    index = places.reshape(*places.shape, *(1,) * (x.ndim - depth)).expand(*places.shape, *x.shape[depth:])
    return x.gather(depth - 1, index)


def _terms_at(terms: Terms, places: Tensor) -> Terms:
    names = ("reconstruction", "code_kl", "address_kl", "counts")
    parts = {name: getattr(terms, name) for name in names}
    return terms.replace(**{name: part.gather(-1, places) for name, part in parts.items() if part is not None})


def full_precision(tensor: Tensor) -> Tensor:
    """In float32 at least: sums, variances and matrices of the memories are not for half precision."""
    return tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor


def no_autocast(tensor: Tensor) -> torch.autocast:
    """Where autocast is on, products of float32 matrices are half precision too: off, for the memory's algebra."""
    return torch.autocast(tensor.device.type, enabled=False)


def log_normal(z: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """log N(z; mean, diag(variance)). Shapes: (*B, C), the others broadcast to it -> (*B)"""
    return -0.5 * ((z - mean).square() / variance + variance.log() + LOG_2PI).sum(-1)
