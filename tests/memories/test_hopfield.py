"""Hopfield rules against implementations written unit by unit."""

import numpy as np
import pytest
import torch

from mnemon.memories.hopfield import retrieve, settle, write_couplings

B, T, D = 2, 4, 7


def signs(*shape, seed=0):
    return torch.randint(2, shape, generator=torch.Generator().manual_seed(seed)).double() * 2 - 1


def hebb_by_units(patterns):
    size = patterns.shape[1]
    weights = np.zeros((size, size))
    for i in range(size):
        for j in range(size):
            if i != j:
                weights[i, j] = sum(p[i] * p[j] for p in patterns) / size
    return weights


def storkey_by_units(patterns):
    size = patterns.shape[1]
    weights = np.zeros((size, size))
    for p in patterns:
        new = weights.copy()
        for i in range(size):
            for j in range(size):
                if i != j:
                    h_ij = sum(weights[i, k] * p[k] for k in range(size) if k not in (i, j))
                    h_ji = sum(weights[j, k] * p[k] for k in range(size) if k not in (i, j))
                    new[i, j] = weights[i, j] + (p[i] * p[j] - p[i] * h_ji - p[j] * h_ij) / size
        weights = new
    return weights


@pytest.mark.parametrize(("rule", "reference"), [("hebb", hebb_by_units), ("storkey", storkey_by_units)])
def test_rules(rule, reference):
    x = signs(B, T, D)
    weights = write_couplings(x, rule)
    for b in range(B):
        np.testing.assert_allclose(weights[b].numpy(), reference(x[b].numpy()), atol=1e-12)
    first = write_couplings(x[:, :2], rule)
    torch.testing.assert_close(write_couplings(x[:, 2:], rule, start=first), weights)
    counts = torch.tensor([[1, 0, 1, 1]] * B)
    torch.testing.assert_close(write_couplings(x, rule, counts=counts), write_couplings(x[:, [0, 2, 3]], rule))


def test_settling_unit_by_unit():
    weights, x = write_couplings(signs(B, T, D), "hebb"), signs(B, 3, D, seed=5)
    found = settle(weights, x, num_sweeps=2)
    for b in range(B):
        for q in range(3):
            state = x[b, q].numpy().copy()
            for _ in range(2):
                for i in range(D):
                    drive = float(weights[b, i].numpy() @ state)
                    state[i] = state[i] if drive == 0 else np.sign(drive)
            np.testing.assert_array_equal(found[b, q].numpy(), state)


def test_energy_never_rises_while_settling():
    weights, x = write_couplings(signs(B, 6, 20), "storkey"), signs(B, 5, 20, seed=5)
    energies = []
    for sweeps in range(5):
        state = settle(weights, x, num_sweeps=sweeps) if sweeps else x
        energies.append(-0.5 * torch.einsum("bqi,bij,bqj->bq", state, weights, state))
    assert (torch.stack(energies).diff(dim=0) <= 1e-12).all()


def test_how_much_storkey_holds():
    """128 bits, 10% flipped: no errors at 16 patterns, a few percent at 48."""
    generator = torch.Generator().manual_seed(0)
    for number, low, high in ((16, 0.0, 0.0005), (48, 0.025, 0.075)):
        x = torch.randint(2, (6, number, 128), generator=generator).float() * 2 - 1
        cue = torch.where(torch.rand(x.shape, generator=generator) < 0.1, -x, x)
        wrong = float((settle(write_couplings(x, "storkey"), cue, 5) != x).float().mean())
        assert low <= wrong <= high


def test_retrieval_is_a_softmax_over_patterns():
    patterns, cue = signs(B, T, D), signs(B, 3, D, seed=5)
    found = retrieve(patterns, cue, 0.3)
    for b in range(B):
        for q in range(3):
            scores = np.array([0.3 * float(p @ cue[b, q]) for p in patterns[b]])
            weights = np.exp(scores) / np.exp(scores).sum()
            np.testing.assert_allclose(found[b, q].numpy(), weights @ patterns[b].numpy())


def test_retrieval_counts_patterns():
    """One twice is two of it, and an absent one is none."""
    patterns, cue = signs(B, T, D), signs(B, 3, D, seed=5)
    found = retrieve(patterns, cue, 0.3, counts=torch.tensor([[2.0, 0.0, 1.0, 1.0]] * B))
    torch.testing.assert_close(found, retrieve(patterns[:, [0, 0, 2, 3]], cue, 0.3))


def test_couplings_and_patterns_broadcast():
    weights, x = write_couplings(signs(B, T, D), "storkey"), signs(3, D, seed=5)
    for rule in ("hebb", "storkey"):
        written = write_couplings(x, rule, start=weights)
        for b in range(B):
            torch.testing.assert_close(written[b], write_couplings(x, rule, start=weights[b]))
    for b in range(B):
        torch.testing.assert_close(settle(weights, x)[b], settle(weights[b], x))


def test_an_unknown_rule():
    with pytest.raises(ValueError, match="rule: expected one of hebb, storkey"):
        write_couplings(signs(T, D), "oja")
