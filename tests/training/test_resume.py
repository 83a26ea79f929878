"""A training that is killed and resumed ends as one that never was: weights, optimiser and metrics bit for bit."""

import io
import time
from multiprocessing import get_context
from signal import SIGKILL

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file
from torch.optim.optimizer import register_optimizer_step_post_hook

from mnemon.training import checkpoint
from tests.beside import process_at
from tests.training.cases import SIZES, config, curve, fit, of_kind, records, training_data

DRAWS = {"write_fraction": 0.5, "recall_weight": 0.5, "corruption": "gaussian", "level": 0.2}
"""An objective that draws all it can."""


def assert_same_run(one, other):
    assert curve(one) == curve(other)
    weights, others = (load_file(folder / "model.safetensors") for folder in (one, other))
    assert weights.keys() == others.keys()
    assert all(torch.equal(weights[name], others[name]) for name in weights)
    states = [torch.load(folder / "state.ckpt", weights_only=True) for folder in (one, other)]
    assert states[0]["progress"] == states[1]["progress"]
    assert all(torch.equal(states[0]["model"][name], states[1]["model"][name]) for name in weights)
    moments = [state["optimizer"]["state"] for state in states]
    assert moments[0].keys() == moments[1].keys()
    for number, kept in moments[0].items():
        assert all(torch.equal(value, moments[1][number][name]) for name, value in kept.items())


class Interrupting(io.StringIO):
    """A terminal at which someone presses Ctrl-C when a text comes up."""

    def __init__(self, text):
        super().__init__()
        self.text = text

    def write(self, text):
        if self.text is not None and self.text in text:
            self.text = None
            raise KeyboardInterrupt
        return super().write(text)


def fit_interrupted(settings, folder, *texts, **options):
    for number, text in enumerate(texts):
        console = Console(file=Interrupting(text), width=200)
        with pytest.raises(KeyboardInterrupt):
            fit(settings, folder, resume=number > 0, console=console, quiet=False, **options)
    return fit(settings, folder, resume=True, **options)


@pytest.mark.parametrize("kind", SIZES)
def test_an_interrupted_training_goes_on_exactly(kind, tmp_path):
    settings = of_kind(kind, objective=DRAWS, data={"binarise": "dynamic"})
    whole = fit(settings, tmp_path / "whole")
    parts = fit_interrupted(settings, tmp_path / "parts", "epoch 1:", "epoch 3:")
    assert_same_run(tmp_path / "whole", tmp_path / "parts")
    assert parts == type(parts)(**{**vars(whole), "folder": parts.folder, "seconds": parts.seconds})


def test_batch_statistics_go_on_exactly(tmp_path):
    settings = of_kind("vbm-gaussian", model={"architecture": "basic"})
    fit(settings, tmp_path / "whole")
    fit_interrupted(settings, tmp_path / "parts", "epoch 1:")
    assert_same_run(tmp_path / "whole", tmp_path / "parts")


def test_stages_go_on_exactly(tmp_path):
    """Interrupted in every stage: the best weights, leftover epochs, a stage's regulariser and its end come back."""
    stages = [
        {"epochs": 3, "learning_rate": 0.0, "patience": 1},
        {"epochs": 1, "learning_rate": 5e-3, "leftover": True, "decay": "cosine", "regulariser": {"gamma": 0.3}},
        {"epochs": 2, "learning_rate": 5e-3, "kl_warmup": 2.0},
    ]
    settings = config(model={"regulariser": {"gamma": 0.6}}, stages=stages)
    fit(settings, tmp_path / "whole")
    fit_interrupted(settings, tmp_path / "parts", "stage 1: no gain", "epoch 3:", "epoch 5:", "epoch 6:")
    assert_same_run(tmp_path / "whole", tmp_path / "parts")
    assert len(records(tmp_path / "parts", "train")) == 6


def test_resuming_what_is_done_changes_nothing(tmp_path):
    settings = config()
    first = fit(settings, tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    again = fit(settings, tmp_path, resume=True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert (again.best_loss, again.steps) == (first.best_loss, first.steps)


def test_resuming_an_empty_folder_begins(tmp_path):
    assert fit(config(stages=[{"epochs": 1}]), tmp_path / "new", resume=True).epochs == 1


def test_killed_before_the_first_weights_were_written(tmp_path):
    settings = config(stages=[{"epochs": 0}])
    fit(settings, tmp_path)
    before = load_file(tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors").unlink()
    fit(settings, tmp_path, resume=True)
    after = load_file(tmp_path / "model.safetensors")
    assert all(torch.equal(after[name], before[name]) for name in before)


def fit_with_a_pause(folder, pause):
    def after_a_step(*_):
        hook.remove()
        pause()

    hook = register_optimizer_step_post_hook(after_a_step)
    fit(config(), folder)


def test_two_trainings_into_one_folder(tmp_path):
    """The second is refused, resumed or not, and the first does not notice."""
    fit(config(), tmp_path / "alone")
    with process_at(fit_with_a_pause, tmp_path / "run") as (_, go_on):
        for resume in (False, True):
            with pytest.raises(ValueError, match=r"run: another process works in this folder; .*\(--out\)"):
                fit(config(), tmp_path / "run", resume=resume)
        assert go_on() == 0
    assert_same_run(tmp_path / "alone", tmp_path / "run")
    assert not (tmp_path / "run" / ".lock").exists()


# -- kill -9 ---------------------------------------------------------------------------------------

LONG = config(
    data={"batch_size": 2},
    objective=DRAWS,
    training={"checkpoint_every": 4, "log_every": 3},
    stages=[{"epochs": 3, "learning_rate": 5e-3, "patience": 0}, {"epochs": 2, "patience": 0}],
)
BATCHES = 22
"""Of each epoch of LONG, with 30 images in each of 12 classes."""


def work(folder):
    torch.set_num_threads(1)
    fit(LONG, folder, data=training_data(LONG, per_class=30), resume=True)


def step_of(folder):
    """Where the last checkpoint stands; -1 without one."""
    path = folder / checkpoint.STATE
    return torch.load(path, weights_only=True)["progress"]["step"] if path.exists() else -1


def test_killed_at_several_moments(tmp_path):
    """A process is killed outright once checkpoints of given steps are there: at the start, within epochs (those come
    every 4 of 22 batches), after epochs; the next process goes on."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["tests.training.test_resume"])
    whole = context.Process(target=work, args=(tmp_path / "whole",))
    whole.start()
    places = []
    for reach in (0, 4, BATCHES, 2 * BATCHES + 7, 4 * BATCHES + 11):
        process = context.Process(target=work, args=(tmp_path / "parts",))
        process.start()
        deadline = time.monotonic() + 60
        while step_of(tmp_path / "parts") < reach:
            assert process.is_alive(), "it ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.001)
        process.kill()
        process.join()
        assert process.exitcode == -SIGKILL
        places.append(step_of(tmp_path / "parts") % BATCHES)
    assert any(places), "it was never killed within an epoch"
    last = context.Process(target=work, args=(tmp_path / "parts",))
    last.start()
    for process in (last, whole):
        process.join()
        assert process.exitcode == 0
    assert records(tmp_path / "whole")[-1]["step"] == 5 * BATCHES
    assert_same_run(tmp_path / "whole", tmp_path / "parts")
