import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mnemon.nets.sets import RelationPooling, make_pooling

KINDS = ("mean", "attention", "relation")


def values(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def pooling(kind, width=8):
    torch.manual_seed(0)
    return make_pooling(kind, width).double()


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=15)
@given(order=st.permutations(range(5)), counts=st.lists(st.integers(0, 3), min_size=5, max_size=5))
def test_order_means_nothing_and_counts_are_repeats(kind, order, counts):
    if not any(counts):
        counts = [1, *counts[1:]]
    net, x = pooling(kind), values(5, 8)
    number = torch.tensor(counts)
    repeated = net(x.repeat_interleave(number, 0), None)
    torch.testing.assert_close(net(x, number.double()), repeated)
    torch.testing.assert_close(net(x[list(order)], number[list(order)].double()), repeated)


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_is_a_loop(kind):
    net, x = pooling(kind), values(2, 3, 5, 8)
    whole = net(x, None)
    for i in range(2):
        for j in range(3):
            torch.testing.assert_close(whole[i, j], net(x[i, j], None))


def test_relations_are_those_of_all_pairs():
    torch.manual_seed(0)
    net, x = RelationPooling(4, hidden=3).double(), values(3, 4)
    pairs = [net.relation(net.one(a) + net.other(b)) for a in x for b in x]
    torch.testing.assert_close(net(x, None), x.mean(0) + net.out(torch.stack(pairs).mean(0)))


def test_bad_input():
    with pytest.raises(ValueError, match="pooling: expected one of mean, attention, relation, got 'max'"):
        make_pooling("max", 4)
    with pytest.raises(ValueError, match="divisible by 4 heads, got 6"):
        make_pooling("attention", 6)
