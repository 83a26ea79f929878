"""Variational memory addressing against sums over all addresses and integrals over a code of size 1."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn

from mnemon.core.episode import Roles
from mnemon.memories.slots import ItemState, take_slots
from mnemon.models import AddressingModel, SoftAttentionModel
from mnemon.nets.conditional import ConditionalCodec
from mnemon.nets.content import MLPContent
from mnemon.nets.mlp import mlp
from mnemon.objectives import Estimator
from tests.models.toys import Vectors, refuses_items_of_another_size, seeded, vectors

D, E = 2, 3
"""Sizes of the items and of their keys; codes have size 1."""
GRID = torch.linspace(-9, 9, 6001, dtype=torch.float64)[:, None]
VIMCO = Estimator("vimco", 2)


class Gaussian(nn.Module):
    """Mean and standard deviation from all that it is given."""

    def __init__(self, size):
        super().__init__()
        self.layers = mlp((size, 6, 2))

    def forward(self, *inputs):
        parts = [part[0] if isinstance(part, tuple) else part for part in inputs]
        mean, log_std = self.layers(torch.cat(parts, 1)).chunk(2, -1)
        return mean, log_std.exp()


class Decoder(nn.Module):
    """Bends the code and adds the content, so that neither can be left out."""

    def __init__(self):
        super().__init__()
        self.layers = mlp((1 + D, 6, D))

    def forward(self, z, features):
        return 2 * self.layers(torch.cat((2 * z, features[0]), 1)) + features[0]


def codec(content_dim=D, prior=True, posterior=True):
    return ConditionalCodec(
        (D,),
        1,
        content_shape=(content_dim,),
        content_net=MLPContent(),
        prior_net=Gaussian(D) if prior else None,
        posterior_net=Gaussian(2 * D if posterior else D),
        decoder=Decoder(),
        likelihood=Vectors(),
        posterior_sees_content=posterior,
    )


def model(seed=0, **options):
    torch.manual_seed(seed)
    made = AddressingModel(codec(), mlp((D, 4, E)), mlp((D, 4, E)), E, **options).double()
    with torch.no_grad():
        for net in (made.item_net, made.query_net):  # untrained embeddings hardly tell items apart
            net[-1].weight.mul_(6)
        if made.prior_query is not None:
            made.prior_query.mul_(100)
    return made


def soft(seed=0):
    torch.manual_seed(seed)
    return SoftAttentionModel(codec(prior=False, posterior=False), mlp((D, 4, E)), mlp((1, 4, E))).double()


def normal(mean, std):
    return torch.distributions.Normal(mean, std)


def given(made, m, z):
    """p(x | z, m) by the nets themselves, in words of torch.distributions. Shapes: m (D), z (N, 1)"""
    outputs = made.codec.decoder(z, (m.expand(len(z), D),))
    return normal(outputs, 0.5**0.5)


def exact(made, state, x):
    """log sum_a p(a) of the integral over z, slot by slot. Shapes: x (D) -> (M), log p(a) + log p(x | m_a)"""
    query = made.prior_query if made.prior_query is not None else torch.zeros(E, dtype=torch.float64)
    scores = state.keys @ (query / query.norm() if made.similarity == "cosine" else query)
    found = []
    for m, log_p in zip(state.items, scores.log_softmax(0), strict=True):
        mean, std = made.codec.prior_net((m[None],))
        z = mean + std * GRID
        inside = given(made, m, z).log_prob(x).sum(-1) + normal(0.0, 1.0).log_prob(GRID[:, 0])
        found.append(log_p + inside.logsumexp(0) + math.log(float(GRID[1] - GRID[0])))
    return torch.stack(found)


@pytest.mark.parametrize("options", [{}, {"learned_prior": False, "similarity": "inner"}, {"similarity": "cosine"}])
def test_importance_weights_are_unbiased_and_their_bounds_are_bounds(options):
    made = model(**options)
    with torch.no_grad():
        state, x = made.write(vectors(4, D)), vectors(D, seed=5)
        truth = exact(made, state, x).logsumexp(0)
        draws = made.log_weights(state, x[None], num_samples=40_000, generator=seeded())[:, 0]
    weights = (draws - truth).exp()
    assert abs(weights.mean() - 1) < 5 * weights.std() / 200
    assert draws.mean() < truth
    groups = draws.view(-1, 10).logsumexp(1) - math.log(10)
    assert draws.mean() < groups.mean() < truth + 5 * groups.std() / len(groups) ** 0.5


def test_soft_attention_against_the_integral():
    made = soft()
    with torch.no_grad():
        state, x = made.write(vectors(4, D)), vectors(D, seed=5)
        queries = made.query_net(GRID)
        weights = (queries @ state.keys.T).softmax(-1)
        outputs = made.codec.decoder(GRID, (weights @ state.items,))
        inside = normal(outputs, 0.5**0.5).log_prob(x).sum(-1) + normal(0.0, 1.0).log_prob(GRID[:, 0])
        truth = inside.logsumexp(0) + math.log(float(GRID[1] - GRID[0]))
        draws = made.log_weights(state, x[None], num_samples=40_000, generator=seeded())[:, 0]
    ratio = (draws - truth).exp()
    assert abs(ratio.mean() - 1) < 5 * ratio.std() / 200
    assert draws.mean() < truth


def test_every_slot_by_itself_against_the_integral():
    made = model()
    with torch.no_grad():
        state, x = made.write(vectors(4, D)), vectors(D, seed=5)
        found = made.slot_log_likelihoods(state, x[None], num_samples=20_000, generator=seeded())[0]
        torch.testing.assert_close(found, exact(made, state, x), atol=0.03, rtol=0)


def test_every_slot_of_many_memories_in_blocks(monkeypatch):
    monkeypatch.setattr("mnemon.nets.codec.CPU_BLOCK", 24)
    made, seen = model(), []
    made.codec.content_net.register_forward_hook(lambda net, inputs, _: seen.append(len(inputs[0])))
    with torch.no_grad():
        state, x = made.write(vectors(2, 7, D)), vectors(2, 3, D, seed=5)
        found = made.slot_log_likelihoods(state, x, num_samples=4000, generator=seeded())
        assert sum(seen) == 14  # each slot once, however many blocks of slots and samples there are
        for b, query in itertools.product(range(2), range(3)):
            torch.testing.assert_close(found[b, query], exact(made, state[b], x[b, query]), atol=0.05, rtol=0)


def test_under_autocast_nets_are_half_precision_and_addresses_are_not():
    made, x = model().float(), vectors(2, 4, D).float()
    other, seen = soft().float(), []
    for each in (made, other):
        linear = each.codec.content_net.linear = nn.Linear(D, D)
        each.codec.content_net.forward = lambda m, linear=linear: (linear(m),)
        linear.register_forward_hook(lambda net, inputs, outputs: seen.append(outputs.dtype))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        made.surrogate(x, Estimator("gumbel", 2), generator=seeded())
        other.log_weights(other.write(x), x)
        assert set(seen) == {torch.bfloat16}
        for scorer in made.class_scorers:
            assert made.class_log_scores(x[:, :, None], x, scorer=scorer).dtype == torch.float32
        found = made.class_log_scores(x[:, :, None], x, scorer="address")
    torch.testing.assert_close(found.exp().sum(-1), torch.ones(2, 4), atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", ["vimco", "vimco_geometric"])
def test_the_gradient_is_that_of_the_two_sample_bound(kind):
    """Exactly: both addresses summed over, both codes integrated by Gauss-Hermite quadrature."""
    made, items, x = model(), vectors(3, D), vectors(1, D, seed=5)
    watched = [made.prior_query, made.query_net[-1].weight, made.item_net[-1].bias, made.codec.decoder.layers[-1].bias]
    nodes, node_weights = (torch.as_tensor(v) for v in np.polynomial.hermite_e.hermegauss(32))
    log_nodes = (node_weights / node_weights.sum()).log()
    state = made.write(items)
    log_q, log_p = made.address(state, x).log_probs()[0], made.prior_address(state).log_probs()[0]
    log_w = []
    for a, m in enumerate(items):
        mean, std = made.codec.posterior_net(m[None], x)
        z = mean + std * nodes[:, None]
        prior = normal(*made.codec.prior_net((m[None],))).log_prob(z).sum(-1)
        log_code = prior - normal(mean, std).log_prob(z).sum(-1)
        log_w.append(given(made, m, z).log_prob(x).sum(-1) + log_code + log_p[a] - log_q[a])
    total = 0.0
    for a, b in itertools.product(range(3), repeat=2):
        pair = torch.logaddexp(log_w[a][:, None], log_w[b][None, :]) - math.log(2)
        total = total + ((log_q[a] + log_q[b]).exp() * (log_nodes[:, None] + log_nodes).exp() * pair).sum()
    truth = torch.cat([g.flatten() for g in torch.autograd.grad(total, watched)])
    roles = Roles(torch.arange(3), torch.full((4000,), 3))
    found = []
    for seed in range(30):
        step = made.surrogate(torch.cat((items, x)), Estimator(kind, 2), roles=roles, generator=seeded(seed))
        found.append(torch.cat([g.flatten() for g in torch.autograd.grad(step.value.mean(), watched)]))
    found = torch.stack(found)
    assert ((found.mean(0) - truth).abs() < 5 * found.std(0) / 30**0.5 + 1e-9).all()
    assert (found.std(0) / 30**0.5 < 0.05 * truth.abs().max()).all()  # the comparison says something


class Plain(nn.Module):
    """A linear decoder, for vectors of any size."""

    def __init__(self, size):
        super().__init__()
        self.layer = nn.Linear(1 + size, size)

    def forward(self, z, features):
        return self.layer(torch.cat((z, features[0]), 1))


@pytest.mark.parametrize(("kind", "close"), [("vimco", 0.25), ("vimco_geometric", 0.25), ("gumbel", 1.0)])
def test_trained_to_recall_it_becomes_a_lookup_table(kind, close):
    """16 vectors in memory, asked for one by one: an optimal model pays log 16 for the address and nothing else beside
    the density of the noise at its centre. Held-out memories; one sample at a time is what gumbel maximises."""
    size, slots, generator = 8, 16, seeded(1)
    torch.manual_seed(0)
    nets = ConditionalCodec(
        (size,),
        1,
        content_shape=(size,),
        content_net=MLPContent(),
        prior_net=Gaussian(size),
        posterior_net=Gaussian(2 * size),
        decoder=Plain(size),
        likelihood=Vectors(),
    )
    made = AddressingModel(nets, nn.Linear(size, 16), nn.Linear(size, 16), 16)
    optimizer = torch.optim.Adam(made.parameters(), 1e-2)
    for _ in range(350):
        x = 2 * torch.randn(4, slots, size, generator=generator)
        loss = -made.surrogate(x, Estimator(kind, 4), generator=generator).value.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    optimum = math.log(slots) + 0.5 * size * math.log(2 * math.pi * 0.5)
    with torch.no_grad():
        x = 2 * torch.randn(64, slots, size, generator=generator)
        found = made.surrogate(x, Estimator(kind, 4), generator=generator)
        assert abs(-found.value.mean().item() - optimum) < close
        assert found.terms.address_kl.mean() > 0.8 * math.log(slots)
        right = made.address(made.write(x), x).best() == torch.arange(slots)
        assert right.double().mean() > 0.99
        many = 2 * torch.randn(4, 32 * slots, size, generator=generator)  # the same weights, a larger memory
        assert (made.address(made.write(many), many).best() == torch.arange(32 * slots)).double().mean() > 0.95


def test_terms_and_surrogate_with_the_same_draws():
    made, x = model(), vectors(2, 5, D)
    scored = torch.tensor([[3, 4, 3], [4, 0, 1]])
    roles = Roles(torch.arange(3).expand(2, 3), scored)
    step = made.surrogate(x, VIMCO, roles=roles, generator=seeded(3))
    masked = torch.arange(5).expand(2, 5) < 3  # the same, said by a mask
    same = made.surrogate(x, VIMCO, write_mask=masked, roles=Roles(None, scored), generator=seeded(3))
    torch.testing.assert_close(step.value, same.value)
    generator = seeded(3)
    uniform = torch.rand(2, 3, 2, dtype=torch.float64, generator=generator)
    noise = torch.randn(2, 3, 2, 1, dtype=torch.float64, generator=generator)
    for b, t in itertools.product(range(2), range(3)):
        target, state = x[b, scored[b, t]], made.write(x[b, :3])
        log_q = made.address(state, target[None]).log_probs()[0]
        log_p = made.prior_address(state).log_probs()[0]
        torch.testing.assert_close(step.terms.address_kl[b, t], (log_q.exp() * (log_q - log_p)).sum())
        log_w, code_kl, reconstruction = [], [], []
        for k in range(2):
            a = int((log_q.exp().cumsum(0) <= uniform[b, t, k]).sum())
            m = state.items[a]
            q = normal(*made.codec.posterior_net(m[None], target[None]))
            p = normal(*made.codec.prior_net((m[None],)))
            z = q.mean + q.stddev * noise[b, t, k]
            reconstruction.append(given(made, m, z).log_prob(target).sum())
            code_kl.append(torch.distributions.kl_divergence(q, p).sum())
            log_w.append(reconstruction[-1] + (p.log_prob(z) - q.log_prob(z)).sum() + log_p[a] - log_q[a])
        tolerance = {"atol": 1e-6, "rtol": 1e-6}  # the toys' likelihood has constants of float32
        torch.testing.assert_close(step.value[b, t], torch.stack(log_w).logsumexp(0) - math.log(2), **tolerance)
        torch.testing.assert_close(step.terms.reconstruction[b, t], torch.stack(reconstruction).mean(), **tolerance)
        torch.testing.assert_close(step.terms.code_kl[b, t], torch.stack(code_kl).mean())


def test_relaxed_addresses_bound_what_drawn_ones_do():
    """The value is the discrete bound at hard addresses; the gradient reaches the queries through the contents."""
    made, x = model(), vectors(5, D)
    step = made.surrogate(x, Estimator("gumbel", 20_000, temperature=0.5), generator=seeded())
    whole = made.surrogate(x, Estimator("vimco", 20_000), generator=seeded(1))
    log_w = step.terms.reconstruction - step.terms.code_kl - step.terms.address_kl
    torch.testing.assert_close(step.value, log_w)
    torch.testing.assert_close(step.terms.reconstruction, whole.terms.reconstruction, atol=0.05, rtol=0.02)
    gradient = torch.autograd.grad(step.terms.reconstruction.sum(), made.query_net[-1].weight)[0]
    assert gradient.abs().sum() > 0
    hot = made.surrogate(x, Estimator("gumbel", 1), generator=seeded())
    assert hot.value.shape == (5,)


def test_a_warm_up_scales_the_kl_parts_only():
    made, x = model(), vectors(4, D)
    for kind in ("vimco", "gumbel"):
        free, half = (made.surrogate(x, Estimator(kind, 2), kl_weight=w, generator=seeded()) for w in (0.0, 0.5))
        torch.testing.assert_close(free.terms.code_kl, half.terms.code_kl)
        assert not torch.equal(free.value, half.value)
    relaxed = made.surrogate(x, Estimator("gumbel", 1), kl_weight=0.0, generator=seeded())
    torch.testing.assert_close(relaxed.value, relaxed.terms.reconstruction)


def test_reading_takes_the_most_probable_address_and_the_mean_code():
    made = model()
    with torch.no_grad():
        state, cue = made.write(vectors(6, D)), vectors(3, D, seed=7)
        found = made.read(state, cue)
        for x, image in zip(cue, found, strict=True):
            m = state.items[(state.keys @ made.query_net(x)).argmax()]
            mean, _ = made.codec.posterior_net(m[None], x[None])
            torch.testing.assert_close(image, made.codec.decoder(mean, (m[None],))[0])


@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
@pytest.mark.parametrize("slots", [3, 50])
def test_contents_of_drawn_slots_either_way(batch, slots):
    """Whether the nets are given what was drawn, or each slot once."""
    made = model()
    state = made.write(vectors(*batch, slots, D))
    index = torch.randint(slots, (2, *batch, 5), generator=seeded())
    content = made._contents_at(state, index)
    torch.testing.assert_close(content.m, take_slots(state.items, index))
    for left, right in zip(content.features, made.codec.content(content.m).features, strict=True):
        torch.testing.assert_close(left, right)
    one = made.write(vectors(slots, D))  # one memory for all episodes
    torch.testing.assert_close(made._contents_at(one, index).m, one.items[index])


class TestMemories:
    def test_duplicates_change_nothing_but_their_weight(self):
        made, items = model(), vectors(3, D)
        with torch.no_grad():
            twice, weighed = made.write(items[[0, 1, 2, 0]]), made.write(items, weights=torch.tensor([2, 1, 1]))
            x = vectors(5, D, seed=3)
            several, single = (made.address(s, x).log_probs() for s in (twice, weighed))
            torch.testing.assert_close(several[:, [0, 3]].logsumexp(-1), single[:, 0])
            alone, same = made.write(items[:1]), made.write(items[:1].expand(4, D))
            left, right = (made.log_weights(s, x, num_samples=3, generator=seeded()) for s in (alone, same))
        torch.testing.assert_close(left, right)

    def test_one_slot_only(self):
        made, x = model(), vectors(4, D)
        written = torch.tensor([True, False, False, False])
        step = made.surrogate(x, VIMCO, write_mask=written, generator=seeded())
        torch.testing.assert_close(step.terms.address_kl, torch.zeros(4, dtype=torch.float64))
        step.value.sum().backward()
        assert all(p.grad.isfinite().all() for p in made.parameters())

    def test_writing_goes_on(self):
        made, items = model(), vectors(2, 7, D)
        whole, parts = made.write(items), made.write(items[:, 3:], prior=made.write(items[:, :3]))
        assert torch.equal(whole.items, parts.items)
        torch.testing.assert_close(whole.keys, parts.keys)

    def test_the_order_of_slots_does_not_matter(self):
        made, items, x = model(), vectors(5, D), vectors(2, D, seed=3)
        order = torch.tensor([3, 0, 4, 1, 2])
        states = [made.write(items), made.write(items[order])]
        left, right = (made.address(s, x).log_probs() for s in states)
        torch.testing.assert_close(left[:, order], right)
        left, right = (soft().attention(soft().write(i), vectors(3, 1)) for i in (items, items[order]))
        torch.testing.assert_close(left[:, order], right)

    def test_masked_slots_are_absent(self):
        made, items, x = model(), vectors(2, 5, D), vectors(2, 3, D, seed=3)
        mask = torch.tensor([[True, False, True, True, False], [True, False, False, True, False]])
        state = made.write(torch.where(mask[..., None], items, torch.nan), mask=mask)
        assert state.num_slots == 3
        for b in range(2):
            alone = made.write(items[b][mask[b]])
            log_q = made.address(state, x).log_probs()[b]
            torch.testing.assert_close(log_q[:, : alone.num_slots], made.address(alone, x[b]).log_probs())
            assert (log_q[:, alone.num_slots :] < -1e20).all()

    def test_one_memory_serves_many_episodes(self):
        made, state, x = model(), model().write(vectors(4, D)), vectors(2, 3, D, seed=3)
        whole = made.log_weights(state, x, num_samples=2, generator=seeded())
        spread = made.log_weights(state.expand((2,)), x, num_samples=2, generator=seeded())
        torch.testing.assert_close(whole, spread)

    def test_a_hundred_thousand_items(self):
        """Written, scored and generated from on a CPU; only what was drawn is decoded."""
        made = model().float().eval()
        with torch.no_grad():
            state = made.write(vectors(100_000, D).float())
            bound = made.log_likelihood(state, vectors(16, D, seed=3).float(), num_samples=8, generator=seeded())
            assert bound.value.isfinite().all()
            assert made.sample(state, 5, generator=seeded()).shape == (5, D)
            assert made.read(state, vectors(3, D).float()).shape == (3, D)


class TestLearned:
    def made(self, **options):
        torch.manual_seed(0)
        nets = codec()
        return AddressingModel(nets, mlp((D, 4, E)), mlp((D, 4, E)), E, num_slots=6, **options).double()

    def test_it_is_a_parameter(self):
        made, x = self.made(), vectors(2, 4, D)
        assert made.contents.shape == (6, D)
        assert made.undecayed == ("contents",)
        assert made.prior_state((2,)).batch_shape == (2,)
        terms = made.terms(x, generator=seeded())
        assert torch.equal(terms.memory_kl, torch.zeros(2, dtype=torch.float64))
        torch.testing.assert_close(terms.joint, terms.conditional)
        made.surrogate(x, VIMCO, generator=seeded()).value.sum().backward()
        assert made.contents.grad.abs().sum() > 0
        state = made.prior_state()
        assert made.read(state, x, observed=torch.tensor([True, False])).isfinite().all()
        assert made.sample(state, 3).shape == (3, D)
        assert made.log_weights(state, x, num_samples=3).shape == (3, 2, 4)

    def test_nothing_is_written_into_it(self):
        with pytest.raises(ValueError, match=r"learned memory: its 6 contents are parameters, and prior_state\(\)"):
            self.made().write(vectors(3, D))

    def test_vectors_that_are_no_images(self):
        nets = ConditionalCodec.of((1, 9, 10), 2, architecture="mlp", content_dim=5)
        with pytest.raises(ValueError, match="nothing but a learned memory can hold them"):
            AddressingModel(nets, mlp((5, E)), mlp((90, E)), E)


def test_classes_by_their_slots():
    made = model()
    support, queries = vectors(2, 3, 4, D), vectors(2, 5, D, seed=3)
    with torch.no_grad():
        found = made.class_log_scores(support, queries, scorer="address")
        assert found.shape == (2, 5, 3)
        torch.testing.assert_close(found.exp().sum(-1), torch.ones(2, 5, dtype=torch.float64))
        b, state = 1, made.write(support[1].flatten(0, 1))
        log_q = made.address(state, queries[b]).log_probs()
        torch.testing.assert_close(found[b, :, 2].exp(), log_q.exp()[:, 8:].sum(-1))
        posterior = made.class_log_scores(
            support[b], queries[b, :1], scorer="posterior", num_samples=4000, generator=seeded()
        )
        expected = exact(made, state, queries[b, 0]).view(3, 4).logsumexp(-1)
        torch.testing.assert_close(posterior[0], expected, atol=0.05, rtol=0)
    with pytest.raises(ValueError, match="expected one of address, posterior"):
        made.class_log_scores(support, queries, scorer="pixels")


def test_bad_input():
    made, x = model(), vectors(3, D)
    other = ItemState(vectors(3, D + 1), vectors(3, E))
    refuses_items_of_another_size(made, x, other)
    empty = ItemState(vectors(0, D), vectors(0, E))
    with pytest.raises(ValueError, match="got an empty one; write one first"):
        made.log_likelihood(empty, x)
    with pytest.raises(ValueError, match="at least one item"):
        made.write(x[:0])
    with pytest.raises(ValueError, match="none before the first write"):
        made.prior_state()
    with pytest.raises(ValueError, match="trained with vimco or vimco_geometric or gumbel, got terms"):
        made.surrogate(x, Estimator())
    with pytest.raises(ValueError, match="trained with terms or importance, got vimco"):
        soft().surrogate(x, VIMCO)
    with pytest.raises(ValueError, match="conditional_prior=False"):
        SoftAttentionModel(codec(), mlp((D, E)), mlp((1, E)))
    with pytest.raises(ValueError, match="similarity"):
        model(similarity="euclidean")
