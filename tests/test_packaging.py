"""The wheel holds the package, its type marker, presets, trained weights and its licence, and nothing else."""

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_wheel(tmp_path):
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    done = subprocess.run(build, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "mnemon/py.typed" in names
    assert "mnemon/cli.py" in names
    assert "mnemon/presets/vbm-table2-gaussian.toml" in names
    assert "mnemon/zoo/mixture-characters/model.safetensors" in names
    assert all(name.startswith("mnemon") for name in names)
    assert any(name.endswith("LICENSE") for name in names)
