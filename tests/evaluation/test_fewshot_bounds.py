"""Few-shot bounds against loops over memories with a known likelihood, and the records made of them."""

import dataclasses
import json
import math

import pytest
import torch
from scipy import stats

from mnemon.core.random import stream
from mnemon.data.images import ImageSet
from mnemon.evaluation import fewshot_experiments as parts
from mnemon.evaluation.cells import Cell, cell_of, is_fewshot
from mnemon.evaluation.experiments import Evaluation, bounds, novelty_scores, prior, recall
from mnemon.evaluation.fewshot import fewshot_episodes
from mnemon.evaluation.fewshot_bounds import class_bounds, fitting, kl_breakdown, over_memories, short_of_optimal
from mnemon.evaluation.likelihood import PRIOR, TestSet, prior_bounds
from mnemon.evaluation.novelty import has_prior
from mnemon.evaluation.papers import paper_accuracy, paper_cell
from mnemon.evaluation.pictures import address_picture, draw_all
from mnemon.evaluation.results import result
from mnemon.models.addressing import AddressingModel
from mnemon.nets.conditional import ConditionalCodec, embedding_net
from tests.evaluation.kernels import Kernels, gaussian
from tests.evaluation.test_deep import model_of, patterns
from tests.training.cases import SHAPE, image_set, of_kind


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def evaluation_of(kind="vae", data=None, **options):
    settings = of_kind(kind)
    test = patterns() if data is None else TestSet.of(data, patterns().preprocessing)
    options = {"num_samples": 2, "num_episodes": 6, **options}
    return Evaluation.of(model_of(settings), settings, test, command="mnemon eval r", updates=7, **options)


class TestClassBounds:
    @pytest.mark.parametrize("scored", [1, 2])
    def test_against_loops(self, scored):
        test, model = patterns(), Kernels(0.5)
        found = class_bounds(
            model, test, classes=(1, 2, 5), examples=(1, 3), num_episodes=4, scored=scored, seed=3, num_samples=2
        )
        drawn = fewshot_episodes(test.data, ways=5, shots=3, queries=scored, num_episodes=4, seed=3)
        for (classes, examples), values in found.items():
            assert values.shape == (4, 5 // classes * classes)  # of five classes, one is left over by pairs
            for episode, row in enumerate(values):
                for at, value in enumerate(row):
                    first = at // classes * classes
                    members = drawn.support[episode, first : first + classes, :examples].flatten()
                    total = 0.0
                    for query in drawn.queries[episode, at]:
                        x = test.draw(query, seeded()).double()
                        terms = [gaussian(x, test.draw(i, seeded()).double(), 0.5) for i in members]
                        total += math.log(sum(math.exp(t - max(terms)) for t in terms) / len(terms)) + max(terms)
                    assert float(value) == pytest.approx(total / scored, rel=1e-9)

    def test_any_number_at_once_gives_the_same(self, monkeypatch):
        sizes = {"classes": (1, 4), "examples": (2,), "num_episodes": 3}
        whole = class_bounds(Kernels(), patterns(), **sizes)
        monkeypatch.setattr("mnemon.evaluation.fewshot_bounds.frames_at_once", lambda device: 5)
        for cell, values in class_bounds(Kernels(), patterns(), **sizes).items():
            torch.testing.assert_close(values, whole[cell])

    def test_a_perfect_model_loses_log_c(self):
        """Kernels so narrow that other classes have no share in them: each class added costs its choice, no more."""
        bounds = class_bounds(Kernels(0.01), patterns(), classes=(1, 3, 12), examples=(4,), num_episodes=2)
        for cell, estimate in short_of_optimal(bounds).items():
            assert estimate.value == pytest.approx(0, abs=1e-6), cell
        lost = (bounds[Cell(1, 4)] - bounds[Cell(12, 4)]).mean()
        assert float(lost) == pytest.approx(math.log(12), abs=1e-6)

    def test_a_memory_that_does_not_count_gains_log_c(self):
        """The VAE is as good with any memory, so against a model that pays log C it comes out ahead by that. Its draws
        are the same for every memory."""
        bounds = class_bounds(model_of(of_kind("vae")), patterns(), classes=(1, 4), examples=(2,), num_episodes=10)
        found = short_of_optimal(bounds)[Cell(4, 2)]
        assert found.value == pytest.approx(-math.log(4), abs=1e-4)  # float32 bounds of some hundred nats


class TestIntervals:
    """What one memory explains well or badly it does so for all its images: they are no independent measurements."""

    def test_are_over_memories(self):
        values = torch.tensor([[1.0, 3.0, 7.0, 5.0], [2.0, 2.0, 0.0, 4.0]])
        found = over_memories(Cell(2, 1), values)  # two memories of two classes in each of two episodes
        means = [2.0, 6.0, 2.0, 2.0]
        assert (found.value, found.count) == (3.0, 4)
        assert found.interval == pytest.approx(stats.t.ppf(0.975, 3) * stats.sem(means))
        assert over_memories(Cell(4, 1), values).count == 2
        assert over_memories(Cell(1, 1), values).count == 8

    def test_of_losses_are_over_the_larger_memories(self):
        """Losses that are the same for all images of a memory: more images in it do not make the interval narrower."""
        alone = torch.zeros(6, 8, dtype=torch.float64)
        shift = torch.randn(6, 2, dtype=torch.float64, generator=seeded())
        shared = shift.repeat_interleave(4, dim=1)
        found = short_of_optimal({Cell(1, 3): alone, Cell(4, 3): alone - math.log(4) - shared})[Cell(4, 3)]
        assert found.count == 12
        assert found.value == pytest.approx(float(shift.mean()))
        assert found.interval == pytest.approx(stats.t.ppf(0.975, 11) * stats.sem(shift.flatten()))

    def test_of_records(self):
        """Four classes of which two are in each memory, and six images asked for: two episodes, four memories."""
        evaluation = evaluation_of("vbm-mixture")
        (record,) = (r for r in parts.bound_table(evaluation, (2, 4), (1,)) if cell_of(r, "table") == (2, 1))
        found = class_bounds(
            evaluation.model, evaluation.test, classes=(2, 4), examples=(1,), num_episodes=2, num_samples=2
        )
        means = found[Cell(2, 1)].view(4, 2).mean(-1)
        assert record["value"] == pytest.approx(float(means.mean()), rel=1e-4)
        assert record["interval"] == pytest.approx(stats.t.ppf(0.975, 3) * stats.sem(means), rel=1e-3)


def test_fitting():
    data = image_set()  # 12 classes of 10
    assert fitting(data, (1, 4, 12, 16), (1, 9, 10)) == ((1, 4, 12), (1, 9))
    assert fitting(data, (1, 4), (1, 9), scored=5) == ((1, 4), (1,))
    ragged = data.subset(torch.cat((torch.arange(0, 70), torch.arange(70, 73))))  # seven classes of 10, one of 3
    assert fitting(ragged, (7, 8), (2, 5)) == ((7,), (2, 5))
    assert fitting(ragged, (7, 8), (2,)) == ((7, 8), (2,))
    assert fitting(ImageSet(data.images), (1,), (1,)) == ((), ())


class TestBreakdown:
    def test_of_a_vae(self):
        """Its code is the same whatever is in memory: KL(q(z | x) || N(0, I)) of the scored images."""
        model, test = model_of(of_kind("vae")), patterns()
        found = kl_breakdown(model, test, num_classes=3, examples=(1, 4), num_episodes=5, scored=2, seed=1)
        queries = fewshot_episodes(test.data, ways=3, shots=4, queries=2, num_episodes=5, seed=1).queries
        with torch.no_grad():
            codes = model.codec.encode(test.draw(queries.flatten(), seeded()))
        normal = torch.distributions.Normal
        kl = torch.distributions.kl_divergence(normal(codes.mean, codes.std), normal(0.0, 1.0)).sum(-1)
        for count in (1, 4):
            assert found[count]["code_kl"].value == pytest.approx(float(kl.mean()), rel=1e-5)
            assert found[count]["address_kl"].value == 0
            assert found[count]["code_kl"].count == 5

    @pytest.mark.parametrize("kind", ["vbm-mixture", "vbm-categorical", "dkm", "statistician"])
    def test_of_models_with_a_memory(self, kind):
        found = kl_breakdown(model_of(of_kind(kind)), patterns(), num_classes=1, examples=(1, 3), num_episodes=4)
        for each in found.values():
            assert all(math.isfinite(estimate.value) for estimate in each.values())


def test_prior_bounds_are_those_of_single_images():
    model, test = model_of(of_kind("vae")), patterns()
    found = prior_bounds(model, test, num_images=1000, num_samples=20, block=50)
    assert len(found) == 120  # all that there are
    order = torch.randperm(120, generator=stream(0, PRIOR))
    with torch.no_grad():
        x = test.draw(order, seeded())
        other = model.log_likelihood(model.prior_state(), x, num_samples=20, generator=seeded(9)).value
    gap = found - other  # two estimates of the same
    assert abs(float(gap.mean())) < 4 * float(gap.std()) / math.sqrt(120)
    assert float(gap.std()) < float(found.std()) / 2  # of the same images: others would be at 1.4 times that
    assert len(prior_bounds(model, test, num_images=7, num_samples=1)) == 7


class TestRecords:
    def test_every_number_says_what_memory_it_is_of(self):
        evaluation = evaluation_of("vbm-mixture")
        records = list(parts.fewshot(evaluation))
        assert all(is_fewshot(record) for record in records)
        table = {cell_of(r, "table"): r for r in records if cell_of(r, "table")}
        assert set(table) == {(c, n) for c in (1, 2, 4) for n in (1, 2, 3, 4, 5)}  # of 12 classes with 10 images
        for (classes, examples), record in table.items():
            assert record["episode_length"] == classes * examples
            assert (record["scored"], record["num_samples"], record["bound"]) == ("same_class", 2, "conditional")
            clusters = min(2, classes * examples)  # each two slots of four numbers, their covariance, a location
            assert record["memory_floats"] >= clusters * 2 * 4
        scaling = [cell_of(r, "scaling").classes for r in records if cell_of(r, "scaling") and r["metric"] == "bound"]
        assert scaling == [1, 2, 4, 8]
        exact = next(r for r in records if r["metric"] == "short_of_optimal")
        assert exact["value"] == 0
        breakdown = [cell_of(r, "breakdown") for r in records if cell_of(r, "breakdown")]
        assert {cell.classes for cell in breakdown} == {8}
        assert records[0]["command"] == "mnemon eval r --part fewshot --samples 2 --episodes 6"
        json.dumps(records)

    def test_classification(self):
        records = list(parts.classification(evaluation_of(num_episodes=8)))
        assert [r["note"] for r in records] == [
            f"5-way {shots}-shot, 8 episodes; by {scorer}" for shots in (1, 5) for scorer in ("likelihood", "pixels")
        ]
        pixels = [r for r in records if r["model"] == "pixel nearest neighbour"]
        assert [r["value"] for r in pixels] == [1, 1]
        assert [r["memory_floats"] for r in pixels] == [5 * 22 * 22, 25 * 22 * 22]
        assert [r["memory_floats"] for r in records[::2]] == [5, 5]  # a count for each class

    def test_models_that_write_in_pieces_have_no_breakdown(self):
        evaluation = evaluation_of("vbm-mixture")
        evaluation.model.online_chunks = 2
        assert not list(parts.breakdown(evaluation))

    def test_what_is_refused(self):
        bare = evaluation_of(data=ImageSet(image_set().images, name="bare"))
        for part in (parts.fewshot, parts.classification):
            with pytest.raises(ValueError, match="expected labelled images, but bare has no labels"):
                list(part(bare))

    def test_prior(self):
        (record,) = prior(evaluation_of())
        assert (record["bound"], record["scored"], record["num_samples"]) == ("prior", "unseen", 2)
        assert record["note"] == "nothing written; 6 images"
        (record,) = prior(evaluation_of("gmn"))
        assert record["memory_floats"] == 0  # no item is stored


def test_cells_come_back_from_their_notes():
    for table in ("table", "scaling", "breakdown"):
        record = result(note=Cell(16, 19).note(table))
        assert cell_of(record, table) == (16, 19)
        assert cell_of(record, "table" if table == "scaling" else "scaling") is None
    for note in (None, "episodes of 8 classes x 8", "resized to 100 clusters"):
        assert not is_fewshot(result(note=note))
        assert cell_of(result(note=note), "table") is None


def test_papers():
    assert paper_cell("vma", "omniglot", 4, 10)["paper_value"] == -78.6
    assert paper_cell("gmn", "omniglot", 1, 19)["paper_value"] == -45.8
    assert paper_cell("gmn", "omniglot", 16, 1) == paper_cell("vma", "mnist", 1, 1) == {}
    assert paper_cell("vma", "omniglot", 1, 7) == {}
    assert paper_accuracy("vma", "omniglot26", "address", 20, 1)["paper_value"] == 0.77
    assert paper_accuracy("vma", "omniglot26", "likelihood", 20, 1) == {}


def addressing(num_slots=None):
    """VMA with fresh weights; num_slots: a learned memory, of vectors of six numbers."""
    torch.manual_seed(0)
    nets = ConditionalCodec.of(SHAPE, 4, num_filters=4, content_dim=None if num_slots is None else 6)
    items = embedding_net(SHAPE, 5, num_filters=4) if num_slots is None else embedding_net((6,), 5, architecture="mlp")
    return AddressingModel(nets, items, embedding_net(SHAPE, 5, num_filters=4), 5, num_slots=num_slots).eval()


class TestAddressing:
    """A memory of stored items has no prior and no posterior; a learned one cannot be written."""

    def test_every_scorer_of_its_own_is_measured(self):
        evaluation = dataclasses.replace(evaluation_of(num_episodes=4), model=addressing())
        records = list(parts.classification(evaluation))
        scorers = [r["note"].split("by ")[1] for r in records[:4]]
        assert scorers == ["address", "posterior", "likelihood", "pixels"]
        floats = [r["memory_floats"] for r in records[:3]]
        assert floats == [5 * (22 * 22 + 5)] * 3  # five images and their keys, in one memory or in five

    def test_what_it_has_no_number_for(self):
        evaluation = dataclasses.replace(evaluation_of(), model=addressing())
        assert evaluation.model.can_write
        assert {r["bound"] for r in bounds(evaluation)} == {"conditional", None}
        assert "memory_kl" not in {r["metric"] for r in bounds(evaluation)}
        assert not has_prior(evaluation.model)
        notes = [r["note"] for r in novelty_scores(evaluation) if r["model"] == "vae"]
        assert all("; log p(x|memory); " in note for note in notes)
        with pytest.raises(ValueError, match="none before the first write"):
            list(prior(evaluation))

    def test_a_learned_memory_is_not_asked_to_write(self):
        evaluation = dataclasses.replace(evaluation_of(), model=addressing(num_slots=7))
        assert not evaluation.model.can_write
        assert evaluation.floats() == 7 * (6 + 5)
        (record,) = prior(evaluation)
        assert record["value"] < 0
        assert {r["bound"] for r in bounds(evaluation)} == {"joint", "conditional", None}
        assert not list(recall(evaluation))
        with pytest.raises(ValueError, match="got one with a learned memory"):
            list(parts.fewshot(evaluation))

    def test_pictures(self, tmp_path):
        files = draw_all(addressing(), patterns(), tmp_path, length=12)
        assert [file.stem for file in files] == ["episode", "samples", "iterative", "one_shot", "addresses"]
        learned = draw_all(addressing(num_slots=7), patterns(), tmp_path, length=12)
        assert [file.stem for file in learned] == ["samples", "slots"]
        assert all(file.stat().st_size > 0 for file in learned)
        figure = address_picture(addressing(), patterns(), targets=2)
        assert len(figure.axes) == 2 * 7
        assert address_picture(model_of(of_kind("vae")), patterns()) is None
        bare = TestSet.of(ImageSet(image_set().images), patterns().preprocessing)
        assert address_picture(addressing(), bare) is None
