"""Real runs of mnemon bench memory."""

import json
import signal
import subprocess
import sys

from typer.testing import CliRunner

from mnemon.cli import app
from mnemon.evaluation.benchmark.grid import plan, run_grid
from mnemon.evaluation.benchmark.material import Place
from mnemon.evaluation.benchmark.protocol import Protocol
from mnemon.evaluation.questions import BY_NAME, read_note
from mnemon.registry import MODELS
from tests.beside import process_at


def run(*arguments, code=0):
    done = CliRunner().invoke(app, ["bench", "memory", *arguments])
    assert done.exit_code == code, done.output
    return done


def test_the_plan_is_printed_with_its_cost(tmp_path):
    text = run("--list", "--runs", str(tmp_path)).stdout
    for kind in MODELS:
        assert kind in text
    assert "minutes of updates" in " ".join(text.split())
    cells = json.loads(run("--list", "--json", "--data", "glyphs", "--runs", str(tmp_path)).stdout)
    assert {cell["state"] for cell in cells} == {"waiting"}
    assert {cell["kind"] for cell in cells} >= set(MODELS)
    assert "--seed" in run("--list", "--seed", "-1", code=2).stderr


def test_a_quick_run_side_by_side_and_then_nothing_left_to_do(tmp_path):
    options = ("--quick", "--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "out"))
    both = (*options, "--model", "copy", "--model", "slots")
    assert "2 done" in run(*both, "--workers", "2").stdout
    records = json.loads((tmp_path / "out" / "memory_glyphs_quick.json").read_text())
    for kind in ("copy", "slots"):
        mine = [record for record in records if record["model"] == kind]
        assert {read_note(record["note"]).question for record in mine} == set(BY_NAME)
        assert not any(read_note(record["note"]).outcome == "failed" for record in mine)
    # no time at all is enough for what is done, and for nothing else
    waiting = json.loads(run(*both, "--model", "modern-hopfield", "--json", "--minutes", "0").stdout)
    assert (waiting["complete"], waiting["done"], waiting["waiting"]) == (False, 2, 1)


def one_cell(runs, out, pause):
    """What the command does, up to where it says that its cell is asked all but times."""
    protocol = Protocol.load(quick=True)
    place = Place(runs, out, None, "cpu")
    run_grid(plan(protocol, kinds=("copy",)), protocol, place, say=lambda text: pause())


def test_two_on_the_same_runs(tmp_path):
    """The second is refused and leaves no trace; when the first is killed, it goes on where that was."""
    runs, out = tmp_path / "runs", tmp_path / "out"
    options = ("--quick", "--runs", str(runs), "--out", str(out), "--model", "copy")
    with process_at(one_cell, runs, out) as (first, _):
        before = {path: path.stat().st_mtime_ns for path in runs.rglob("*")}
        assert f"{runs}: another process works in this folder" in run(*options, code=2).stderr
        assert {path: path.stat().st_mtime_ns for path in runs.rglob("*")} == before
        assert "1 begun" in run(*options, "--list").stdout  # looking is free
        first.kill()
        first.join()
        assert not list(out.glob("*.json"))
        assert "1 done" in run(*options).stdout
    assert list(out.glob("*.json"))


def test_control_c_says_that_the_same_command_goes_on(tmp_path):
    options = ("--quick", "--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "out"), "--device", "cpu")
    command = [sys.executable, "-m", "mnemon", "bench", "memory", *options, "--model", "vae", "--model", "dkm"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert "vae" in process.stdout.readline()  # the first cell is asked, and the other one is worked on
        process.send_signal(signal.SIGINT)
        _, told = process.communicate()
    assert process.returncode == 130
    assert told.splitlines()[-1] == "stopped; what was found is kept, and the same command goes on"
    assert "times of 1 cell" in run(*options, "--model", "vae").stdout  # nothing else is left of the first


def test_a_data_set_that_the_quick_form_does_not_have(tmp_path):
    told = run("--quick", "--data", "cifar10", "--runs", str(tmp_path), code=2).stderr
    assert "'cifar10' is not in memory-quick; expected one of glyphs" in told


def test_the_quick_plan_says_what_the_quick_form_has(tmp_path):
    text = run("--quick", "--list", "--runs", str(tmp_path)).stdout
    assert "context of 64 numbers" in text
    assert "512" not in text


def test_a_model_that_is_not_there(tmp_path):
    assert "did you mean 'vbm-mixture'" in run("--model", "vbm-mixtur", "--runs", str(tmp_path), code=2).stderr
