"""Where data sets made or fetched once are kept."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """The folder named by MNEMON_CACHE, else XDG_CACHE_HOME/mnemon, else ~/.cache/mnemon; it need not exist."""
    chosen = os.environ.get("MNEMON_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache") / "mnemon"
