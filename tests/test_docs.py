"""The pages: links lead somewhere, commands exist, and the site's form of a docstring says what the docstring says."""

import re
import shlex

import pytest
import typer
from typer.testing import CliRunner

from mnemon import presets
from mnemon.cli import app
from mnemon.pretrained import zoo_names
from mnemon.registry import MODELS
from tests.test_examples import ROOT
from tools.docstrings import as_markdown

PAGES = ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]


def text_of(page):
    return (ROOT / page).read_text(encoding="utf-8")


def anchors(page):
    """What headings are called in links."""
    heads = re.findall(r"^#+ (.+)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    prose = re.sub(r"```.*?```", "", text_of(page), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", prose):
        if re.match(r"https?://", link):
            continue
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target.resolve().relative_to(ROOT).as_posix()), link


def test_every_page_is_in_the_navigation():
    site = text_of("mkdocs.yml")
    assert set(re.findall(r": (\w+\.md)$", site, re.MULTILINE)) == {
        "index.md", *(page.removeprefix("docs/") for page in PAGES if page.startswith("docs/"))
    }  # fmt: skip


def test_every_model_is_in_the_readme():
    section = text_of("README.md").split("## The models")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    assert {name for row in rows for name in re.findall(r"`([\w-]+)`", row)} == set(MODELS)


def commands_of(page):
    for block in re.findall(r"```sh\n(.*?)```", text_of(page), re.DOTALL):
        for line in block.splitlines():
            for part in line.split("&&"):
                words = shlex.split(part, comments=True)
                if words and words[0] == "mnemon":
                    yield words[1:]


@pytest.mark.parametrize("page", PAGES)
def test_commands_exist_with_their_options_and_presets(page):
    known = typer.main.get_command(app)
    for words in commands_of(page):
        command = known
        rest = list(words)
        while rest and hasattr(command, "commands"):
            if rest[0] not in command.commands:
                break
            command = command.commands[rest.pop(0)]
        assert command is not known, words
        options = {option for parameter in command.params for option in parameter.opts}
        assert {word.partition("=")[0] for word in rest if word.startswith("-") and word != "-"} <= options, words
        if words[0] == "train" and not words[1].endswith(".toml"):
            assert words[1] in presets.names(), words
        if words[0] in ("write", "read", "sample", "score") and not words[1].startswith("runs/"):
            assert words[1] in zoo_names(), words


def test_shapes_and_stars_stay_as_written():
    shown = as_markdown("Recall cues. Shapes: (*B, Q, *X) -> (*B, Q, *X)")
    assert shown == "Recall cues.\n\nShapes: `(*B, Q, *X) -> (*B, Q, *X)`"
    assert as_markdown("q(z_t) of *B episodes, see `a_b*c`.") == r"q(z\_t) of \*B episodes, see `a_b*c`."


def test_lists_of_arguments_become_lists():
    shown = as_markdown(
        "A model.\n\ncodec        made of nets\nmask, weights  which items,\n             and how often\n\n    z = M'w"
    )
    assert shown.split("\n") == [
        "A model.", "", "- `codec`: made of nets", "- `mask, weights`: which items, and how often", "", "    z = M'w",
    ]  # fmt: skip


def test_pages_of_results_are_those_that_the_command_makes(tmp_path):
    (tmp_path / "benchmark.md").touch()  # what they link to is beside them
    done = CliRunner().invoke(app, ["results", str(ROOT / "results"), "--out", str(tmp_path / "results.md"), "--quiet"])
    assert done.exit_code == 0, done.output
    for page in ("results.md", "which_memory.md"):
        assert (tmp_path / page).read_text(encoding="utf-8") == text_of(f"docs/{page}"), f"{page}: run mnemon results"
