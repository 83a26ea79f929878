"""The online write with its own derivatives, beside a loop that solves for every address, by autograd."""

import pytest
import torch

from mnemon.memories.online import write_online

N, T, K, C = 2, 7, 4, 5


def given(counts=False):
    generator = torch.Generator().manual_seed(3)
    codes, A, R, factor = (
        torch.randn(N, *size, dtype=torch.float64, generator=generator) for size in ((T, C), (K, C), (K, C), (K, K))
    )
    U = factor @ factor.mT + torch.eye(K, dtype=torch.float64)
    n = torch.tensor([[1, 0, 2, 1, 0.5, 1, 3], [1] * 7], dtype=torch.float64) if counts else None
    return codes, A, R, U, torch.tensor(0.3, dtype=torch.float64), n


def by_solving(codes, A, R, U, noise_var, counts):
    """c = U w / (w'U w + s2 / n), and an address from the memory that the items before left."""
    eye, addresses = torch.eye(K, dtype=A.dtype), []
    for t in range(T):
        z = codes[:, t, :, None]
        w = torch.linalg.solve(A @ A.mT + noise_var * eye, A @ z)
        n = 1.0 if counts is None else counts[:, t, None, None]
        c = n * U @ w / (n * w.mT @ U @ w + noise_var)
        A, R, U = A + c @ (z - A.mT @ w).mT, R + c @ (z - R.mT @ w).mT, U - c @ (U @ w).mT
        addresses.append(w[..., 0])
    return A, R, U, torch.stack(addresses, 1)


def by_writing(codes, A, R, U, noise_var, counts):
    inverse = torch.linalg.inv(A @ A.mT + noise_var * torch.eye(K, dtype=A.dtype))
    after, w = write_online(codes, torch.cat((A, R, U), -1), inverse, noise_var, counts)
    return *after.split((C, C, K), -1), w


@pytest.mark.parametrize("counts", [False, True])
def test_values_and_derivatives_are_those_of_solving_for_every_address(counts):
    *inputs, n = given(counts)
    inputs = [part.requires_grad_() for part in inputs]
    found, expected = by_writing(*inputs, n), by_solving(*inputs, n)
    generator = torch.Generator().manual_seed(4)
    weights = [torch.randn(part.shape, dtype=part.dtype, generator=generator) for part in expected]
    for got, want in zip(found, expected, strict=True):
        torch.testing.assert_close(got, want, atol=1e-9, rtol=1e-9)
    gradients = [torch.autograd.grad(results, inputs, weights) for results in (found, expected)]
    # U is symmetric: only the symmetric part of its derivative means anything
    gradients = [(*others, (by_U + by_U.mT) / 2, by_noise) for *others, by_U, by_noise in gradients]
    for got, want in zip(*gradients, strict=True):
        torch.testing.assert_close(got, want, atol=1e-8, rtol=1e-8)


def test_a_memory_that_learns_nothing_of_its_noise_still_has_its_other_derivatives():
    codes, A, R, U, noise_var, _ = given()
    loss = by_writing(codes.requires_grad_(), A, R, U, noise_var, None)[1].square().sum()
    (found,) = torch.autograd.grad(loss, codes)
    (expected,) = torch.autograd.grad(by_solving(codes, A, R, U, noise_var, None)[1].square().sum(), codes)
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=1e-9)


def test_derivatives_have_derivatives():
    *inputs, _ = given()
    short = [inputs[0][:, :2], *inputs[1:]]

    def written(codes, A, R, U, noise_var):
        return by_writing(codes, A, R, (U + U.mT) / 2, noise_var, None)

    assert torch.autograd.gradgradcheck(written, [part.clone().requires_grad_() for part in short])


def test_derivatives_that_have_derivatives_count_every_way_once():
    """Where what is written into came about from the same codes and noise."""
    codes, A, R, U, noise_var, _ = given()
    inputs = [codes.requires_grad_(), noise_var.requires_grad_()]
    found = []
    for form in (by_writing, by_solving):
        *memory, _ = form(codes, A, R, U, noise_var, None)
        loss = sum(part.square().sum() for part in form(codes.flip(1), *memory, noise_var, None))
        found.append(torch.autograd.grad(loss, inputs, create_graph=True))
    for got, want in zip(*found, strict=True):
        torch.testing.assert_close(got, want, atol=1e-8, rtol=1e-8)


def test_counts_that_change_before_the_derivatives_are_noticed():
    codes, A, R, U, noise_var, counts = given(counts=True)
    loss = by_writing(codes.requires_grad_(), A, R, U, noise_var, counts)[1].sum()
    counts.mul_(3)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_writing_takes_few_operations_for_each_item_and_so_do_its_derivatives():
    """On a GPU their number is the time: autograd alone would take more than twice as many."""
    codes, A, R, U, noise_var, _ = given()
    with torch.autograd.profiler.profile() as profile:
        by_writing(codes.requires_grad_(), A, R, U, noise_var, None)[-1].sum().backward()
    kernels = ("aten::bmm", "aten::baddbmm_", "aten::addcmul", "aten::addcmul_", "aten::mul", "aten::div", "aten::sub",
               "aten::add", "aten::add_", "aten::cat")  # fmt: skip
    launched = sum(event.count for event in profile.key_averages() if event.key in kernels)
    assert launched < 45 * T + 60
