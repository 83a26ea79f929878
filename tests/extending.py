"""The code blocks of docs/extending.md, as files that they say they are."""

import re
import sys
import types
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "extending.md"


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def example():
    """The worked model, as a module; its states are registered once."""
    if "centre" not in sys.modules:
        module = types.ModuleType("centre")
        sys.modules["centre"] = module
        (code,) = blocks("python")
        exec(compile(code, str(PAGE), "exec"), module.__dict__)
    return sys.modules["centre"]
