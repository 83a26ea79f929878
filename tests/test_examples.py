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


def test_the_readme_code_runs(tmp_path):
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL).group(1)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "memory.safetensors").exists()
