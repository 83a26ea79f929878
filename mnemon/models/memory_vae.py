"""MemoryVAE: an encoder, any latent memory, and a decoder. The five VBM models are five memories in it.

Writing encodes the episode and runs the memory's sweeps on the codes; nothing is trained. Reading encodes a
cue, addresses the memory with its code, and decodes what the memory makes of it.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from mnemon.core.checks import check_size
from mnemon.core.episode import Codes
from mnemon.core.protocol import Terms
from mnemon.memories.base import LatentMemory
from mnemon.memories.graphs import deciding
from mnemon.memories.records import Written
from mnemon.memories.regulariser import StochasticRegulariser
from mnemon.models.codec_model import CodeModel, Writing, log_normal, no_autocast
from mnemon.nets.codec import Codec

PER_ITEM = ("code_kl", "address_kl")


class MemoryVAE(CodeModel):
    """Encoder + latent memory + decoder.

    memory       any `LatentMemory` over the codec's codes
    num_steps    sweeps per write; the memory's own number when None
    regulariser  applied to the codes after writing, in training mode only unless it says `always` (Differs from
                 paper: its published code leaves it on, with its draws, when evaluating)
    sampled_terms  estimate code_kl with one draw of the memory, shared by the episode, and one of each w_t, in
                 place of the closed form (VBM, table 2: sample memory posterior)
    write_gradient  "fixed": `terms` differentiates with what was written held fixed. Every sweep is a coordinate
                 maximum of the bound, so once the sweeps have converged this is the whole gradient, and before that it
                 still is the gradient of a valid bound. "through": also through the sweeps, whose early, symmetric
                 states make that part of the gradient large and nearly random
    cue_weight   how far a read trusts the cue's own code: cue_weight mz + (1 - cue_weight) E[M'w + b]. At 0 it returns
                 what the memory expects alone, and loses what the memory has no room for
    online_chunks  in `terms`, write the episode in this many consecutive pieces, each from where the one before
                 left the memory, every item keeping the address of its own piece (VBM, 3.1: online VB)
    """

    def __init__(
        self,
        codec: Codec,
        memory: LatentMemory,
        *,
        num_steps: int | None = None,
        regulariser: StochasticRegulariser | None = None,
        sampled_terms: bool = False,
        online_chunks: int | None = None,
        write_gradient: Literal["fixed", "through"] = "fixed",
        cue_weight: float = 0.0,
    ) -> None:
        super().__init__(codec)
        if write_gradient not in ("fixed", "through"):
            raise ValueError(f"write_gradient: expected fixed or through, got {write_gradient!r}")
        if memory.code_dim != codec.code_dim:
            raise ValueError(
                f"MemoryVAE: expected a memory over codes of size {codec.code_dim}, got code_dim={memory.code_dim}"
            )
        if online_chunks is not None:
            check_size("online_chunks", online_chunks)
        if not 0 <= cue_weight < 1:
            raise ValueError(
                f"cue_weight: expected at least 0 and below 1, where the memory is not read, got {cue_weight}"
            )
        self.memory, self.num_steps, self.regulariser = memory, num_steps, regulariser
        self.sampled_terms, self.online_chunks = sampled_terms, online_chunks
        self.write_gradient, self.cue_weight = write_gradient, cue_weight

    def write(
        self,
        x: Tensor,
        *,
        prior: Any = None,
        mask: Tensor | None = None,
        weights: Tensor | None = None,
        num_steps: int | None = None,
        num_clusters: int | None = None,
        generator: torch.Generator | None = None,
    ) -> Any:
        """Encode the episode and run the sweeps. Of fewer items than clusters, it makes as many clusters as items."""
        self.codec.check("write", x)
        mask = self._item_mask("write", "mask", x, mask)
        return self._write(x, Writing(prior, mask, weights, num_steps, generator), num_clusters).contiguous()

    def _write(self, x: Tensor, how: Writing, num_clusters: int | None = None) -> Any:
        codes = self._encoded(self._present(x, how.mask))
        if num_clusters is None and how.prior is None:
            num_clusters = self._clusters_for(codes, how.mask)
        options = {**vars(how), "num_steps": self.num_steps if how.num_steps is None else how.num_steps}
        with no_autocast(x):
            return self.memory.write(codes, num_clusters=num_clusters, **options).state

    def _check_state(self, where: str, state: Any) -> None:
        self.memory._check_state(where, state)

    def prior_state(self, batch_shape: tuple[int, ...] = ()) -> Any:
        """p(memory)."""
        return self.memory.prior(batch_shape, dtype=self._like.dtype, device=self._like.device)

    def _terms(
        self, x: Tensor, mask: Tensor | None, write_mask: Tensor | None, generator: torch.Generator | None
    ) -> tuple[Terms, Any]:
        codes = self._encoded(x)
        with no_autocast(x):
            with torch.set_grad_enabled(torch.is_grad_enabled() and self.write_gradient == "through"):
                if self.online_chunks is not None:
                    pieces = self._write_online(codes, mask, write_mask, generator)
                else:
                    pieces = [self._write_episode(codes, mask, write_mask, generator)]
            state = pieces[-1].state
            codes = self._regularised(codes, state, generator)
            draw = self.memory.draw(state, generator=generator) if self.sampled_terms else None
            parts = [
                self.memory.terms(some, written.replace(state=state), draw=draw, generator=generator)
                for some, written in zip(_cut(codes, len(pieces)), pieces, strict=True)
            ]
        code_kl, address_kl = (torch.cat([getattr(part, name) for part in parts], -1) for name in PER_ITEM)
        counts = None if mask is None else mask.to(codes.mean.dtype)
        reconstruction = self.codec.log_prob(codes.rsample(generator), x)
        return Terms(reconstruction, code_kl, address_kl, parts[-1].memory_kl, counts), state

    def _regularised(self, codes: Codes, state: Any, generator: torch.Generator | None) -> Codes:
        regulariser = self.regulariser
        if regulariser is None or not (self.training or regulariser.always):
            return codes
        expected = self.memory.recall(state, codes)
        return regulariser(codes, expected, generator) if self.training else regulariser.mean(codes, expected)

    def _write_episode(
        self, codes: Codes, mask: Tensor | None, write_mask: Tensor | None, generator: torch.Generator | None
    ) -> Written:
        subset = self._subset(mask, write_mask)
        written = self.memory.write(
            codes,
            mask=subset,
            num_steps=self.num_steps,
            num_clusters=self._clusters_for(codes, subset),
            graphs=self._graphs,
            generator=generator,
        )
        # items that were not written have no address yet: all are addressed anew
        address = written.address if write_mask is None else None
        return Written(written.state, address, counts=None if mask is None else mask.to(codes.mean.dtype))

    def _write_online(
        self, codes: Codes, mask: Tensor | None, write_mask: Tensor | None, generator: torch.Generator | None
    ) -> list[Written]:
        """Pieces one after another, each prior to the next. Every address stays as its own piece left it, so the
        bound that the final state has with them holds, if not as tightly."""
        if write_mask is not None:
            raise ValueError(
                "terms: expected no write_mask with online_chunks, which writes every item; use one of them"
            )
        num_items, chunks = codes.mean.shape[-2], self.online_chunks or 1
        if num_items < chunks:
            raise ValueError(f"online_chunks: expected at most one chunk per item, got {chunks} for {num_items} items")
        masks = [None] * chunks if mask is None else mask.tensor_split(chunks, dim=-1)
        pieces: list[Written] = []
        for some, present in zip(_cut(codes, chunks), masks, strict=True):
            before = pieces[-1].state if pieces else None
            empty = None
            if before is not None and present is not None:  # short episodes may have nothing left for a later piece
                empty = ~present.any(-1)
                present = present | empty[..., None]
            written = self.memory.write(
                some,
                prior=before,
                mask=present,
                num_steps=self.num_steps,
                num_clusters=self._clusters_for(some, present) if before is None else None,
                generator=generator,
            )
            state = written.state if empty is None else _where(empty, before, written.state)
            pieces.append(Written(state, written.address))
        return pieces

    def _clusters_for(self, codes: Codes, mask: Tensor | None) -> int | None:
        """How many clusters the shortest episode can fill, if it cannot fill them all."""
        num_clusters = getattr(self.memory, "num_clusters", 0)
        if not num_clusters or (mask is None and codes.mean.shape[-2] >= num_clusters):
            return None
        items = codes.mean.shape[-2] if mask is None else deciding(mask.sum(-1).min())
        return items if 0 < items < num_clusters else None

    def _sample_codes(self, state: Any, n: int, generator: torch.Generator | None) -> Tensor:
        with no_autocast(self._like):
            return self.memory.sample(state, n, generator=generator)

    def _recall_codes(self, state: Any, cue: Tensor, generator: torch.Generator | None) -> Tensor:
        codes = self._encoded(cue)
        with no_autocast(cue):
            if generator is None:
                return self._trusting(codes, self.memory.recall(state, codes))
            drawn = self.memory.explain(state, codes, generator=generator)
        noise = torch.randn(drawn.mean.shape, dtype=drawn.mean.dtype, device=drawn.mean.device, generator=generator)
        return self._trusting(codes, drawn.mean) + drawn.variance.sqrt() * noise

    def _trusting(self, codes: Codes, expected: Tensor) -> Tensor:
        return self.cue_weight * codes.mean + (1 - self.cue_weight) * expected if self.cue_weight else expected

    def _mean_code(self, state: Any) -> Tensor:
        return self.memory._mean_code(state)

    def _log_weight(self, state: Any, x: Tensor, codes: Codes, generator: torch.Generator | None) -> Tensor:
        with no_autocast(x):
            codes = self._regularised(codes, state, generator)
            z = codes.rsample(generator)
            drawn = self.memory.explain(state, z, generator=generator)  # of the drawn code: a tighter bound
        log_ratio = log_normal(z, drawn.mean, drawn.variance) - log_normal(z, codes.mean, codes.std.square())
        return self.codec.log_prob(z, x) + log_ratio + drawn.log_ratio


def _cut(codes: Codes, num_chunks: int) -> list[Codes]:
    """Consecutive pieces whose lengths differ by one item at most."""
    means, stds = (part.tensor_split(num_chunks, dim=-2) for part in (codes.mean, codes.std))
    return [Codes(mean, std) for mean, std in zip(means, stds, strict=True)]


def _where(condition: Tensor, left: Any, right: Any) -> Any:
    """Choose between two states of one kind, episode by episode. Shapes: condition (*B)"""
    ranks = right._event_ranks()
    others = left.tensors()
    return right.replace(
        **{
            name: torch.where(condition.reshape(condition.shape + (1,) * ranks[name]), others[name], tensor)
            for name, tensor in right.tensors().items()
        }
    )
