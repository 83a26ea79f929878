"""What the models over stored items share: writing them down with their keys, and finding them again.

The memory is what was written, item by item, as it came (few-shot memory), or a parameter (learned memory). VMA, 2.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mnemon.core.checks import check_size
from mnemon.core.episode import EVERY_ROLE, Roles
from mnemon.core.protocol import Terms
from mnemon.memories.frames import Frames
from mnemon.memories.slots import ItemState, Similarity, SlotAddress, scale_keys, scale_queries, take_slots
from mnemon.models.codec_model import CodecModel, Writing, full_precision, take_items
from mnemon.nets.codec import images_at_once
from mnemon.nets.conditional import ConditionalCodec, Content

CONTENT_STD = 0.02
"""Of learned contents at the start. If they are far apart, one of them may explain every image best before the decoder
knows what an image is, and all addresses go there for good (MNIST with vectors as contents)."""


class SlotModel(CodecModel):
    """A model of images with a memory of items. A subclass says how items and codes make an image.

    codec         nets that see a memory's content
    item_net      h(m): contents (N, *content) to keys (N, E)
    similarity    of keys and queries: "normalised" (by the key's norm), "inner", "cosine"
    num_slots     of a learned memory; None: the memory is what is written
    content_std   how far apart learned contents are at the start
    """

    codec: ConditionalCodec
    takes_empty: ClassVar[bool] = False
    """Whether a memory without items can be asked."""

    def __init__(
        self,
        codec: ConditionalCodec,
        item_net: nn.Module,
        *,
        similarity: Similarity = "normalised",
        num_slots: int | None = None,
        content_std: float = CONTENT_STD,
    ) -> None:
        super().__init__(codec)
        scale_keys(torch.zeros(1), similarity)  # refuses an unknown one
        self.item_net, self.similarity = item_net, similarity
        self.contents: nn.Parameter | None = None
        if num_slots is not None:
            check_size("num_slots", num_slots)
            self.undecayed = ("contents",)  # VMA, 4.2
            self.contents = nn.Parameter(content_std * torch.randn(num_slots, math.prod(codec.content_shape)))
        elif codec.content_shape != codec.image_shape:
            raise ValueError(
                f"{type(self).__name__}: expected num_slots with contents of shape {codec.content_shape}: they are "
                "no images, so nothing but a learned memory can hold them"
            )

    def _write(self, x: Tensor, how: Writing) -> ItemState:
        """Store the items, after those of `prior`; equal items may be stored again, and weigh the more.

        A weight is how often an item is stored; masked items, and those of weight 0, take no slot.
        """
        if self.contents is not None:
            raise ValueError(
                f"write: expected a model that stores items, got one with a learned memory: its {len(self.contents)} "
                "contents are parameters, and prior_state() gives them; make the model without num_slots to write"
            )
        if how.prior is not None:
            self._check_state("write: prior", how.prior)
        counts = self._counts("write", x, how.mask, how.weights)
        state = self._store(self._present(x, how.mask), counts).compact()
        return state if how.prior is None else how.prior.append(state)

    @property
    def can_write(self) -> bool:
        return self.contents is None

    def prior_state(self, batch_shape: tuple[int, ...] = ()) -> ItemState:
        """The learned memory; without one there is nothing before the first write."""
        if self.contents is None:
            raise ValueError(
                f"prior_state: {type(self).__name__} stores items and has none before the first write, so p(x) without "
                "a memory is not defined; write an episode first"
            )
        return self._learned().expand(batch_shape)

    def _learned(self) -> ItemState:
        assert self.contents is not None
        return ItemState(full_precision(self.contents), self._keys(self.contents))

    def _store(self, x: Tensor, counts: Tensor | None) -> ItemState:
        """Every item in a slot of its own. Shapes: x (*B, T, *X), counts (*B, T)"""
        items = x.flatten(x.ndim - len(self.codec.image_shape))
        keys = self._keys(items)
        return ItemState(items, keys, None if counts is None else counts.to(keys.dtype))

    def _episode(self, x: Tensor, mask: Tensor | None, write_mask: Tensor | None, written: Tensor | None) -> ItemState:
        """The memory of a training episode: a slot for every written place, or for every item, then empty where it is
        not written."""
        if self.contents is not None:
            return self._learned()
        subset = self._subset(mask, write_mask)
        if written is not None:
            x, subset = take_items(x, written), None if subset is None else subset.gather(-1, written)
        return self._store(x, None if subset is None else self._counts("terms", x, subset))

    def _counts(self, where: str, x: Tensor, mask: Tensor | None, weights: Tensor | None = None) -> Tensor | None:
        """How often each item is stored, after checks of what says so. Shapes: -> (*B, T)"""
        item = torch.zeros((*self._leading(x), 1), dtype=x.dtype, device=x.device)
        return Frames.gather(where, item, 1, mask, weights).counts

    def _keys(self, items: Tensor) -> Tensor:
        """Scaled h(m). Shapes: (..., D) -> (..., E)"""
        return scale_keys(self._embed(self.item_net, items.unflatten(-1, self.codec.content_shape)), self.similarity)

    def _embed(self, net: nn.Module, values: Tensor, event_ndim: int | None = None) -> Tensor:
        """A net into the matching space, over any leading dimensions. Shapes: (*N, *event) -> (*N, E)"""
        leading = values.shape[: values.ndim - (len(self.codec.content_shape) if event_ndim is None else event_ndim)]
        embedded = self.codec.in_blocks(net, values.flatten(0, len(leading) - 1))
        return full_precision(embedded).unflatten(0, leading)

    def _find(self, state: ItemState, queries: Tensor) -> SlotAddress:
        return SlotAddress.of(state, scale_queries(queries, self.similarity))

    def _contents_at(self, state: ItemState, index: Tensor) -> Content:
        """The contents of drawn slots. Each slot goes through the nets at most once. Shapes: index (S, *B, Q)"""
        draws = index.shape[0] * index.shape[-1] * (1 if state.batch_shape else index[0, ..., 0].numel())
        if state.num_slots > draws:
            return self.codec.content(self._shaped(take_slots(state.items, index)))
        return self._contents_of(self.codec.content(self._shaped(state.items)), index)

    def _contents_of(self, content: Content, index: Tensor) -> Content:
        """Of slots whose contents are known. Shapes: content (*B, M, ...), index (S, *B, Q) -> (S, *B, Q, ...)"""
        depth = content.m.ndim - len(self.codec.content_shape)
        return content.map(lambda values: take_slots(values.flatten(depth), index).unflatten(-1, values.shape[depth:]))

    def _shaped(self, items: Tensor) -> Tensor:
        return items.unflatten(-1, self.codec.content_shape)

    def _noise(self, leading: torch.Size, num_samples: int, generator: torch.Generator | None) -> Tensor:
        """For codes. Drawn with the samples after the episodes, which processes deal out. Shapes: -> (S, *B, Q, C)"""
        shape = (*leading, num_samples, self.codec.code_dim)
        return torch.randn(shape, dtype=self._like.dtype, device=self._like.device, generator=generator).movedim(-2, 0)

    def _leading(self, x: Tensor) -> torch.Size:
        """Shapes: (*B, Q, *X) -> (*B, Q)"""
        return x.shape[: x.ndim - len(self.codec.image_shape)]

    def _pieces(self, x: Tensor) -> tuple[Tensor, ...]:
        """Images in pieces of which all episodes' fit through the nets at once. Shapes: (*B, Q, *X)"""
        leading = self._leading(x)
        return x.split(images_at_once(x, leading[:-1].numel()), dim=len(leading) - 1)

    def _recall(self, state: Any, cue: Tensor, generator: torch.Generator | None) -> Tensor:
        self._check_state("read", state)
        where = len(self._leading(cue)) - 1
        return torch.cat([self._recall_piece(state, part, generator) for part in self._pieces(cue)], where)

    @abstractmethod
    def _recall_piece(self, state: ItemState, cue: Tensor, generator: torch.Generator | None) -> Tensor:
        """Outputs recalled from a few cues."""

    def _prepare(
        self, x: Tensor, mask: Tensor | None, write_mask: Tensor | None, roles: Roles = EVERY_ROLE
    ) -> tuple[ItemState, Tensor, Tensor | None]:
        """The memory of an episode, the images that are scored and how they count."""
        self.codec.check("terms", x)
        mask = self._item_mask("terms", "mask", x, mask)
        x = self._present(x, mask)
        state = self._episode(x, mask, write_mask, roles.written)
        counts = None if mask is None else mask.to(state.keys.dtype)
        if roles.scored is None:
            return state, x, counts
        return state, take_items(x, roles.scored), None if counts is None else counts.gather(-1, roles.scored)

    def _reported(self, reconstruction: Tensor, code_kl: Tensor, address_kl: Tensor, counts: Tensor | None) -> Terms:
        """Terms, means over samples. A learned memory is part of the model and costs nothing; a stored one has no
        posterior, so there is a conditional bound only. Shapes: (S, *B, Q), (S, *B, Q), (*B, Q)"""
        memory_kl = None if self.contents is None else torch.zeros_like(address_kl.sum(-1))
        return Terms(reconstruction.mean(0), code_kl.mean(0), address_kl, memory_kl, counts)

    def _terms(
        self, x: Tensor, mask: Tensor | None, write_mask: Tensor | None, generator: torch.Generator | None
    ) -> tuple[Terms, Any]:
        """One draw of every latent."""
        state, x, counts = self._prepare(x, mask, write_mask)
        return self._reported(*self._score(state, x, 1, generator), counts), state

    def log_weights(
        self, state: ItemState, x: Tensor, *, num_samples: int = 1, generator: torch.Generator | None = None
    ) -> Tensor:
        """In pieces that fit through the nets."""
        check_size("num_samples", num_samples)
        self.codec.check("log_weights", x)
        self._check_asked("log_weights", state, x)
        memory = self._prepared(state)
        return torch.cat([self._log_weights(memory, part, num_samples, generator) for part in self._pieces(x)], -1)

    def _prepared(self, state: ItemState) -> Any:
        """What is computed once of a memory before many images are scored by it."""
        return state

    @abstractmethod
    def _log_weights(self, state: Any, x: Tensor, num_samples: int, generator: torch.Generator | None) -> Tensor:
        """Of a few images. Shapes: (*B, Q, *X) -> (S, *B, Q)"""

    @abstractmethod
    def _score(
        self, state: ItemState, x: Tensor, num_samples: int, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Reconstruction and code_kl of drawn latents, and address_kl. Shapes: -> (S, *B, Q) twice, (*B, Q)"""

    def _check_state(self, where: str, state: ItemState) -> None:
        size = math.prod(self.codec.content_shape)
        if not isinstance(state, ItemState) or state.items.shape[-1] != size:
            got = tuple(state.items.shape) if isinstance(state, ItemState) else type(state).__name__
            raise ValueError(
                f"{where}: expected an ItemState with items (*B, M, {size}), got {got}; items of another size belong "
                "to another model"
            )
        if state.num_slots == 0 and not self.takes_empty:
            raise ValueError(f"{where}: expected a memory with an item, got an empty one; write one first")
