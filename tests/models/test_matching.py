"""Generative matching networks against loops over items and integrals over a code of size 1."""

import itertools
import math

import pytest
import torch
from torch import nn

from mnemon.core.episode import Roles
from mnemon.memories.slots import ItemState
from mnemon.models import MatchingModel
from mnemon.nets.content import MLPContent
from mnemon.nets.matching import MatchedDecoder, MatchedPrior, Matcher, MatchingCodec, matching_nets
from mnemon.nets.mlp import LinearHead, mlp
from mnemon.objectives import Estimator
from tests.models.toys import Vectors, refuses_items_of_another_size, seeded, vectors

D, E, H = 2, 3, 4
"""Sizes of the items, of their keys and of the matchings' states; codes have size 1."""
GRID = torch.linspace(-9, 9, 6001, dtype=torch.float64)[:, None]
MATCHINGS = ("prior", "posterior", "decoder")


class Posterior(nn.Module):
    """Mean and standard deviation from all that it is given."""

    def __init__(self):
        super().__init__()
        self.head = LinearHead(2 * D + H, 1)

    def forward(self, m, x, state):
        return self.head(torch.cat((m, x, state), 1))


class Decoder(nn.Module):
    """Bends the code and adds the content, so that neither can be left out."""

    def __init__(self):
        super().__init__()
        self.layers = mlp((1 + H + D, 6, D))

    def forward(self, z, features):
        return 2 * self.layers(torch.cat((2 * z, features[0]), 1)) + features[0]


def model(seed=0, **options):
    torch.manual_seed(seed)
    codec = MatchingCodec(
        (D,),
        1,
        content_shape=(D,),
        content_net=MLPContent(),
        prior_net=MatchedPrior(LinearHead(D + H, 1)),
        posterior_net=Posterior(),
        decoder=MatchedDecoder(Decoder()),
        likelihood=Vectors(),
    )
    nets = (mlp((D, 4, E)), mlp((D, 5, H)), mlp((D, 5, H)), mlp((1, 5, H)))
    made = MatchingModel(codec, *nets, E, **{"state_dim": H, "num_matching_steps": 3, **options}).double()
    with torch.no_grad():
        made.item_net[-1].weight.mul_(3)  # untrained matchings hardly tell items apart
        for name in MATCHINGS:
            getattr(made, f"{name}_matcher").query.weight.mul_(4)
    return made


# -- the oracle: one query at a time, items in a loop, the recurrent unit by its equations -----------------------


def gru(cell, r, h):
    """Cho et al., 2014, with the reset gate on the recurrent part."""
    given, own = cell.weight_ih @ r + cell.bias_ih, cell.weight_hh @ h + cell.bias_hh
    (reset, update), (reset_own, update_own) = given[: 2 * H].view(2, H), own[: 2 * H].view(2, H)
    candidate = torch.tanh(given[2 * H :] + torch.sigmoid(reset + reset_own) * own[2 * H :])
    update = torch.sigmoid(update + update_own)
    return (1 - update) * candidate + update * h


def matched(made, name, items, start, counts=None):
    """Weights of (items, pseudo-input), and the state at the end. Shapes: items (M, D), start (H)"""
    matcher = getattr(made, f"{name}_matcher")
    keys = [made.item_net(item) for item in items] + [made.pseudo_key]
    contents = [*items, made.pseudo_input]
    counts = [1.0] * len(contents) if counts is None else [*counts, 1.0]
    h = start
    for _ in range(matcher.num_steps):
        query = matcher.query.weight @ h + matcher.query.bias
        scores = [n * math.e ** float(key @ query / key.norm()) for n, key in zip(counts, keys, strict=True)]
        weights = [score / sum(scores) for score in scores]
        r = sum(w * made.value_net(content) for w, content in zip(weights, contents, strict=True))
        h = gru(matcher.cell, r, h)
    return weights, h


def normal(mean, std):
    return torch.distributions.Normal(mean, std)


def moments(layer, *parts):
    mean, log_std = layer(torch.cat(parts)).chunk(2)
    return normal(mean, log_std.exp())


def parts_of(made, items, counts=None):
    """p(z | X), and functions that give q(z | x, X) and p(x | z, X)."""
    contents = [*items, made.pseudo_input]

    def read(weights):
        return sum(w * content for w, content in zip(weights, contents, strict=True))

    def posterior(x):
        weights, h = matched(made, "posterior", items, made.start_net(x), counts)
        return moments(made.codec.posterior_net.head.layer, read(weights), x, h)

    def likelihood(z):
        weights, h = matched(made, "decoder", items, made.code_net(z), counts)
        return normal(made.codec.decoder(z[None], (read(weights)[None], h[None]))[0], 0.5**0.5)

    weights, h = matched(made, "prior", items, made.prior_start, counts)
    return moments(made.codec.prior_net.head.layer, read(weights), h), posterior, likelihood


@torch.no_grad()
@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("count", [0, 1, 4])
def test_log_weights_item_by_item(steps, count):
    """The same noise, and everything computed one query, one item, one step at a time."""
    made, items, x = model(num_matching_steps=steps), vectors(count, D), vectors(3, D, seed=5)
    state = made.write(items) if count else made.prior_state()
    found = made.log_weights(state, x, num_samples=2, generator=seeded(3))
    noise = torch.randn(3, 2, 1, dtype=torch.float64, generator=seeded(3))
    p, posterior, likelihood = parts_of(made, items)
    for t, k in itertools.product(range(3), range(2)):
        q = posterior(x[t])
        z = q.mean + q.stddev * noise[t, k]
        expected = likelihood(z).log_prob(x[t]).sum() + (p.log_prob(z) - q.log_prob(z)).sum()
        torch.testing.assert_close(found[k, t], expected, atol=1e-6, rtol=1e-6)  # toys' constants are of float32


@torch.no_grad()
@pytest.mark.parametrize("count", [0, 3])
def test_importance_weights_against_the_integral(count):
    made, items, x = model(), vectors(count, D), vectors(D, seed=5)
    state = made.write(items) if count else made.prior_state()
    p, _, likelihood = parts_of(made, items)
    grid = p.mean + p.stddev * GRID[::10]
    inside = torch.stack([likelihood(z).log_prob(x).sum() for z in grid]) + normal(0.0, 1.0).log_prob(GRID[::10, 0])
    truth = inside.logsumexp(0) + math.log(float(GRID[10] - GRID[0]))
    draws = made.log_weights(state, x[None], num_samples=40_000, generator=seeded())[:, 0]
    weights = (draws - truth).exp()
    assert weights.std() / 200 < 0.05  # the comparison says something
    assert abs(weights.mean() - 1) < 5 * weights.std() / 200
    tight = made.log_likelihood(state, x[None], num_samples=40_000, generator=seeded()).value[0]
    assert abs(tight - truth) < 5 * weights.std() / 200
    groups = draws.view(-1, 10).logsumexp(1) - math.log(10)
    assert draws.mean() < groups.mean() < truth + 5 * groups.std() / len(groups) ** 0.5


@pytest.mark.parametrize("vary_items", [False, True])
def test_terms_and_surrogate_with_the_same_draws(vary_items):
    """Also of targets that are each shown some of the items only: those are all there is to them."""
    made, x = model(vary_items=vary_items), vectors(2, 6, D)
    roles = Roles(torch.arange(4).expand(2, 4), torch.tensor([[4, 5, 4], [5, 0, 1]]))
    found = made.surrogate(x, Estimator("importance", 2), roles=roles, generator=seeded(3))
    generator = seeded(3)
    shown = torch.ones(2, 3, 4, dtype=torch.bool)
    if vary_items:
        shown = made._some_items(made.write(x[:, :4]), x[:, :3], generator)
    noise = torch.randn(2, 3, 2, 1, dtype=torch.float64, generator=generator)
    close = {"atol": 1e-6, "rtol": 1e-6}
    with torch.no_grad():
        for b, t in itertools.product(range(2), range(3)):
            target = x[b, roles.scored[b, t]]
            p, posterior, likelihood = parts_of(made, x[b, :4][shown[b, t]])
            q = posterior(target)
            codes = [q.mean + q.stddev * noise[b, t, k] for k in range(2)]
            fit = torch.stack([likelihood(z).log_prob(target).sum() for z in codes])
            ratio = torch.stack([(p.log_prob(z) - q.log_prob(z)).sum() for z in codes])
            torch.testing.assert_close(found.value[b, t], (fit + ratio).logsumexp(0) - math.log(2), **close)
            torch.testing.assert_close(found.terms.reconstruction[b, t], fit.mean(), **close)
            torch.testing.assert_close(found.terms.code_kl[b, t], torch.distributions.kl_divergence(q, p).sum())
    assert found.terms.memory_kl is None
    assert (found.terms.address_kl == 0).all()
    one = made.eval().surrogate(x, Estimator(), roles=roles, generator=seeded(3))
    assert one.value is None
    same = made.terms(x, write_mask=roles.write_mask(x.shape[:2]), generator=seeded(4))
    kl = same.code_kl.gather(-1, roles.scored)
    torch.testing.assert_close(one.terms.code_kl, kl)


def test_some_items_are_any_number_of_those_that_are_there():
    made, x = model(), vectors(20_000, D)
    state = made.write(vectors(5, D), weights=torch.tensor([1, 2, 1, 1, 1]))
    state = state.replace(counts=torch.tensor([1.0, 2, 0, 1, 1], dtype=torch.float64))
    shown = made._some_items(state, x, seeded())
    assert not shown[:, 2].any()
    sizes = shown.sum(-1).bincount(minlength=6) / len(x)
    assert sizes[5] == 0
    assert (sizes[:5] - 1 / 5).abs().max() < 5 * (0.2 * 0.8 / len(x)) ** 0.5
    others = shown[:, [0, 1, 3, 4]].double().mean(0)
    assert (others - 1 / 2).abs().max() < 5 * (0.25 / len(x)) ** 0.5


def test_a_warm_up_scales_the_kl_parts_only():
    made, x = model(), vectors(4, D)
    free, half = (made.surrogate(x, Estimator("importance", 1), kl_weight=w, generator=seeded()) for w in (0.0, 0.5))
    torch.testing.assert_close(free.value, free.terms.reconstruction)
    torch.testing.assert_close(free.terms.code_kl, half.terms.code_kl)
    assert not torch.equal(free.value, half.value)


class TestMemories:
    @pytest.fixture(autouse=True)
    def without_gradients(self):
        with torch.no_grad():
            yield

    def scores(self, made, state, x=None):
        x = vectors(5, D, seed=3) if x is None else x
        return made.log_weights(state, x, num_samples=3, generator=seeded())

    def test_the_empty_set_is_an_unconditional_vae(self):
        made = model()
        p, _, likelihood = parts_of(made, vectors(0, D))
        image = made.sample(made.prior_state(), 1, generator=seeded(2))[0]
        noise = torch.randn(1, 1, 1, dtype=torch.float64, generator=seeded(2))[0, 0]
        torch.testing.assert_close(image, likelihood(p.mean + p.stddev * noise).mean)
        x = vectors(2, 5, D, seed=3)
        whole = self.scores(made, made.prior_state((2,)), x)
        torch.testing.assert_close(whole, self.scores(made, made.prior_state(), x))
        items = vectors(3, D)
        grown = made.write(items, prior=made.prior_state())
        torch.testing.assert_close(self.scores(made, grown), self.scores(made, made.write(items)))

    def test_items_change_what_is_expected(self):
        made = model()
        states = [made.prior_state(), made.write(vectors(1, D)), made.write(vectors(3, D))]
        found = [self.scores(made, state) for state in states]
        for left, right in itertools.combinations(found, 2):
            assert (left - right).abs().min() > 1e-4

    def test_a_duplicate_is_a_weight_of_two(self):
        made, items = model(), vectors(3, D)
        twice, weighed = made.write(items[[0, 1, 2, 0]]), made.write(items, weights=torch.tensor([2, 1, 1]))
        torch.testing.assert_close(self.scores(made, twice), self.scores(made, weighed))
        p, posterior, likelihood = parts_of(made, items, [2.0, 1.0, 1.0])
        x, noise = vectors(D, seed=3), torch.randn(1, 1, 1, dtype=torch.float64, generator=seeded())[0, 0]
        q = posterior(x)
        z = q.mean + q.stddev * noise
        expected = likelihood(z).log_prob(x).sum() + (p.log_prob(z) - q.log_prob(z)).sum()
        found = made.log_weights(weighed, x[None], generator=seeded())[0, 0]
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-6)
        assert (self.scores(made, twice) - self.scores(made, made.write(items))).abs().max() > 1e-3

    def test_the_order_of_items_does_not_matter(self):
        made, items = model(), vectors(5, D)
        order = torch.tensor([3, 0, 4, 1, 2])
        states = [made.write(items), made.write(items[order])]
        torch.testing.assert_close(*(self.scores(made, state) for state in states))
        torch.testing.assert_close(*(made.read(state, vectors(3, D, seed=7)) for state in states))
        torch.testing.assert_close(*(made.sample(state, 4, generator=seeded()) for state in states))

    def test_masked_items_are_absent(self):
        made, items, x = model(), vectors(2, 5, D), vectors(2, 3, D, seed=3)
        mask = torch.tensor([[True, False, True, True, False], [True, False, False, False, False]])
        state = made.write(torch.where(mask[..., None], items, torch.nan), mask=mask)
        assert state.num_slots == 3
        found = made.read(state, x)
        for b in range(2):
            alone = made.write(items[b][mask[b]])
            torch.testing.assert_close(found[b], made.read(alone, x[b]))
            left, right = (self.scores(made, s, x[b]) for s in (state[b], alone))
            torch.testing.assert_close(left, right)

    def test_writing_goes_on(self):
        made, items = model(), vectors(2, 7, D)
        whole, parts = made.write(items), made.write(items[:, 3:], prior=made.write(items[:, :3]))
        assert torch.equal(whole.items, parts.items)
        torch.testing.assert_close(whole.keys, parts.keys)

    def test_one_memory_serves_many_episodes(self):
        made, x = model(), vectors(2, 3, D, seed=3)
        state = made.write(vectors(4, D))
        torch.testing.assert_close(self.scores(made, state, x), self.scores(made, state.expand((2,)), x))
        many = made.write(vectors(2, 4, D))  # and one set of targets, many memories
        torch.testing.assert_close(made.read(many, x[0]), torch.stack([made.read(many[b], x[0]) for b in range(2)]))

    def test_blocks_are_the_whole(self):
        """Samples are scored in blocks, but where a gradient is asked for: 2 x 4 x 600 of them are several."""
        made, x = model(), vectors(2, 4, D, seed=3)
        state = made.write(vectors(2, 3, D))
        blocks = made.log_weights(state, x, num_samples=600, generator=seeded())
        with torch.enable_grad():
            torch.testing.assert_close(made.log_weights(state, x, num_samples=600, generator=seeded()), blocks)

    def test_a_batch_is_its_episodes(self):
        made, items, x = model(), vectors(2, 3, 4, D), vectors(2, 3, 5, D, seed=3)
        state, found = made.write(items), made.read(made.write(items), x)
        for i, j in itertools.product(range(2), range(3)):
            torch.testing.assert_close(found[i, j], made.read(made.write(items[i, j]), x[i, j]))
        assert made.log_weights(state, x, num_samples=3).shape == (3, 2, 3, 5)
        assert made.sample(state, 2).shape == (2, 3, 2, D)


def test_reading_takes_mean_codes():
    made, items, x = model(), vectors(4, D), vectors(D, seed=5)
    with torch.no_grad():
        _, posterior, likelihood = parts_of(made, items)
        found = made.read(made.write(items), x[None])[0]
        torch.testing.assert_close(found, likelihood(posterior(x).mean).mean)


@pytest.mark.parametrize("architecture", ["pyramid", "mlp"])
@pytest.mark.parametrize("shape", [(1, 26, 26), (3, 9, 22)])
def test_nets_for_any_image(architecture, shape):
    codec, value_net = matching_nets(shape, 4, 5, architecture=architecture, likelihood="gaussian", num_filters=4)
    nets = [mlp((math.prod(shape), 5)) for _ in range(2)]
    flat = [nn.Sequential(nn.Flatten(), net) for net in nets]
    made = MatchingModel(codec, flat[0], value_net, flat[1], mlp((4, 5)), 5)
    x = torch.rand(2, 3, *shape)
    assert made.sample(made.write(x), 2).shape == (2, 2, *shape)
    assert made.log_likelihood(made.prior_state((2,)), x, num_samples=2).value.isfinite().all()


def test_bad_input():
    made, x = model(), vectors(3, D)
    other = ItemState(vectors(3, D + 1), vectors(3, E))
    refuses_items_of_another_size(made, x, other)
    for call in (made.sample, lambda state: made.write(x, prior=state), lambda state: made.log_weights(state, x)):
        with pytest.raises(ValueError, match=r"items \(\*B, M, 2\), got \(0, 3\); items of another size"):
            call(ItemState(vectors(0, D + 1), vectors(0, E)))
        with pytest.raises(ValueError, match=rf"keys \(\*B, M, {E}\), got \(4, {E + 1}\); keys of another size"):
            call(ItemState(vectors(4, D), vectors(4, E + 1)))
    with pytest.raises(ValueError, match="expected an ItemState"):
        made.sample(x)
    with pytest.raises(ValueError, match="at least one item"):
        made.write(x[:0])
    with pytest.raises(ValueError, match="trained with terms or importance, got vimco"):
        made.surrogate(x, Estimator("vimco", 2))
    with pytest.raises(ValueError, match="num_matching_steps"):
        model(num_matching_steps=0)
    with pytest.raises(ValueError, match="similarity"):
        model(similarity="euclidean")
    with pytest.raises(ValueError, match="state_dim"):
        Matcher(0, E, 1)
    with pytest.raises(ValueError, match="expected pyramid or mlp"):
        matching_nets((1, 9, 9), 2, 3, architecture="improved")
