"""Docstrings as Markdown, for mkdocstrings."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import griffe

sys.path.insert(0, str(Path(__file__).parent.parent))

from tools.docstrings import as_markdown


class HouseStyle(griffe.Extension):
    """Brings every docstring that is read into the form that Markdown needs."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
