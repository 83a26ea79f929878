"""Few-shot classification: scores against loops, episodes that are what they say, accuracies that can be derived."""

import math
from functools import partial

import pytest
import torch
from scipy import stats

from mnemon.data.images import ImageSet
from mnemon.data.preprocess import Preprocessing
from mnemon.evaluation.fewshot import (
    class_log_scores,
    fewshot_accuracy,
    fewshot_episodes,
    likelihood_scores,
    nearest_neighbour_scores,
    scorers_of,
)
from mnemon.evaluation.likelihood import TestSet, importance_bound
from tests.evaluation.kernels import Kernels, NearestItem, gaussian
from tests.evaluation.test_deep import model_of, patterns
from tests.training.cases import SHAPE, image_set, of_kind


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def few_shots(*batch, ways=3, shots=2, queries=4):
    support = torch.rand(*batch, ways, shots, 1, 3, 2, generator=seeded(1), dtype=torch.float64)
    return support, torch.rand(*batch, queries, 1, 3, 2, generator=seeded(2), dtype=torch.float64)


def scorer(model, **options):
    return lambda support, queries, generator: class_log_scores(model, support, queries, generator=generator, **options)


class TestEpisodes:
    def test_classes_and_images_are_distinct(self):
        data = image_set()
        support, queries = fewshot_episodes(data, ways=4, shots=3, queries=2, num_episodes=50, seed=0)
        assert (support.shape, queries.shape) == ((50, 4, 3), (50, 4, 2))
        for row in torch.cat((support, queries), -1):
            assert len(set(row.flatten().tolist())) == 20
            labels = data.labels[row]
            assert (labels == labels[:, :1]).all()
            assert len(set(labels[:, 0].tolist())) == 4

    def test_the_seed_decides(self):
        draw = partial(fewshot_episodes, image_set(), ways=4, shots=3, queries=2, num_episodes=5)
        assert torch.equal(draw(seed=1).support, draw(seed=1).support)
        assert not torch.equal(draw(seed=1).support, draw(seed=2).support)

    def test_too_few(self):
        with pytest.raises(ValueError, match="expected 13 classes with at least 2 images"):
            fewshot_episodes(image_set(), ways=13, shots=1, queries=1, num_episodes=1, seed=0)
        with pytest.raises(ValueError, match="4 classes with at least 11 images"):
            fewshot_episodes(image_set(), ways=4, shots=10, queries=1, num_episodes=1, seed=0)
        with pytest.raises(ValueError, match="shots: expected"):
            fewshot_episodes(image_set(), ways=4, shots=0, queries=1, num_episodes=1, seed=0)
        with pytest.raises(ValueError, match="no labels"):
            fewshot_episodes(ImageSet(image_set().images), ways=2, shots=1, queries=1, num_episodes=1, seed=0)


class TestScores:
    @pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
    def test_likelihood_against_loops(self, batch):
        support, queries = few_shots(*batch)
        scores = likelihood_scores(Kernels(0.7), support, queries, num_samples=3)
        assert scores.shape == (*batch, 4, 3)
        flat = support.reshape(-1, 3, 2, 1, 3, 2), queries.reshape(-1, 4, 1, 3, 2), scores.reshape(-1, 4, 3)
        for classes, images, found in zip(*flat, strict=True):
            for q, image in enumerate(images):
                for w, examples in enumerate(classes):
                    terms = [gaussian(image, example, 0.7) for example in examples]
                    expected = math.log(sum(math.exp(term) for term in terms) / len(terms))
                    assert float(found[q, w]) == pytest.approx(expected, rel=1e-10)

    @pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
    def test_nearest_neighbours_against_loops(self, batch):
        support, queries = few_shots(*batch)
        scores = nearest_neighbour_scores(support, queries)
        flat = support.reshape(-1, 3, 2, 1, 3, 2), queries.reshape(-1, 4, 1, 3, 2), scores.reshape(-1, 4, 3)
        for classes, images, found in zip(*flat, strict=True):
            for q, image in enumerate(images):
                for w, examples in enumerate(classes):
                    nearest = min(math.sqrt(float(((image - each) ** 2).sum())) for each in examples)
                    assert float(found[q, w]) == pytest.approx(-nearest, rel=1e-12)

    def test_equal_distances_are_equal_scores(self):
        """Binary images at one distance; the faster products would break the tie by rounding."""
        images = torch.eye(700).view(700, 1, 28, 25)
        scores = nearest_neighbour_scores(images[1:].view(233, 3, 1, 28, 25), images[:1])
        assert (scores == scores[0, 0]).all()

    def test_a_model_may_bring_its_own(self):
        model, (support, queries) = NearestItem(0.5), few_shots(2)
        assert scorers_of(model) == ("nearest", "share", "likelihood")
        assert scorers_of(Kernels()) == ("likelihood",)
        first = class_log_scores(model, support, queries)
        expected = -nearest_neighbour_scores(support, queries).square() / (2 * 0.5)
        torch.testing.assert_close(first, expected)
        share = class_log_scores(model, support, queries, scorer="share").softmax(-1)
        by_likelihood = class_log_scores(model, support, queries, scorer="likelihood").softmax(-1)
        torch.testing.assert_close(share, by_likelihood)  # as many examples of each class

    def test_messages(self):
        support, queries = few_shots(2)
        with pytest.raises(ValueError, match=r"scorer of Kernels \(likelihood\), got 'share'"):
            class_log_scores(Kernels(), support, queries, scorer="share")
        for bad in (queries[0], queries[:1], support):
            with pytest.raises(ValueError, match=r"support \(\*B, ways, shots, C, H, W\) and queries"):
                class_log_scores(Kernels(), support, bad)
        with pytest.raises(ValueError, match="num_samples"):
            class_log_scores(Kernels(), support, queries, num_samples=0)


class TestAccuracy:
    def test_against_counting(self):
        test = patterns()
        sizes = {"ways": 4, "shots": 2, "queries": 3, "num_episodes": 30, "seed": 5}
        noisy = TestSet.of(  # patterns that are hard to tell apart
            ImageSet((torch.rand(120, *SHAPE, generator=seeded()) * 255).to(torch.uint8), test.data.labels),
            Preprocessing("static"),
        )
        found = fewshot_accuracy(scorer(Kernels(9.0)), noisy, **sizes)
        support, queries = fewshot_episodes(noisy.data, **sizes)
        shares = []
        for examples, asked in zip(support, queries, strict=True):
            right = 0
            for w in range(4):
                for index in asked[w]:
                    image = noisy.draw(index, seeded()).double()
                    scores = []
                    for members in examples:
                        terms = [gaussian(image, noisy.draw(i, seeded()).double(), 9.0) for i in members]
                        scores.append(math.log(sum(math.exp(t - max(terms)) for t in terms)) + max(terms))
                    right += scores.index(max(scores)) == w
            shares.append(right / 12)
        assert 0.1 < found.value < 0.6
        assert found.value == pytest.approx(sum(shares) / 30)
        spread = torch.tensor(shares, dtype=torch.float64).std()
        assert found.interval == pytest.approx(stats.t.ppf(0.975, 29) * float(spread) / math.sqrt(30))

    def test_distinct_patterns_are_told_apart(self):
        sizes = {"ways": 5, "shots": 1, "num_episodes": 20}
        assert fewshot_accuracy(scorer(Kernels()), patterns(), **sizes).value == 1
        pixels = fewshot_accuracy(lambda s, q, _: nearest_neighbour_scores(s, q), patterns(), **sizes)
        assert pixels.value == 1

    def test_a_model_that_remembers_nothing_guesses(self):
        """The VAE's bound does not depend on the memory: one query in five is right."""
        model = model_of(of_kind("vae"))
        found = fewshot_accuracy(scorer(model), patterns(), ways=5, shots=1, num_episodes=200)
        assert found.value == pytest.approx(0.2, abs=4 * found.interval / 1.96)

    def test_any_number_at_once_gives_the_same(self, monkeypatch):
        whole = fewshot_accuracy(scorer(Kernels(30.0)), patterns(), ways=4, shots=1, num_episodes=12)
        monkeypatch.setattr("mnemon.evaluation.fewshot.frames_at_once", lambda device: 50)
        assert fewshot_accuracy(scorer(Kernels(30.0)), patterns(), ways=4, shots=1, num_episodes=12) == whole

    def test_nan_is_no_answer(self):
        broken = scorer(Kernels(math.nan))
        with pytest.raises(ValueError, match="score is NaN"):
            fewshot_accuracy(broken, patterns(), ways=2, shots=1, num_episodes=1)


def test_many_samples_in_pieces_are_the_bound_of_all():
    model = model_of(of_kind("vae"))
    x = patterns().draw(torch.arange(120).repeat(20), seeded()).view(2, 1200, *SHAPE)  # more than fit at once
    state = model.write(x[:, :1])
    with torch.no_grad():
        whole = model.log_likelihood(state, x, num_samples=3, generator=seeded(4)).value
        pieces = importance_bound(model, state, x, num_samples=3, generator=seeded(4))
    torch.testing.assert_close(pieces, whole)


@pytest.mark.parametrize(
    ("kind", "net"), [("gmn", "content_net"), ("gmn", "posterior_net"), ("soft-attention", "posterior_net")]
)
def test_many_samples_do_not_ask_again_for_what_is_the_same_for_all(kind, net):
    model, seen = model_of(of_kind(kind)), []
    getattr(model.codec, net).register_forward_hook(lambda module, inputs, _: seen.append(len(inputs[0])))
    x = patterns().draw(torch.arange(120).repeat(10), seeded()).view(10, 120, *SHAPE)
    with torch.no_grad():
        found = importance_bound(model, model.write(x[:, :2]), x, num_samples=12, generator=seeded(4))
    assert found.shape == (10, 120)
    assert sum(seen) == (30 if net == "content_net" else 1200)
