"""Addresses over stored items: every search in blocks against the whole, and against what is written down by hand."""

import math

import pytest
import torch

from mnemon import State
from mnemon.memories.slots import ItemState, SlotAddress, scale_keys, scale_queries, take_rows, take_slots

SIMILARITIES = ("normalised", "inner", "cosine")


def numbers(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def state(*batch, slots=7, counts=None, similarity="normalised", seed=0):
    keys = scale_keys(numbers(*batch, slots, 3, seed=seed), similarity)
    return ItemState(numbers(*batch, slots, 4, seed=seed + 1), keys, counts)


def counts(*batch, slots=7):
    values = torch.randint(0, 3, (*batch, slots), generator=seeded(3)).double()
    values[..., 1] = 1.0
    return values


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_similarities_as_written_down(similarity):
    memory, query = numbers(5, 3), numbers(2, 3, seed=1)
    norms = {
        "normalised": memory.norm(dim=-1).expand(2, 5),
        "inner": torch.ones(2, 5, dtype=torch.float64),
        "cosine": memory.norm(dim=-1) * query.norm(dim=-1)[:, None],
    }
    address = SlotAddress(scale_keys(memory, similarity), scale_queries(query, similarity))
    expected = torch.stack([torch.stack([m @ x for m in memory]) for x in query]) / norms[similarity]
    torch.testing.assert_close(address.log_probs(), expected.log_softmax(-1))


@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
@pytest.mark.parametrize("block", [1, 3, 7, 100])
@pytest.mark.parametrize("ragged", [False, True])
def test_a_search_in_blocks_is_the_whole_search(batch, block, ragged):
    stored = state(*batch, counts=counts(*batch) if ragged else None)
    q = SlotAddress.of(stored, numbers(*batch, 5, 3, seed=4))
    p = SlotAddress.of(stored, numbers(1, 3, seed=5))
    log_q, log_p = q.log_probs(), p.log_probs()
    torch.testing.assert_close(log_q.exp().sum(-1), torch.ones(*batch, 5, dtype=torch.float64))
    torch.testing.assert_close(q.best(block), log_q.argmax(-1))
    torch.testing.assert_close(q.kl(p, block), (log_q.exp() * (log_q - log_p)).sum(-1))
    index = q.draw(6, generator=seeded(), block=block)
    assert index.shape == (6, *batch, 5)
    assert torch.equal(index, q.draw(6, generator=seeded()))  # one block
    torch.testing.assert_close(q.log_prob(index, block), log_q.movedim(-1, 0).gather(0, index))
    torch.testing.assert_close(p.log_prob(index, block), log_p.expand(*batch, 5, 7).movedim(-1, 0).gather(0, index))


@pytest.mark.parametrize("block", [2, 100])
def test_addresses_are_drawn_as_probable_as_they_are(block):
    stored = state(2, counts=counts(2))
    q = SlotAddress.of(stored, 2 * numbers(2, 3, 3, seed=4))
    number = 40_000
    index = q.draw(number, generator=seeded(), block=block)
    share = torch.nn.functional.one_hot(index, 7).double().mean(0)
    chance = q.log_probs().exp()
    assert ((share - chance).abs() <= 5 * (chance * (1 - chance) / number).sqrt()).all()
    assert (share[chance == 0] == 0).all()


def test_gradients_in_blocks_are_those_of_the_whole():
    keys, queries = numbers(7, 3).requires_grad_(), numbers(4, 3, seed=1).requires_grad_()
    weight = counts()
    q, p = SlotAddress(keys, queries, weight), SlotAddress(keys, queries[:1] + 1, weight)
    index = q.draw(3, generator=seeded())
    found = torch.autograd.grad(q.kl(p, 2).sum() + q.log_prob(index, 2).sum(), (keys, queries))
    log_q, log_p = q.log_probs(), p.log_probs()
    assert (weight == 0).any()
    kl = (log_q - log_p)[:, weight > 0].mul(log_q.exp()[:, weight > 0]).sum()
    expected = torch.autograd.grad(kl + log_q.movedim(-1, 0).gather(0, index).sum(), (keys, queries))
    for left, right in zip(found, expected, strict=True):
        torch.testing.assert_close(left, right)


def test_duplicates_share_what_one_slot_with_a_count_has():
    one = state(slots=3)
    twice = ItemState(*(torch.cat((part, part[:1])) for part in (one.items, one.keys)))
    counted = one.replace(counts=torch.tensor([2.0, 1.0, 1.0], dtype=torch.float64))
    queries = numbers(4, 3, seed=4)
    several = SlotAddress.of(twice, queries).log_probs()
    single = SlotAddress.of(counted, queries).log_probs()
    torch.testing.assert_close(several[:, 0], several[:, 3])
    torch.testing.assert_close(several[:, [0, 3]].logsumexp(-1), single[:, 0])
    torch.testing.assert_close(several[:, 1:3], single[:, 1:])
    flat = torch.zeros(1, 3, dtype=torch.float64)
    left, right = (SlotAddress.of(s, queries).kl(SlotAddress.of(s, flat)) for s in (twice, counted))
    torch.testing.assert_close(left, right)


def test_one_slot_tells_nothing():
    stored = state(slots=1)
    q, p = SlotAddress.of(stored, numbers(4, 3)), SlotAddress.of(stored, numbers(1, 3))
    assert torch.equal(q.kl(p), torch.zeros(4, dtype=torch.float64))
    assert torch.equal(q.draw(3), torch.zeros(3, 4, dtype=torch.int64))


def test_a_query_of_zeros_is_the_flat_prior():
    stored = state(counts=counts())
    flat = SlotAddress.of(stored, torch.zeros(1, 3, dtype=torch.float64)).log_probs()[0].exp()
    torch.testing.assert_close(flat, stored.counts / stored.counts.sum())


def test_appending_keeps_both():
    first, second = state(2, slots=3), state(2, slots=4, counts=counts(2, slots=4), seed=9)
    both = first.append(second)
    assert both.num_slots == 7
    assert torch.equal(both.items, torch.cat((first.items, second.items), 1))
    assert torch.equal(both.counts, torch.cat((torch.ones(2, 3, dtype=torch.float64), second.counts), 1))
    assert first.append(state(slots=2)).batch_shape == (2,)
    assert first.append(first).counts is None


def test_compacting_drops_what_no_memory_holds():
    stored = state(2, slots=4, counts=torch.tensor([[0.0, 2.0, 0.0, 1.0], [1.0, 0.0, 0.0, 0.0]], dtype=torch.float64))
    small = stored.compact()
    assert small.num_slots == 2
    assert torch.equal(small.counts, torch.tensor([[2.0, 1.0], [1.0, 0.0]], dtype=torch.float64))
    assert torch.equal(small.items[0], stored.items[0, [1, 3]])
    assert torch.equal(small.keys[1, 0], stored.keys[1, 0])
    assert (small.items[1, 1] == 0).all()
    queries = numbers(2, 3, 3, seed=4)
    left, right = (SlotAddress.of(s, queries).log_normaliser() for s in (stored, small))
    torch.testing.assert_close(left, right)
    assert state(counts=torch.ones(7, dtype=torch.float64)).compact().counts is None


@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_taking_slots(batch):
    values, index = numbers(*batch, 5, 4), torch.randint(5, (6, *batch, 3), generator=seeded())
    found = take_slots(values, index)
    for place in torch.cartesian_prod(*(torch.arange(n) for n in index.shape)).tolist():
        _, *episode, _ = place
        assert torch.equal(found[tuple(place)], values[(*episode, index[tuple(place)])])
    assert torch.equal(take_slots(values, index)[0], take_slots(values, index[:1])[0])
    shared = numbers(5, 4)
    torch.testing.assert_close(take_slots(shared, index), take_slots(shared.expand(*batch, 5, 4), index))


def test_a_hundred_thousand_items():
    """Drawn, found and compared on a CPU without the whole matrix: 256 queries x 100,000 would take 25.6 million."""
    keys = torch.nn.functional.normalize(torch.randn(100_000, 16, generator=seeded()), dim=-1)
    q = SlotAddress(keys, 40 * keys[:256] + torch.randn(256, 16, generator=seeded(1)))
    p = SlotAddress(keys, torch.zeros(1, 16))
    assert torch.equal(q.best(), torch.arange(256))
    index = q.draw(5, generator=seeded())
    assert ((index >= 0) & (index < 100_000)).all()
    log_q = q.log_prob(index)
    few = SlotAddress(keys, q.queries[:3])
    torch.testing.assert_close(log_q[:, :3], few.log_probs().movedim(-1, 0).gather(0, index[:, :3]), atol=1e-4, rtol=0)
    assert (p.kl(p).abs() < 1e-6).all()
    assert ((q.kl(p) > 0) & (q.kl(p) < math.log(100_000) + 1e-4)).all()


def test_saved_and_loaded(tmp_path):
    for number, stored in enumerate((state(2), state(2, counts=counts(2)))):
        stored.save(tmp_path / f"{number}")
        again = State.load(tmp_path / f"{number}")
        assert isinstance(again, ItemState)
        assert all(torch.equal(tensor, getattr(again, name)) for name, tensor in stored.tensors().items())
        assert (again.counts is None) == (stored.counts is None)


def test_bad_input():
    with pytest.raises(ValueError, match="similarity: expected one of normalised, inner, cosine"):
        scale_keys(numbers(3), "euclidean")
    with pytest.raises(ValueError, match=r"queries \(\*B, Q, 3\) as the keys of this memory are, got \(2, 4\)"):
        SlotAddress.of(state(), numbers(2, 4))
    with pytest.raises(ValueError, match="got an empty one; write one first"):
        SlotAddress.of(state(slots=0), numbers(2, 3))
    with pytest.raises(ValueError, match=r"items of size 4 .* got 5"):
        state().append(ItemState(numbers(2, 5), numbers(2, 3)))
    with pytest.raises(ValueError, match="num_samples"):
        SlotAddress.of(state(), numbers(2, 3)).draw(0)


@pytest.mark.parametrize("at_once", [1, 7, 60, 100])
def test_rows_taken_piece_by_piece_are_the_same_and_so_is_their_gradient(at_once):
    """The gradient of a row is the sum over the draws of it: here by a product with ones and zeros."""
    table = torch.randn(9, 3, dtype=torch.float64, requires_grad=True)
    index = torch.randint(9, (4, 5, 3))
    weights = torch.randn(4, 5, 3, 3, dtype=torch.float64)
    found = take_rows(table, index, at_once=at_once)
    assert torch.equal(found, table[index])
    (gradient,) = torch.autograd.grad((found * weights).sum(), table)
    drawn = (index.flatten() == torch.arange(9)[:, None]).double()
    torch.testing.assert_close(gradient, drawn @ weights.flatten(0, 2))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("draws", [1000, 2048, 5000])
def test_a_gpu_sums_up_what_was_drawn_often_as_a_cpu_does(draws):
    """And every time alike. 2,048 draws are where PyTorch's own gradient is not."""
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(64, 4096, generator=generator)
    index = torch.randint(64, (1, draws), generator=generator)
    weights = torch.randn(1, draws, 4096, generator=generator)

    def gradient(device):
        table = values.to(device).requires_grad_()
        (found,) = torch.autograd.grad((take_slots(table, index.to(device)) * weights.to(device)).sum(), table)
        return found.cpu()

    first, *others = (gradient("cuda") for _ in range(20))
    assert all(torch.equal(first, other) for other in others)
    torch.testing.assert_close(first, gradient("cpu"), rtol=1e-4, atol=1e-4)
