"""Writing a Kanerva memory item by item, each addressed in what those before it left:

    w = (A A' + s2 I)^-1 A z,  c = U w / (w'U w + s2),  e = z - R'w;   R <- R + c e',  U <- U - c (U w)'

A is where items are addressed, which begins at the start; R and U begin at the prior. A count n divides s2 by n. All
three gain a row of their own times the same column c, so they are one slab S = (A, R, U) and S <- S + c f, with the row
f = (z', z', 0) - w'S.

Every item takes some thirty small operations, and on a GPU their number is the time. Autograd would add over a hundred
for each; the derivatives below are fewer than the operations of the write. They need nothing of how the inverse came
about, since its matrix is a function of A: who asks for a change g of w asks for A'v of z, for v e' - w (A'v)' of A,
v = (A A' + s2 I)^-1 g.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mnemon.core.checks import is_transformed
from mnemon.core.linalg import inverse_after_rank_two


class Step(NamedTuple):
    """What one item met and did.

    Shapes: slab (N, K, 2C + K), inverse (N, K, K), w and c (N, K, 1), f (N, 1, 2C + K), scale (N, 1, 1)
    """

    slab: Tensor
    inverse: Tensor
    w: Tensor
    c: Tensor
    f: Tensor
    scale: Tensor


def write_online(
    codes: Tensor, slab: Tensor, inverse: Tensor, noise_var: Tensor, counts: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The slab after all items, and their addresses. inverse: (A A' + s2 I)^-1 of the slab's A; gradients go through A

    Shapes: codes (N, T, C), slab (N, K, 2C + K), inverse (N, K, K), noise_var (), counts (N, T) -> slab, w (N, T, K)
    """
    given = (codes, slab, noise_var)
    wanted = torch.is_grad_enabled() and any(part.requires_grad for part in given)
    counted = counts is not None and counts.requires_grad
    if wanted and not (counted or is_transformed() or torch.compiler.is_compiling()):
        after, addresses = _Write.apply(codes, slab, noise_var, inverse.detach(), counts)
        return after, addresses
    return _write(codes, slab, inverse, noise_var, counts)


def _write(
    codes: Tensor,
    slab: Tensor,
    inverse: Tensor,
    noise_var: Tensor,
    counts: Tensor | None,
    steps: list[Step] | None = None,
) -> tuple[Tensor, Tensor]:
    """The same by plain operations; the steps are kept where a list is given."""
    C = codes.shape[-1]
    targets = torch.cat((codes, codes, codes.new_zeros(*codes.shape[:-1], slab.shape[-2])), dim=-1)
    addresses = []
    for t in range(codes.shape[-2]):  # each write changes the next address: no way around the loop
        A = slab[..., :C]
        w = inverse @ (A @ codes[..., t, :, None])
        f = targets[..., t : t + 1, :] - w.mT @ slab
        fall = f[..., 2 * C :]  # -(U w)'
        pull = fall if counts is None else fall * counts[..., t, None, None]
        scale = pull @ w - noise_var
        c = pull.mT / scale
        if steps is not None:
            steps.append(Step(slab, inverse, w, c, f, scale))
        slab = torch.addcmul(slab, c, f)
        # A A' gains c a' + a c', so that the inverse is updated: a factorisation for each item would take longer than
        # all else
        a = torch.addcmul(A, c, f[..., :C], value=0.5) @ f[..., :C].mT
        inverse = inverse_after_rank_two(inverse, c, a)
        addresses.append(w.mT)
    return slab, torch.cat(addresses, dim=-2)


class _Write(torch.autograd.Function):
    """`_write` with derivatives by hand; second derivatives are those of the plain operations."""

    @staticmethod
    def forward(
        ctx: Any, codes: Tensor, slab: Tensor, noise_var: Tensor, inverse: Tensor, counts: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        steps: list[Step] = []
        result = _write(codes, slab, inverse, noise_var, counts, steps)
        ctx.save_for_backward(codes, slab, noise_var, counts, *itertools.chain.from_iterable(steps))
        return result

    @staticmethod
    def backward(ctx: Any, after: Tensor, addresses: Tensor) -> tuple[Tensor | None, ...]:
        codes, slab, noise_var, counts, *made = ctx.saved_tensors
        if torch.is_grad_enabled():
            return *_differentiable(codes, slab, noise_var, counts, after, addresses), None, None
        steps = [Step(*made[at : at + len(Step._fields)]) for at in range(0, len(made), len(Step._fields))]
        learned = ctx.needs_input_grad[2]
        return *_derivatives(steps, codes.shape[-1], counts, learned, after, addresses), None, None


def _differentiable(
    codes: Tensor, slab: Tensor, noise_var: Tensor, counts: Tensor | None, after: Tensor, addresses: Tensor
) -> tuple[Tensor | None, ...]:
    """The derivatives by autograd, so that they have derivatives themselves.

    By views: where the slab came about from the codes or from the noise variance, that way is not this function's.
    """
    parts = (codes, slab, noise_var)
    given = [part.view_as(part) if part.requires_grad else part.detach().requires_grad_() for part in parts]
    A = given[1][..., : codes.shape[-1]]
    eye = torch.eye(A.shape[-2], dtype=A.dtype, device=A.device)
    inverse = torch.linalg.inv(A @ A.mT + given[2] * eye)
    results = _write(given[0], given[1], inverse, given[2], counts)
    return torch.autograd.grad(results, given, (after, addresses), create_graph=True)


def _derivatives(
    steps: list[Step], C: int, counts: Tensor | None, learned: bool, after: Tensor, addresses: Tensor
) -> tuple[Tensor, Tensor, Tensor | None]:
    """By codes, slab and, where it is learned, noise variance; from the last item to the first."""
    by_slab = after.clone()
    by_noise = after.new_zeros(()) if learned else None
    rows, ahead = [], []
    for t in reversed(range(len(steps))):
        slab, inverse, w, c, f, scale = steps[t]
        by_c, by_f = by_slab @ f.mT, c.mT @ by_slab
        scaled = by_c / scale
        shrink = c.mT @ scaled  # minus the derivative by the scale
        n = None if counts is None else counts[..., t, None, None]
        counted, by_fall = shrink if n is None else n * shrink, torch.addcmul(scaled, w, shrink, value=-1)
        by_f[..., 2 * C :] += (by_fall if n is None else n * by_fall).mT
        by_w = torch.addcmul(addresses[..., t, :, None], counted, f[..., 2 * C :].mT, value=-1)
        by_w.baddbmm_(slab, by_f.mT, alpha=-1)
        by_slab.addcmul_(w, by_f, value=-1)
        v = inverse @ by_w
        by_code = v.mT @ slab[..., :C]
        by_slab[..., :C].addcmul_(v, f[..., :C]).addcmul_(w, by_code, value=-1)
        by_noise = None if by_noise is None else by_noise + shrink.sum() - (v * w).sum()
        rows.append(by_f)
        ahead.append(by_code)
    every = torch.cat(rows[::-1], dim=-2)
    by_codes = every[..., :C] + every[..., C : 2 * C] + torch.cat(ahead[::-1], dim=-2)
    return by_codes, by_slab, by_noise
