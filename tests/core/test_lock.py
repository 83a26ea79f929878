"""One process at a time in a folder: with real processes, one of which is killed outright."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest

from mnemon.core.lock import sole_process
from tests.beside import process_at

REFUSED = r"runs: another process works in this folder; wait for its end, or take another folder \(--runs\)"


def hold(folder, pause):
    with sole_process(folder, "--runs"):
        pause()


def test_a_second_process_is_refused_until_the_first_is_killed(tmp_path):
    folder = tmp_path / "new" / "runs"
    with process_at(hold, folder) as (first, _):
        with pytest.raises(ValueError, match=REFUSED), sole_process(folder, "--runs"):
            pass
        with sole_process(tmp_path / "others", "--runs"):
            pass
        first.kill()
        first.join()
        assert list(folder.iterdir())  # a killed process tidies nothing up
        with sole_process(folder, "--runs"):
            pass
    assert not list(folder.iterdir())


def test_a_folder_is_free_after_an_error(tmp_path):
    def nested():
        with sole_process(tmp_path / "runs", "--runs"):
            hold(tmp_path / "runs", lambda: None)  # nor twice in one process

    for _ in range(2):
        with pytest.raises(ValueError, match=REFUSED):
            nested()


def test_never_two_at_a_time(tmp_path):
    """Many that come and go: the file of the lock is deleted by one while others are opening it."""
    inside, entered = set(), count()

    def come_and_go(name):
        while next(entered) < 4000:
            try:
                with sole_process(tmp_path, "--runs"):
                    inside.add(name)
                    assert inside == {name}
                    inside.remove(name)
            except ValueError:
                pass

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(come_and_go, "abcd"))
    assert not list(tmp_path.iterdir())


def test_a_deleted_folder_takes_the_lock_with_it(tmp_path):
    """The process that had it leaves the lock of the next one alone."""
    folder = tmp_path / "runs"
    with sole_process(folder, "--runs"):
        (folder / ".lock").unlink()
        with process_at(hold, folder):
            pass  # killed, so that its file stays
        left = (folder / ".lock").stat().st_ino
    assert (folder / ".lock").stat().st_ino == left


def test_systems_without_locks_go_without(tmp_path):
    script = (
        "import sys; from pathlib import Path; sys.modules['fcntl'] = None\n"
        "from mnemon.core.lock import sole_process\n"
        "for number in range(2):\n"
        "    with sole_process(Path(sys.argv[1]), '--runs'), sole_process(Path(sys.argv[1]), '--runs'): pass\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "runs")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not list((tmp_path / "runs").iterdir())
