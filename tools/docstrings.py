"""The house style of docstrings as Markdown: what Markdown would take for emphasis or run together stays as written."""

from __future__ import annotations

import re

NAMED = re.compile(r"^(?P<names>[\w.]+(?:, [\w.]+)*) {2,}(?P<about>\S.*)$")
"""A line of a list of arguments: names, two spaces or more, what they are."""
SHAPES = re.compile(r"Shapes: (.+)$", re.DOTALL)


def as_markdown(docstring: str) -> str:
    """Paragraph by paragraph: indented ones are code, lists of names become lists, shapes become code."""
    paragraphs = re.split(r"\n\s*\n", docstring.strip("\n"))
    return "\n\n".join(_paragraph(paragraph) for paragraph in paragraphs)


def _paragraph(text: str) -> str:
    lines = text.split("\n")
    if all(line.startswith("    ") for line in lines):
        return text
    if NAMED.match(lines[0]):
        return _names(lines)
    found = SHAPES.search(text)
    if found is None:
        return _escape(text)
    before = _escape(text[: found.start()].rstrip())
    shapes = f"Shapes: `{' '.join(found[1].split())}`" if "`" not in found[1] else _escape(text[found.start() :])
    return f"{before}\n\n{shapes}" if before else shapes


def _names(lines: list[str]) -> str:
    """A list of arguments, whose descriptions may go on over indented lines."""
    items: list[str] = []
    for line in lines:
        match = NAMED.match(line)
        if match:
            items.append(f"- `{match['names']}`: {_escape(match['about'])}")
        else:
            items[-1] += f" {_escape(line.strip())}"
    return "\n".join(items)


def _escape(text: str) -> str:
    """Outside of code between backticks, marks of Markdown are plain characters."""
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([*_<\[\]#|~^])", r"\\\1", part) for part in parts)
