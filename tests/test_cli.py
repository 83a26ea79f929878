"""Real runs of the command line."""

import csv
import json
import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import mnemon
from mnemon.cli import app
from mnemon.evaluation.results import KEYS


def run(*arguments, code=0, cwd=None):
    done = subprocess.run([sys.executable, "-m", "mnemon", *arguments], capture_output=True, text=True, cwd=cwd)
    assert done.returncode == code, done.stderr
    return done


def test_version():
    assert run("--version").stdout.strip() == f"mnemon {mnemon.__version__}"


@pytest.mark.parametrize("command", [(), ("demo",), ("bench",), ("bench", "synthetic")])
def test_every_command_has_help(command):
    text = run(*command, "--help").stdout
    assert "Usage" in text
    if command in (("demo",), ("bench", "synthetic")):
        assert "Example: mnemon" in re.sub(r"\s+", " ", text)


def test_demo_writes_a_report_and_its_numbers(tmp_path):
    out = tmp_path / "new" / "folder"
    numbers = json.loads(run("demo", "--out", str(out), "--episodes", "2", "--json").stdout)
    assert (out / "report.html").stat().st_size > 50_000
    assert numbers["report"] == str(out / "report.html")
    assert numbers["written_images"] == 64
    assert numbers["memory_bytes"] < numbers["image_bytes"]
    assert numbers["half_erased"]["removed"] > 0.2
    assert numbers["same_class"]["auroc"]["value"] > 0.85


def test_demo_prints_for_people(tmp_path):
    text = run("demo", "--out", str(tmp_path), "--episodes", "2").stdout
    assert "images written" in text
    assert "Half-erased characters. Reading removes" in re.sub(r"\s+", " ", text)
    assert "report.html" in text


def test_demo_can_be_silent(tmp_path, monkeypatch):
    monkeypatch.setattr("mnemon.demo.run", lambda *arguments, **options: options["tell"]("working"))
    done = CliRunner().invoke(app, ["demo", "--out", str(tmp_path), "--quiet"])
    assert (done.exit_code, done.output) == (0, "")


def test_bench_synthetic(tmp_path):
    text = run("bench", "synthetic", "--quick", "--out", str(tmp_path)).stdout
    assert "-108.7" in text  # (K, C) = (8, 50), VB: -108.676
    assert "most of the published" in re.sub(r"\s+", " ", text)
    records = json.loads((tmp_path / "synthetic.json").read_text())
    assert all(tuple(record) == KEYS for record in records)
    assert len(records) == 6 * 8
    with open(tmp_path / "synthetic.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["value"]) for row in rows] == [record["value"] for record in records]
    assert (tmp_path / "synthetic.png").stat().st_size > 20_000


def test_an_out_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("in the way")
    error = run("demo", "--out", str(tmp_path / "file" / "below"), code=2).stderr
    assert "cannot make the folder" in error


def test_a_negative_seed():
    assert "--seed" in run("demo", "--seed", "-1", code=2).stderr


def test_unknown_command():
    assert "No such command" in run("remember", code=2).stderr
