"""The training loop: what it writes, its schedules, and how it stops when numbers go bad or settings do not fit."""

import dataclasses
import io
import math

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file, save_file

from mnemon.core.random import stream
from mnemon.pretrained import from_pretrained
from mnemon.registry import MODELS, build_model
from mnemon.training.data import TrainingData
from mnemon.training.loop import VALIDATE
from mnemon.training.objective import NAMES, training_loss
from mnemon.training.progress import NonFiniteLoss
from mnemon.training.schedules import BoundWeights, kl_weight, learning_rate
from tests.training.cases import FEW_SHOT, RECALL, SHAPE, config, fit, image_set, of_kind, records, training_data

# -- what a training is and writes -----------------------------------------------------------------


@pytest.mark.parametrize("kind", sorted({*MODELS} - {"ebmm"}))
def test_training_raises_the_bound(kind, tmp_path):
    summary = fit(of_kind(kind, stages=[{"epochs": 4, "learning_rate": 5e-3, "patience": 0}]), tmp_path)
    found = {path.name for path in tmp_path.iterdir()}
    assert found == {"config.json", "model.safetensors", "metrics.jsonl", "state.ckpt"}
    validation = records(tmp_path, "validation")
    assert [line["epoch"] for line in validation] == [0, 1, 2, 3, 4]
    assert validation[-1]["joint"] > validation[0]["joint"] + 10
    assert (summary.improved, summary.epochs) == (True, 4)
    assert summary.steps == records(tmp_path)[-1]["step"]
    assert summary.best_loss == min(line["loss"] for line in validation)
    for line in records(tmp_path):
        costs = ("code_kl", "address_kl", "memory_kl", "choice_kl")
        terms = line["reconstruction"] - sum(line[name] for name in costs)
        assert line["joint"] == pytest.approx(terms, rel=1e-12)
        if kind == "vma":  # the bound of 4 samples, and terms that are means over them, the address's exact
            assert -0.5 < -line["loss"] - line["joint"] < 30
        else:
            assert line["joint"] + line["auxiliary"] == pytest.approx(-line["loss"], rel=1e-5)


def test_the_folder_holds_the_best_weights(tmp_path):
    """A rate that overshoots after a good start: what is kept is the best epoch, not the last."""
    settings = config(
        stages=[{"epochs": 2, "learning_rate": 5e-3}, {"epochs": 1, "learning_rate": 0.5}],
        model={"kind": "vbm-mixture"},
    )
    summary = fit(settings, tmp_path)
    losses = {line["epoch"]: line["loss"] for line in records(tmp_path, "validation")}
    assert losses[3] > losses[2]
    assert summary.best_epoch == 2
    model, data = from_pretrained(tmp_path), training_data(settings)
    again = []
    for number, (index, _) in enumerate(data.validation()):
        generator = stream(settings.training.seed, VALIDATE, number)
        x = data.preprocessing(data.held_out.images[index], generator)
        with torch.no_grad():
            again.append(training_loss(model, settings.objective, x, None, generator).loss)
    assert float(torch.stack(again).mean()) == pytest.approx(losses[2], rel=1e-5)


def test_addresses_may_stay_cheap_for_longer():
    """In a warm-up, their KL is weighted by a power of the others' weight; what is reported is not weighted."""
    settings, x = (
        config(),
        training_data(config()).preprocessing(image_set().images[None, :6], torch.Generator().manual_seed(0)),
    )
    model = build_model(dataclasses.replace(settings.model, image_shape=SHAPE)).eval()
    lagging = dataclasses.replace(settings.objective, address_lag=3.0)
    plain, late, full = (
        training_loss(model, objective, x, None, torch.Generator().manual_seed(0), BoundWeights(latent=weight))
        for objective, weight in ((settings.objective, 0.5), (lagging, 0.5), (lagging, 1.0))
    )
    address_kl = plain.values[NAMES.index("address_kl")]
    assert address_kl > 0
    assert float((plain.loss - late.loss).detach()) == pytest.approx((0.5 - 0.5**3) * float(address_kl), rel=1e-3)
    assert torch.equal(plain.values[1:], late.values[1:])
    assert torch.equal(
        full.loss, training_loss(model, settings.objective, x, None, torch.Generator().manual_seed(0)).loss
    )


def test_a_recall_may_draw_its_latents():
    """Of a VAE, a drawn recall of the image itself is its reconstruction."""
    settings = of_kind("vae", objective={"recall_weight": 2.0, "recall_draws": True, "level": 0.0, "bound_weight": 0.0})
    x = training_data(settings).preprocessing(image_set().images[None, :6], torch.Generator().manual_seed(0))
    model = build_model(dataclasses.replace(settings.model, image_shape=SHAPE)).eval()
    state = model.write(x)
    drawn = model.recall_log_prob(state, x, x, torch.Generator().manual_seed(1))
    torch.testing.assert_close(drawn, model.terms(x, generator=torch.Generator().manual_seed(1)).reconstruction)
    plain = dataclasses.replace(settings.objective, recall_draws=False)
    found = [
        training_loss(model, objective, x, None, torch.Generator().manual_seed(2)).loss.detach()
        for objective in (settings.objective, plain)
    ]
    assert found[0] != found[1]
    assert float(found[1]) == pytest.approx(-2 * float(model.recall_log_prob(state, x, x).detach().mean()), rel=1e-5)


def test_the_same_seed_trains_the_same_model_whatever_was_drawn_before(tmp_path):
    settings, one = config(stages=[{"epochs": 1}]), {}
    for name, changes in (("a", []), ("b", []), ("c", ["training.seed=4"])):
        before = torch.random.get_rng_state()
        fit(settings.with_settings(changes), tmp_path / name)
        assert torch.equal(torch.random.get_rng_state(), before)  # the caller's draws are left alone
        torch.rand(3)
        one[name] = load_file(tmp_path / name / "model.safetensors")
    assert all(torch.equal(one["a"][key], one["b"][key]) for key in one["a"])
    assert any(not torch.equal(one["a"][key], one["c"][key]) for key in one["a"])


def test_a_batch_may_be_processed_more_than_once(tmp_path):
    """Each copy has draws of its own: half as many episodes, twice each, is as many frames in a step."""
    for name, changes in (("once", {}), ("twice", {"duplicate": 2})):
        fit(config(data=changes, stages=[{"epochs": 1}]), tmp_path / name)
    once, twice = (records(tmp_path / name, "train")[0] for name in ("once", "twice"))
    assert once["step"] == twice["step"]
    assert once["loss"] != twice["loss"]
    assert once["loss"] == pytest.approx(twice["loss"], rel=0.05)
    assert records(tmp_path / "once")[0]["loss"] == records(tmp_path / "twice")[0]["loss"]  # validation is not doubled


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({"model": {"online_chunks": 2}}, False),
        ({"model": {"sampled_terms": True}}, False),
        ({"training": {"precision": "bf16-mixed"}}, False),
        ({"training": {"precision": "64-true"}}, False),
        ({"data": {"episodes": "ragged", "min_length": 3}}, False),
        ({"data": {"episodes": "classes", "num_classes": 3}}, False),
        ({"training": {"loss_unit": "pixel", "clip_norm": 1e9}}, True),
        ({"training": {"clip_norm": 1e9}}, True),
        ({"training": {"validation_batches": 1}}, True),
    ],
    ids=lambda value: "-".join(f"{k}" for part in value.values() for k in part) if isinstance(value, dict) else "",
)
def test_ways_to_train(changes, same, tmp_path):
    """Each improves and stays finite; those that change nothing but rounding follow the plain curve."""
    summary = fit(config(**changes), tmp_path / "run")
    assert summary.improved
    lines = records(tmp_path / "run")
    assert all(math.isfinite(value) for line in lines for value in line.values() if isinstance(value, float))
    if same:
        fit(config(), tmp_path / "plain")
        for one, other in zip(lines, records(tmp_path / "plain"), strict=True):
            assert one["joint"] == pytest.approx(other["joint"], rel=2e-3)


def test_class_episodes_are_validated_on_new_classes():
    settings = config(data={"episodes": "classes", "num_classes": 3})
    data = training_data(settings)
    assert not set(data.train.labels.tolist()) & set(data.held_out.labels.tolist())
    for index, _ in data.epoch(0, 0):
        assert all(len(set(row.tolist())) == 3 for row in data.train.labels[index])


def test_tensorboard_files(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    fit(config(training={"tensorboard": True}), tmp_path)
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    values = [event.value for event in events.Scalars("validation/joint")]
    assert values == pytest.approx([line["joint"] for line in records(tmp_path, "validation")], rel=1e-6)


# -- schedules -------------------------------------------------------------------------------------


def test_learning_rates_and_warm_up():
    cosine, constant = (config(stages=[{"decay": d, "learning_rate": 0.2}]).stages[0] for d in ("cosine", "constant"))
    assert [learning_rate(cosine, f) for f in (0, 0.5, 1)] == pytest.approx([0.2, 0.1, 0])
    assert {learning_rate(constant, f) for f in (0, 0.5, 1)} == {0.2}
    warm = config(stages=[{"kl_warmup": 4.0}]).stages[0]
    assert [kl_weight(warm, epochs) for epochs in (0, 1, 4, 9)] == [0, 0.25, 1, 1]
    assert kl_weight(constant, 0) == 1


def test_a_cosine_ends_at_rest(tmp_path):
    """Its last steps hardly move: the second half of the epochs changes the loss less than with a constant rate."""
    moves = {}
    for decay in ("cosine", "constant"):
        fit(config(stages=[{"epochs": 8, "learning_rate": 5e-3, "decay": decay, "patience": 0}]), tmp_path / decay)
        losses = [line["loss"] for line in records(tmp_path / decay, "validation")]
        moves[decay] = abs(losses[-1] - losses[-2])
    assert moves["cosine"] < 0.5 * moves["constant"]


def test_a_stage_may_keep_its_last_weights(tmp_path):
    """A stage that loses in the plain bound hands over its last weights, not the best before it."""
    far = {"epochs": 1, "learning_rate": 1.0}
    for keep in ("best", "last"):
        stages = [{"epochs": 1, "learning_rate": 5e-3}, {**far, "keep": keep}]
        summary = fit(config(stages=stages), tmp_path / keep)
        losses = [line["loss"] for line in records(tmp_path / keep, "validation")]
        assert losses[-1] > min(losses)
        assert summary.best_loss == (losses[-1] if keep == "last" else min(losses))


def test_a_model_of_codes_alone_refuses_to_leave_them_out(tmp_path):
    with pytest.raises(ValueError, match="MemoryVAE says everything by its codes"):
        fit(config(stages=[{"epochs": 1, "codes": False}]), tmp_path)


def test_stages_with_patience_and_leftover_epochs(tmp_path):
    """A stage that cannot gain stops after `patience` epochs; the next one gets what it left."""
    stages = [
        {"epochs": 6, "learning_rate": 0.0, "patience": 2},
        {"epochs": 1, "learning_rate": 5e-3, "patience": 0, "leftover": True},
        {"epochs": 1, "learning_rate": 5e-3},
    ]
    out = io.StringIO()
    summary = fit(config(stages=stages), tmp_path, console=Console(file=out), quiet=False)
    assert [line["stage"] for line in records(tmp_path, "train")] == [0, 0, 1, 1, 1, 1, 1, 2]
    assert "stage 1: no gain for 2 epochs" in out.getvalue()
    assert not summary.stopped_early  # all epochs were used in the end
    stages[1]["leftover"] = False
    assert fit(config(stages=stages), tmp_path / "less").stopped_early
    assert [line["stage"] for line in records(tmp_path / "less", "train")] == [0, 0, 1, 2]


def test_a_stage_may_have_its_own_regulariser(tmp_path):
    """It lasts for its stage; afterwards the model has its own again, or none."""
    begin = {"epochs": 6, "learning_rate": 2e-2, "patience": 0}
    plain = {"epochs": 1, "learning_rate": 0.0, "patience": 0}
    strong = {**plain, "regulariser": {"gamma": 0.0, "epsilon": 0.0, "delta": 0.0}}
    model = {"noise_var": 0.05, "num_slots": 1, "code_dim": 8}
    fit(of_kind("vbm-gaussian", model=model, stages=[begin, plain, strong, plain]), tmp_path)
    first, second, third = (line["code_kl"] for line in records(tmp_path, "train")[6:])
    assert second < 0.8 * first  # codes moved onto what the memory expects
    assert third == pytest.approx(first, rel=0.03)


@pytest.mark.parametrize("estimator", ["vimco", "vimco_geometric", "gumbel"])
@pytest.mark.parametrize("episodes", [FEW_SHOT, RECALL], ids=["few_shot", "recall"])
def test_episodes_with_targets(episodes, estimator, tmp_path):
    """By every estimator; that addresses are learned is shown on a smaller case, in the tests of the model."""
    stages = [{"epochs": 2, "learning_rate": 5e-3, "patience": 0}]
    fit(of_kind("vma", data=episodes, objective={"estimator": estimator}, stages=stages), tmp_path)
    first, *_, last = records(tmp_path, "validation")
    assert last["loss"] < first["loss"] - 10
    assert last["memory_kl"] == 0


@pytest.mark.parametrize("kind", ["soft-attention", "vae", "vbm-gaussian"])
def test_other_models_learn_from_such_episodes(kind, tmp_path):
    """Only targets are scored: a loss per target, whoever the model is."""
    settings = of_kind(kind, data=FEW_SHOT, stages=[{"epochs": 4, "learning_rate": 5e-3, "patience": 0}])
    fit(settings, tmp_path)
    first, *_, last = records(tmp_path, "train")
    assert last["loss"] < first["loss"] - 5
    assert first["joint"] == pytest.approx(-first["loss"], rel=1e-5)


def test_importance_samples_of_soft_attention(tmp_path):
    objective = {"estimator": "importance", "num_samples": 3}
    fit(of_kind("soft-attention", objective=objective, stages=[{"epochs": 2, "learning_rate": 5e-3}]), tmp_path)
    assert all(-line["loss"] >= line["joint"] - 0.5 for line in records(tmp_path))


def test_a_learned_memory(tmp_path):
    """It trains with plain episodes, and weight decay leaves it alone."""
    model = {"num_slots": 5, "content_dim": 6, "architecture": "mlp"}
    training = {"weight_decay": 1e3, "weight_decay_form": "l2"}
    for name, decay in (("plain", {}), ("decayed", training)):
        stages = [{"epochs": 4, "learning_rate": 5e-3, "patience": 0}]
        fit(of_kind("vma", model=model, training=decay, stages=stages), tmp_path / name)
    first, *_, last = records(tmp_path / "plain", "validation")
    assert last["joint"] > first["joint"] + 10
    state = torch.load(tmp_path / "decayed" / "state.ckpt", weights_only=True)
    groups = state["optimizer"]["param_groups"]
    assert [group["weight_decay"] for group in groups] == [1e3, 0.0]
    assert [len(group["params"]) for group in groups][1] == 1


# -- when it goes wrong ----------------------------------------------------------------------------


BAD = [(kind, rate) for kind in MODELS for rate in (1e30, math.inf) if (kind, rate) != ("ebmm", 1e30)]
"""Without huge rates for an energy that is bounded, and read within [0, 1]: its numbers stay good."""


@pytest.mark.parametrize(("kind", "rate"), BAD)
def test_numbers_that_go_bad_stop_the_training(kind, rate, tmp_path):
    """One good epoch, then a rate that nothing survives."""
    good = {"epochs": 1, "learning_rate": 1e-3, "patience": 0}
    settings = of_kind(kind, stages=[good, {"epochs": 2, "learning_rate": rate, "patience": 0}])
    with pytest.raises(NonFiniteLoss, match=r"step \d+: .*the last good checkpoint is kept"):
        fit(settings, tmp_path)
    fit(dataclasses.replace(settings, stages=settings.stages[:1]), tmp_path / "good")
    kept, good = (load_file(folder / "model.safetensors") for folder in (tmp_path, tmp_path / "good"))
    assert all(torch.equal(kept[name], good[name]) for name in good)
    state = torch.load(tmp_path / "state.ckpt", weights_only=True)
    assert all(torch.equal(state["model"][name], good[name]) for name in good)
    assert from_pretrained(tmp_path)


def test_a_bad_value_names_its_term_and_step(tmp_path):
    with pytest.raises(NonFiniteLoss, match="step 1: reconstruction is nan"):
        fit(of_kind("vae", stages=[{"learning_rate": 1e30}]), tmp_path / "a")
    one_batch = {"batch_size": 15}  # an epoch ends before the next step could tell
    with pytest.raises(NonFiniteLoss, match="step 1: validation reconstruction is nan"):
        fit(of_kind("vae", data=one_batch, stages=[{"learning_rate": 1e30}]), tmp_path / "b")


def test_a_training_that_never_improves_says_so(tmp_path):
    out = io.StringIO()
    console = Console(file=out, width=200)
    summary = fit(config(stages=[{"epochs": 2, "learning_rate": 0.0}]), tmp_path, console=console, quiet=False)
    assert (summary.improved, summary.best_epoch) == (False, 0)
    assert "training never improved" in out.getvalue()
    assert "learning rate" in out.getvalue()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": {"validation": 0.02}}, r"data.validation: \d+ images are held out, too few for an episode of 6"),
        ({"data": {"validation": 1.5}}, "data.validation: expected a fraction"),
        ({"data": {"episode_length": 20, "batch_size": 1, "validation": 0.1}}, "data.validation: 12 images"),
        ({"data": {"episode_length": 25}}, "expected at least batch_size . length = 4 . 25 = 100 images"),
        ({"data": {"episodes": "classes", "num_classes": 4}}, "expected a divisor of episode_length 6, got 4"),
        ({"data": {"episodes": "ragged", "min_length": 7}}, "min_length: expected at most max_length = 6"),
        ({"data": {"batch_size": 0}}, "data.batch_size: expected at least 1, got 0"),
        ({"training": {"checkpoint_every": 0}}, "training.checkpoint_every: expected at least 1"),
        ({"objective": {"write_fraction": 0.0}}, "objective.write_fraction"),
        ({"objective": {"recall_weight": 1.0, "corruption": "blok"}}, "did you mean 'block'"),
        ({"stages": [{"epochs": -1}]}, "stages.0.epochs: expected at least 0"),
        ({"model": {"num_slots": 0}}, "model.num_slots: expected at least 1"),
        ({"data": {"episodes": "few_shot", "num_classes": 3, "targets": 2}}, "fewer than the 2 images of a class"),
        ({"data": {"episodes": "recall", "targets": 7}}, "at most the episode's 6 items, got 7"),
        ({"objective": {"estimator": "vimco"}}, "MemoryVAE is trained with terms, got vimco"),
        ({"objective": {"num_samples": 4}}, "the terms of the bound are those of one sample, got 4"),
    ],
)
def test_settings_that_do_not_fit(changes, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        fit(config(**changes), tmp_path)


def test_one_sample_is_too_few_for_vimco(tmp_path):
    with pytest.raises(ValueError, match="the baseline of a sample is the bound of the others"):
        fit(of_kind("vma", objective={"num_samples": 1}), tmp_path)
    with pytest.raises(ValueError, match="AddressingModel is trained with vimco or vimco_geometric or gumbel, got"):
        fit(of_kind("vma", objective={"estimator": "terms"}), tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_regulariser_for_a_model_without_one_is_refused_at_once(tmp_path):
    stages = [{"epochs": 1}, {"epochs": 1, "regulariser": {}}]
    with pytest.raises(ValueError, match="VAE has no regulariser"):
        fit(of_kind("vae", stages=stages), tmp_path)
    assert not list(tmp_path.iterdir())


def test_episodes_of_classes_need_labels():
    settings = config(data={"episodes": "classes", "num_classes": 3})
    with pytest.raises(ValueError, match="these images have none"):
        type(training_data(config())).of(settings.data, dataclasses.replace(image_set(), labels=None))


def test_an_occupied_folder_is_refused(tmp_path):
    fit(config(stages=[{"epochs": 1}]), tmp_path)
    with pytest.raises(ValueError, match="there is a run here already; use --resume"):
        fit(config(stages=[{"epochs": 1}]), tmp_path)
    (tmp_path / "state.ckpt").unlink()
    for resume in (False, True):
        with pytest.raises(ValueError, match=r"weights here, and no state.ckpt to resume from"):
            fit(config(stages=[{"epochs": 1}]), tmp_path, resume=resume)


def test_what_cannot_be_resumed(tmp_path):
    settings = config(stages=[{"epochs": 1}])
    fit(settings, tmp_path)
    with pytest.raises(ValueError, match=r"other settings .*training.seed is 3, not 8.*or train into another folder"):
        fit(settings.with_settings(["training.seed=8"]), tmp_path, resume=True)
    whole = (tmp_path / "state.ckpt").read_bytes()
    for cut in (whole[: len(whole) // 2], b"", b"not a checkpoint"):
        (tmp_path / "state.ckpt").write_bytes(cut)
        with pytest.raises(ValueError, match=r"state.ckpt: not a whole checkpoint .*delete it to start over"):
            fit(settings, tmp_path, resume=True)
    state = torch.load(io.BytesIO(whole), weights_only=True)
    torch.save(state | {"version": 99}, tmp_path / "state.ckpt")
    with pytest.raises(ValueError, match="checkpoint version 99"):
        fit(settings, tmp_path, resume=True)
    torch.save(state | {"model": {"other": torch.zeros(2)}}, tmp_path / "state.ckpt")
    with pytest.raises(ValueError, match="weights of another model"):
        fit(settings, tmp_path, resume=True)
    (tmp_path / "state.ckpt").write_bytes(whole)
    (tmp_path / "metrics.jsonl").write_text("")
    with pytest.raises(ValueError, match="shorter than when the checkpoint was written"):
        fit(settings, tmp_path, resume=True)


def test_a_training_does_not_go_on_with_other_images(tmp_path):
    """Nor with the same ones in another order, which would be another training."""
    settings, images = config(stages=[{"epochs": 1}]), image_set()
    fit(settings, tmp_path)
    for other in (image_set(seed=1), images.subset(torch.arange(len(images)).flip(0))):
        with pytest.raises(
            ValueError, match=r"begun with other images than those of patterns .* or train into another"
        ):
            fit(settings, tmp_path, data=TrainingData.of(settings.data, other), resume=True)
    path = tmp_path / "state.ckpt"
    state = torch.load(path, weights_only=True)
    del state["images"]  # as checkpoints of earlier versions are
    torch.save(state, path)
    assert fit(settings, tmp_path, data=TrainingData.of(settings.data, other), resume=True).steps


def test_weights_of_another_model_are_refused(tmp_path):
    fit(config(stages=[{"epochs": 0}]), tmp_path)
    path = tmp_path / "model.safetensors"
    weights = load_file(path)
    save_file({name: torch.cat((t, t)) if t.ndim else t for name, t in weights.items()}, path)
    with pytest.raises(ValueError, match="weights of another model"):
        from_pretrained(tmp_path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match="not a whole safetensors file"):
        from_pretrained(tmp_path)
    path.unlink()
    with pytest.raises(ValueError, match=r"no model\.safetensors"):
        from_pretrained(tmp_path)
