"""Real runs of the commands that train, evaluate, and use a memory of one's own images."""

import json
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import typer
from PIL import Image
from safetensors import safe_open
from typer.testing import CliRunner

from mnemon.cli import app
from mnemon.data import archives, catalog
from mnemon.evaluation.cells import cell_of
from mnemon.evaluation.results import KEYS
from mnemon.pretrained import save_pretrained
from mnemon.registry import build_model
from tests.test_pretrained import make
from tests.training.cases import config, image_set, of_kind, store


def run(*arguments, code=0):
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    crash = done.exception is not None and not isinstance(done.exception, SystemExit)
    assert not crash, repr(done.exception)
    assert done.exit_code == code, done.output
    return done


def refused(*arguments):
    """The message of a command that ends with exit code 2 and prints nothing else."""
    done = run(*arguments, code=2)
    assert done.stderr.startswith("error: "), done.stderr
    assert "Traceback" not in done.output
    return done.stderr


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A tiny run, trained by the command line on an .npz folder."""
    folder = tmp_path_factory.mktemp("commands")
    store(folder)
    preset = folder / "tiny.json"
    preset.write_text(json.dumps(config().as_dict()))
    options = ("--data", folder / "patterns", "--set", "stages.0.epochs=2", "--accelerator", "cpu")
    done = run("train", preset, "--out", folder / "run", *options)
    return folder, done


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """A folder of PNGs of the trained size, one of another size and with colours, and a file that is no image."""
    folder = tmp_path_factory.mktemp("pictures")
    (folder / "good").mkdir()
    for number, image in enumerate(image_set().images[::12, 0].numpy()):
        Image.fromarray(image).save(folder / "good" / f"{number}.png")
    Image.new("RGB", (40, 30), (200, 10, 10)).save(folder / "good" / "large.png")
    (folder / "bad").mkdir()
    (folder / "bad" / "broken.png").write_bytes(b"no image")
    return folder


@pytest.fixture(scope="module")
def memory(trained, pictures):
    path = trained[0] / "memory.safetensors"
    done = run("write", trained[0] / "run", pictures / "good", "-o", path)
    return path, done


# -- train and what is around it -------------------------------------------------------------------


def test_train(trained):
    folder, done = trained
    assert {path.name for path in (folder / "run").iterdir()} == {
        "config.json", "model.safetensors", "metrics.jsonl", "state.ckpt"
    }  # fmt: skip
    assert "epoch 2: joint" in done.stdout
    assert f"{folder / 'run'}: 2 epochs" in done.stdout
    assert "nats/frame" in done.stdout
    values = json.loads((folder / "run" / "config.json").read_text())
    assert values["data"]["name"] == str(folder / "patterns")
    assert values["stages"][0]["epochs"] == 2


def test_train_for_machines_and_again(trained):
    folder, _ = trained
    options = ("--data", folder / "patterns", "--set", "stages.0.epochs=2", "--accelerator", "cpu", "--resume")
    summary = json.loads(run("train", folder / "tiny.json", "--out", folder / "run", *options, "--json").stdout)
    assert (summary["epochs"], summary["folder"], summary["improved"]) == (2, str(folder / "run"), True)
    assert run("train", folder / "tiny.json", "--out", folder / "run", *options, "--quiet").output == ""


def test_a_resumed_run_keeps_the_settings_it_was_begun_with(trained, tmp_path):
    """Its data too: those of the preset are not looked for."""
    folder, _ = trained
    preset = json.loads((folder / "tiny.json").read_text())
    preset["data"]["name"] = "mnist"
    (tmp_path / "tiny.json").write_text(json.dumps(preset))
    shutil.copytree(folder / "run", tmp_path / "run")
    again = ("train", tmp_path / "tiny.json", "--out", tmp_path / "run", "--resume", "--root", tmp_path)
    assert json.loads(run(*again, "--json").stdout)["epochs"] == 2
    assert json.loads(run(*again, "--set", "stages.0.epochs=2", "--json").stdout)["epochs"] == 2
    fresh = ("--data", folder / "patterns", "--set", "stages.0.epochs=1", "--accelerator", "cpu", "--resume")
    assert "nothing to resume here" in run("train", tmp_path / "tiny.json", "--out", tmp_path / "new", *fresh).stdout


def test_what_train_refuses(trained):
    folder, _ = trained
    tiny, out, data = folder / "tiny.json", ("--out", folder / "other"), ("--data", folder / "patterns")
    assert "did you mean 'seed'" in refused("train", tiny, *data, *out, "--set", "training.sed=1")
    assert "expected key=value" in refused("train", tiny, *data, *out, "--set", "training.seed")
    assert "did you mean 'glyphs-mixture'" in refused("train", "glyphs-mixtur", *out)
    assert "no file" in refused("train", "absent.toml", *out)
    assert "expected a preset's name or a .toml file" in refused("train", folder, *out)
    assert "did you mean 'digits'" in refused("train", tiny, "--data", "digit", *out)
    assert "did you mean 'cuda'" in refused("train", tiny, *data, *out, "--accelerator", "cudda")
    assert "use --resume" in refused("train", tiny, *data, "--out", folder / "run")
    again = ("train", tiny, "--out", folder / "run", "--resume")
    assert "stages.0.epochs is 2, not 3" in refused(*again, "--set", "stages.0.epochs=3")
    assert "data.name is " in refused(*again, "--data", "digits")
    assert "expected a run of glyphs-mixture" in refused("train", "glyphs-mixture", *again[2:])
    assert "training.seed: expected at least 0, got -1" in refused(
        "train", tiny, *data, *out, "--set", "training.seed=-1"
    )
    wrong = ("--set", "stages.0.learning_rate=-1")
    assert "stages.0.learning_rate: expected at least 0, got -1" in refused("train", tiny, *data, *out, *wrong)
    assert "divisible by the 3 processes" in refused("train", tiny, *data, *out, "--devices", 3)
    assert not (folder / "other").exists()
    assert str(tiny) in refused("train", tiny, *data, "--out", tiny / "below")
    assert "step 1" in refused("train", tiny, *data, *out, "--set", "stages.0.learning_rate=1e30", "--quiet")


def test_missing_data_name_the_command_that_gets_them(tmp_path):
    message = refused("train", "mnist-vae", "--data", "mnist", "--root", tmp_path, "--out", tmp_path / "run")
    assert f"mnemon data get mnist --root {tmp_path}" in message
    assert str(tmp_path / "mnist" / "train.npz") in message


def test_presets():
    text = run("presets").stdout
    assert "vbm-table2-gaussian" in text
    assert len(json.loads(run("presets", "--json").stdout)) > 20
    one = json.loads(run("presets", "glyphs-mixture").stdout)
    assert set(json.loads(run("presets", "--of", "gmn", "--json").stdout)) == {
        "gmn-fewshot-omniglot",
        "gmn-fewshot-omniglot26",
    }
    assert "did you mean 'omniglot'" in refused("presets", "--of", "omniglott")
    assert (one["name"], one["model"]["kind"]) == ("glyphs-mixture", "vbm-mixture")
    assert "did you mean 'digits-gaussian'" in refused("presets", "digits-gausian")
    for name in ("vma", "omniglot"):
        assert f"is a model or a data set, and no preset; --of {name} lists its presets" in refused("presets", name)
    assert len(refused("presets", "zzz")) < 200  # it does not list them all


def test_data(tmp_path):
    text = run("data", "--root", tmp_path).stdout
    assert re.search(r"glyphs +embedded +1x28x28", text)
    assert f"mnemon data get mnist --root {tmp_path}" in text
    entries = {entry["name"]: entry for entry in json.loads(run("data", "--root", tmp_path, "--json").stdout)}
    assert entries["digits"]["here"] == "embedded"
    assert entries["omniglot"]["here"] == "missing"
    assert "digits, test: " in run("data", "get", "digits").stdout
    assert "cannot be downloaded" in refused("data", "get", "fixed_mnist", "--root", tmp_path)
    assert "did you mean 'omniglot'" in refused("data", "get", "omnigloth")


def test_tables_fit_a_narrow_terminal(trained, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for command in (("presets",), ("eval", trained[0] / "run", "--part", "bounds", "--part", "recall")):
        text = run(*command).stdout
        assert "…" not in text  # nothing is cut off
        assert max(map(len, text.splitlines())) <= 80
    rows = [line for line in text.splitlines() if re.search(r"written +-?\d", line)]
    assert len(rows) == 6 + 2 * 3  # each result starts a line: its numbers are not folded


# -- eval and figures ------------------------------------------------------------------------------


def test_eval(trained, tmp_path):
    folder, out = trained[0], tmp_path / "new" / "results.json"
    parts = ("--part", "bounds", "--part", "recall", "--part", "resize")
    records = json.loads(run("eval", folder / "run", *parts, "--json", "--out", out).stdout)
    assert records == json.loads(out.read_text())
    assert all(tuple(record) == KEYS for record in records)
    assert {record["data"] for record in records} == {"patterns"}
    assert {"bound", "code_kl", "mse_recalled", "error_removed"} <= {record["metric"] for record in records}
    assert any("resized" in (record["note"] or "") for record in records)
    joint = next(r for r in records if (r["metric"], r["bound"]) == ("bound", "joint"))
    lines = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    assert joint["updates"] == lines[-1]["step"]
    assert joint["value"] == pytest.approx(lines[-1]["joint"], abs=60)
    text = run("eval", folder / "run", "--part", "bounds", "--data", folder / "patterns" / "test.npz").stdout
    assert re.search(r"joint bound +written +-\d", text)
    assert "test.npz, test" in text.replace("\n", "")
    assert run("eval", folder / "run", "--part", "bounds", "--quiet").output == ""


@pytest.fixture(scope="module")
def of_glyphs(tmp_path_factory):
    """Fresh weights of a small mixture over the embedded glyphs."""
    folder = tmp_path_factory.mktemp("glyphs") / "run"
    settings = config(data={"name": "glyphs"}, model={"image_shape": (1, 28, 28)})
    save_pretrained(build_model(settings.model).eval(), settings, folder)
    return folder


def test_eval_fewshot(of_glyphs, tmp_path):
    out, drawn = tmp_path / "fewshot.json", tmp_path / "new" / "figures"
    options = ("--samples", 2, "--episodes", 4, "--figures", drawn, "--out", out)
    text = run("eval", of_glyphs, "--part", "fewshot", *options).stdout
    records = json.loads(out.read_text())
    assert all(tuple(record) == KEYS for record in records)
    table = [cell for record in records if (cell := cell_of(record, "table"))]
    assert table == [(c, n) for c in (1, 2, 4, 16) for n in (1, 2, 3, 4, 5, 10)]  # glyphs have twelve of each
    scaling = [cell for record in records if (cell := cell_of(record, "scaling"))]
    assert max(scaling) == (144, 4)
    assert {record["command"].split(" && ")[-1] for record in records} == {
        "mnemon eval runs/tiny --data glyphs --part fewshot --samples 2 --episodes 4"
    }
    assert sorted(path.name for path in drawn.iterdir()) == ["glyphs_breakdown.png", "glyphs_scaling.png"]
    assert f"written: {out}\nwritten: {drawn / 'glyphs_scaling.png'}\n" in text
    assert re.search(r"classes +1 +2 +3 +4 +5 +10 *\n", text)
    assert re.search(r"\n +16 +(-\d\S* +){5}-\d", text)
    assert re.search(r"classes +bound +short of optimal", text)
    assert re.search(r"examples +reconstruction +code kl +address kl", text)
    assert max(map(len, text.partition("written:")[0].splitlines())) <= 80


def test_eval_of_the_validation_split_says_so(of_glyphs, tmp_path):
    """In the records and in the command that makes them again."""
    whole = catalog.load("glyphs", "test")
    for split in ("train", "valid", "test"):
        archives.store(whole, tmp_path / f"{split}.npz")
    options = ("--part", "classification", "--samples", 1, "--episodes", 2, "--json")
    for split, ending in (("valid", " --split valid"), ("test", "")):
        records = json.loads(run("eval", of_glyphs, "--data", tmp_path, "--split", split, *options).stdout)
        assert {record["split"] for record in records} == {split}
        expected = f"mnemon eval runs/tiny --data {tmp_path}{ending} --part classification --samples 1 --episodes 2"
        assert {record["command"].split(" && ")[-1] for record in records} == {expected}
    assert "--split: expected test or valid, got 'train'" in refused("eval", of_glyphs, "--split", "train")


def test_eval_classification(of_glyphs):
    options = ("--part", "classification", "--samples", 1, "--episodes", 20)
    records = json.loads(run("eval", of_glyphs, *options, "--json").stdout)
    tasks = [f"{ways}-way {shots}-shot" for ways in (5, 20) for shots in (1, 5)]
    assert [record["note"].split(",")[0] for record in records] == [task for task in tasks for _ in range(2)]
    pixels = {record["note"].split(",")[0]: record["value"] for record in records if "pixels" in record["note"]}
    assert pixels["5-way 5-shot"] > pixels["20-way 1-shot"] > 0.3  # renderings of one character are alike
    assert "accuracy, pixels" in run("eval", of_glyphs, *options[:2], "--samples", 1, "--episodes", 2).stdout


def test_eval_with_nothing_written(of_glyphs):
    options = ("--part", "prior", "--samples", 3, "--episodes", 5, "--json")
    (record,) = json.loads(run("eval", of_glyphs, *options).stdout)
    assert (record["bound"], record["num_samples"], record["note"]) == ("prior", 3, "nothing written; 5 images")


def test_kanerva_pp_from_training_to_curves(tmp_path):
    """Train, ask what the memory holds, denoise; then all curves from the results files."""
    changes = {"data": {"episodes": "growing", "growth": 1}, "model": {"num_filters": 4}, "name": "tiny-kpp"}
    settings = of_kind("kanerva-pp", **changes)
    preset, data = tmp_path / "kpp.json", store(tmp_path)
    preset.write_text(json.dumps(settings.as_dict()))
    trained = tmp_path / "run"
    run("train", preset, "--out", trained, "--data", data, "--set", "stages.0.epochs=2", "--accelerator", "cpu")
    results, drawn = tmp_path / "results", tmp_path / "drawn"
    options = ("--part", "lengths", "--part", "denoise", "--samples", 1, "--episodes", 2, "--figures", drawn)
    text = run("eval", trained, *options, "--out", results / "kpp.json").stdout
    assert "scored frames encoded together" in " ".join(text.split())
    assert sorted(path.name for path in drawn.iterdir()) == ["patterns_denoising.png", "patterns_reads.png"]
    records = json.loads((results / "kpp.json").read_text())
    assert {record["scored"] for record in records} == {"written", "same_class"}
    done = run("results", results, "--out", tmp_path / "results.md", "--figures", tmp_path / "all")
    assert (tmp_path / "all" / "patterns_denoising.png").stat().st_size > 5000
    assert "patterns_denoising.png" in "".join(done.stdout.split())


def test_what_eval_refuses(trained):
    folder, _ = trained
    assert "did you mean 'novelty'" in refused("eval", folder / "run", "--part", "novelti")
    assert "which is a folder" in refused("eval", folder / "run", "--out", folder)
    assert "add --part fewshot" in refused("eval", folder / "run", "--part", "bounds", "--figures", folder / "drawn")
    assert "did you mean 'fewshot'" in refused("eval", folder / "run", "--part", "few-shot")
    bare = folder / "bare.npz"
    np.savez(bare, images=image_set().images.numpy()[:, 0])
    assert "bare has no labels" in refused("eval", folder / "run", "--part", "classification", "--data", bare)
    assert "did you mean 'mixture-characters'" in refused("eval", "mixture-charakters")
    assert "expected images (1, 22, 22)" in refused("eval", folder / "run", "--data", "digits")
    assert "--device" in refused("eval", folder / "run", "--device", "tpu")
    assert "config.json" in refused("eval", folder)


def test_figures(trained, tmp_path):
    run_folder = trained[0] / "run"
    done = run("figures", run_folder, "--out", tmp_path / "a", "--length", 20, "--clusters", 3)
    files = [tmp_path / "a" / f"{name}.png" for name in ("episode", "samples", "iterative", "one_shot", "memory")]
    assert done.stdout.split() == [str(file) for file in files]
    for file in files:
        assert min(Image.open(file).size) > 20
    assert "at most the 120 test images, got 500" in refused("figures", run_folder, "--length", 500)


# -- write, read, sample, score --------------------------------------------------------------------


def test_write(trained, pictures, memory, tmp_path):
    path, done = memory
    assert f"{path}: 11 images in" in done.stdout
    with safe_open(path, framework="pt") as file:
        assert len(file.metadata()["weights"]) == 32
        assert file.get_tensor("R").shape == (2, 2, 4)
    out = tmp_path / "new" / "m.safetensors"
    options = ("--clusters", 3, "--json")
    report = json.loads(run("write", trained[0] / "run", pictures / "good", "-o", out, *options).stdout)
    assert (report["memory"], report["images"], report["raw_bytes"]) == (str(out), 11, 11 * 22 * 22)
    with safe_open(out, framework="pt") as file:
        assert file.get_tensor("R").shape == (3, 2, 4)
        assert report["bytes"] == sum(file.get_tensor(name).nbytes for name in file.keys())  # noqa: SIM118


def test_writing_on(trained, pictures, memory, tmp_path):
    """More is known afterwards: the counts of a memory that was written on into are those of both writes."""
    run_folder, good = trained[0] / "run", sorted((pictures / "good").iterdir())
    run("write", run_folder, *good[:5], "-o", tmp_path / "first")
    run("write", run_folder, *good[5:], "-o", tmp_path / "both", "--onto", tmp_path / "first", "--quiet")
    gains = {}
    for name in ("first", "both"):
        scores = json.loads(run("score", run_folder, tmp_path / name, *good, "--json", "--samples", 64).stdout)
        gains[name] = {score["file"]: score["gain"] for score in scores}
        assert list(gains[name]) == [str(file) for file in good]
    assert gains["both"] != gains["first"]
    assert "no file" in refused("write", run_folder, *good, "-o", tmp_path / "x", "--onto", tmp_path / "absent")
    assert "got a folder" in refused("write", run_folder, *good, "-o", tmp_path / "x", "--onto", tmp_path)


def test_unreadable_files(trained, pictures, tmp_path):
    arguments = ("write", trained[0] / "run", pictures, "-o", tmp_path / "m")
    message = refused(*arguments)
    assert "1 of 12 files cannot be read as images" in message
    assert "broken.png (no known image format)" in message
    assert "skip them with --skip-unreadable" in message
    assert not (tmp_path / "m").exists()
    done = run(*arguments, "--skip-unreadable", "--json")
    assert json.loads(done.stdout)["images"] == 11
    assert done.stderr.startswith("left out 1 unreadable files: ")
    assert str(pictures / "bad" / "broken.png") in done.stderr
    assert run(*arguments, "--skip-unreadable", "--quiet").output == ""
    assert "broken.png" in refused("write", trained[0] / "run", pictures / "bad", "-o", tmp_path / "m")
    assert "absent" in refused("write", trained[0] / "run", tmp_path / "absent", "-o", tmp_path / "m")


def test_dark_ink_on_paper(trained, memory, pictures, tmp_path):
    """Inverted files with --invert are the files themselves; without, a hint."""
    (tmp_path / "paper").mkdir()
    for file in sorted((pictures / "good").glob("?.png")):
        Image.fromarray(255 - np.asarray(Image.open(file))).save(tmp_path / "paper" / file.name)
    common = (trained[0] / "run", memory[0])
    plain = json.loads(run("score", *common, *sorted((pictures / "good").glob("?.png")), "--json").stdout)
    turned = json.loads(run("score", *common, tmp_path / "paper", "--invert", "--json").stdout)
    assert [s["gain"] for s in plain] == [s["gain"] for s in turned]
    assert "use --invert" in run("score", *common, tmp_path / "paper").stderr


def test_read(trained, memory, pictures, tmp_path):
    common = (trained[0] / "run", memory[0], pictures / "good")
    done = run("read", *common, "-o", tmp_path / "out", "--steps", 2)
    assert f"{tmp_path / 'out'}: 11 recalled images" in done.stdout
    files = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert files == [*(f"{i:03d}-{i}.png" for i in range(10)), "010-large.png", "rows.png"]
    assert Image.open(tmp_path / "out" / "010-large.png").size == (22, 22)  # resized to what the model takes
    halves = json.loads(run("read", *common, "-o", tmp_path / "half", "--observed", "left", "--json").stdout)
    for file, number in zip(halves["files"][:10], range(10), strict=True):
        cue, recalled = (np.asarray(Image.open(f)) for f in (pictures / "good" / f"{number}.png", file))
        assert np.array_equal(cue[:, :11], recalled[:, :11])  # what is trusted stays
        assert not np.array_equal(cue[:, 11:], recalled[:, 11:])
    assert "left, right, top or bottom" in refused("read", *common, "--observed", "middle")


def test_images_that_cannot_be_trained_on(pictures, tmp_path):
    """Remedies are those of the command."""
    told = refused("train", "glyphs-mixture", "--data", pictures, "--out", tmp_path / "run")
    assert "broken.png" in told
    assert told.strip().endswith("Remove them")
    (tmp_path / "sizes").mkdir()
    for side in (8, 9):
        Image.new("L", (side, side)).save(tmp_path / "sizes" / f"{side}.png")
    told = refused("train", "glyphs-mixture", "--data", tmp_path / "sizes", "--out", tmp_path / "run")
    assert "give --set data.image_shape=[C,H,W] to bring all to one size" in told


def test_sample(trained, memory, tmp_path):
    common = (trained[0] / "run", memory[0])
    assert "a.png: 9 images" in run("sample", *common, "-n", 9, "-o", tmp_path / "new" / "a.png").stdout
    assert Image.open(tmp_path / "new" / "a.png").size == (3 * 46 + 2, 3 * 46 + 2)
    assert "ends in .png, got" in refused("sample", *common, "-o", tmp_path / "a.jpg")
    assert "which is a folder" in refused("sample", *common, "-o", tmp_path)
    run("sample", *common, "-n", 9, "-o", tmp_path / "b.png", "--quiet")
    run("sample", *common, "-n", 9, "-o", tmp_path / "c.png", "--seed", 1, "--quiet")
    pixels = {name: np.asarray(Image.open(tmp_path / name)) for name in ("new/a.png", "b.png", "c.png")}
    assert np.array_equal(pixels["new/a.png"], pixels["b.png"])
    assert not np.array_equal(pixels["b.png"], pixels["c.png"])
    report = json.loads(run("sample", *common, "-n", 2, "--steps", 3, "-o", tmp_path / "d.png", "--json").stdout)
    assert report == {"file": str(tmp_path / "d.png"), "images": 2, "steps": 3}


def test_score_prints_a_line_per_image_whatever_its_path(trained, memory, pictures, tmp_path):
    """Long paths are not broken, brackets in names are not markup."""
    folder = tmp_path / ("long" * 30) / "[bold]"
    folder.mkdir(parents=True)
    (folder / "a.png").write_bytes((pictures / "good" / "1.png").read_bytes())
    lines = run("score", trained[0] / "run", memory[0], folder / "a.png", pictures / "good").stdout.splitlines()
    assert len(lines) == 12
    assert re.fullmatch(rf" *-?\d+\.\d\d  {re.escape(str(folder / 'a.png'))}", lines[0])


def test_a_memory_of_another_run_is_refused(trained, memory, pictures):
    for command in (("score", pictures / "good"), ("read", pictures / "good"), ("sample",)):
        name, *rest = command
        assert "written by other weights" in refused(name, "mixture-characters", memory[0], *rest)
    assert "holds tensors, but no memory" in refused(
        "sample", trained[0] / "run", trained[0] / "run" / "model.safetensors"
    )


def test_clusters_are_for_models_that_have_them(tmp_path, pictures):
    save_pretrained(*make("vae"), tmp_path / "vae")
    arguments = ("write", tmp_path / "vae", pictures / "good", "-o", tmp_path / "m")
    assert "vae has no clusters" in refused(*arguments, "--clusters", 3)
    run(*arguments)


# -- the command line as such ----------------------------------------------------------------------


def commands(group, *path):
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, *path, name)
        else:
            yield (*path, name)


@pytest.mark.parametrize("command", list(commands(typer.main.get_command(app))), ids=" ".join)
def test_every_command_has_help_with_an_example(command):
    text = re.sub(r"\s+", " ", run(*command, "--help").stdout)
    assert f"Example: mnemon {' '.join(command)}" in text


def test_as_a_program(trained, memory, pictures, tmp_path):
    """python -m mnemon, as a shell sees it: results on stdout, remarks on stderr."""
    arguments = ("score", trained[0] / "run", memory[0], pictures, "--skip-unreadable", "--json")
    command = [sys.executable, "-m", "mnemon", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)) == 11
    assert re.fullmatch(r"left out 1 unreadable files: .*broken\.png\n", done.stderr)
