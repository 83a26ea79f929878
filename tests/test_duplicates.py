"""No six lines stand twice in the tree, but for imports and the heads of functions, which a protocol asks for."""

import ast
import re

import pytest

from tests.test_examples import ROOT

LINES = 6
FOLDERS = ("mnemon", "tests", "benchmarks", "examples")


def skipped(tree):
    """Numbers of the lines of imports and of functions' heads."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from range(node.lineno, (node.end_lineno or node.lineno) + 1)
        elif isinstance(node, ast.FunctionDef):
            yield from range(node.lineno, node.body[0].lineno)


def telling(text):
    """Lines with their numbers, without those that are skipped, empty, comments or mere punctuation."""
    left_out = set(skipped(ast.parse(text)))
    for number, line in enumerate(text.splitlines(), 1):
        folded = " ".join(re.sub(r"#.*", "", line).split())
        if number not in left_out and re.search(r"\w", folded):
            yield number, folded


def repeated(texts):
    """Places whose six lines stand in another place as well."""
    seen = {}
    for name, text in texts.items():
        lines = list(telling(text))
        for start in range(len(lines) - LINES + 1):
            some = lines[start : start + LINES]
            seen.setdefault(tuple(line for _, line in some), []).append(f"{name}:{some[0][0]}")
    return [places for places in seen.values() if len(places) > 1]


def test_no_six_lines_twice():
    texts = {
        str(path.relative_to(ROOT)): path.read_text() for folder in FOLDERS for path in ROOT.glob(f"{folder}/**/*.py")
    }
    assert len(texts) > 200
    assert repeated(texts) == []


@pytest.mark.parametrize(("lines", "found"), [(6, True), (5, False)])
def test_a_copy_is_found(lines, found):
    copied = "\n".join(f"    a{number} = {number}" for number in range(lines))
    texts = {name: f"def {name}(x):\n{copied}\n    return {name}" for name in ("one", "other")}
    assert bool(repeated(texts)) is found
    heads = "def one(\n    a,\n    b,\n    c,\n    d,\n    e,\n    f,\n):\n    return 1\n"
    assert not repeated({"one": heads, "other": heads.replace("1", "2")})
