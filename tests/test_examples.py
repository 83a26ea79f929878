"""The examples run, and print what they promise."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.name)
def test_example_runs(path, tmp_path):
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for before, after in re.findall(r"error ([\d.]+) -> ([\d.]+)", done.stdout):
        assert float(after) < float(before)


def test_first_example_is_short_enough_to_read():
    lines = (ROOT / "examples" / "01_write_read.py").read_text().splitlines()
    assert len(lines) <= 60


def python_blocks(page):
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


@pytest.mark.parametrize("page", ["README.md", "docs/memories.md"])
def test_the_code_of_a_page_runs(page, tmp_path):
    (code,) = python_blocks(page)
    assert len(code.splitlines()) <= 12
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "memory.safetensors").exists()


DATASET = """
import torch
images = (torch.rand(300, 1, 28, 28, generator=torch.Generator().manual_seed(0)) < 0.2).float()
my_dataset = torch.utils.data.TensorDataset(images)
"""


def test_training_on_a_dataset_of_ones_own(tmp_path):
    (code,) = python_blocks("docs/data.md")
    done = subprocess.run([sys.executable, "-c", DATASET + code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs" / "mine" / "model.safetensors").exists()
