"""A folder for one process at a time."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: folders are not kept apart there
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"


@contextlib.contextmanager
def sole_process(folder: Path, option: str, *, wait: bool = False) -> Iterator[None]:
    """Keep every other process out of `folder`, which is made if absent, until the block ends; refused where one is in,
    or begun after its end with `wait`.

    The lock belongs to an open file, so that the system releases it however the process ends; a file that is left is
    taken over. Processes that this one spawns do not hold it, those that it forks do. Systems and file systems without
    such locks go without.

    option: of the command line that names another folder
    """
    folder.mkdir(parents=True, exist_ok=True)
    if fcntl is None:
        yield
        return
    path = folder / LOCK
    file = _lock(path, option, wait)
    try:
        yield
    finally:
        try:
            if _is_at(path, file):
                path.unlink(missing_ok=True)  # still locked: who has opened it meanwhile will find that it is gone
        finally:
            os.close(file)


def _lock(path: Path, option: str, wait: bool) -> int:
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            os.close(file)
            raise ValueError(
                f"{path.parent}: another process works in this folder; wait for its end, or take another folder "
                f"({option})"
            ) from None
        except OSError:  # a file system without locks
            return file
        if _is_at(path, file):
            return file
        os.close(file)  # it was deleted between the two calls, by a process that ended


def _is_at(path: Path, file: int) -> bool:
    """Whether a path still names an open file."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file))
    except FileNotFoundError:
        return False
