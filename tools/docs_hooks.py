"""Hooks of mkdocs: the README as front page, pictures from results/, and an API page for every package.

Nothing is listed by hand: packages and modules are found in the tree, docstrings by mkdocstrings, which reads the
source without importing it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "mnemon"
sys.path.insert(0, str(ROOT))


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The API pages in the navigation."""
    pages = [{title: f"api/{name}.md"} for name, title in _packages().items()]
    config.nav = [*(config.nav or []), {"API reference": pages}]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Pages and pictures that are not in docs/ themselves."""
    files.append(File.generated(config, "index.md", content=_front_page()))
    for name, title in _packages().items():
        files.append(File.generated(config, f"api/{name}.md", content=_api_page(name, title)))
    for path in (*ROOT.glob("results/**/*.png"), *ROOT.glob("examples/*.py"), *PACKAGE.glob("zoo/*/README.md")):
        place = path.relative_to(ROOT).as_posix().replace("README.md", "card.md")
        files.append(File.generated(config, place, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Pictures and examples are beside the pages on the site, and above them in the tree."""
    return markdown.replace("](../results/", "](results/").replace("](../examples/", "](examples/")


def on_page_content(html: str, **_: Any) -> str:
    """A number and its interval stay on one line."""
    return html.replace(" ± ", "&nbsp;±&nbsp;")


def _front_page() -> str:
    text = (ROOT / "README.md").read_text(encoding="utf-8").replace("](docs/", "](").replace("/README.md)", "/card.md)")
    return re.sub(r"\]\((LICENSE|CHANGELOG\.md|Makefile)\)", "]", text)


def _packages() -> dict[str, str]:
    """Names of API pages and what they are called: the package itself, then each package in it."""
    inner = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py") if _modules(path.parent))
    return {"mnemon": "mnemon", **{name: f"mnemon.{name}" for name in inner}}


def _modules(folder: Path) -> list[str]:
    """The modules of a package, in alphabetical order."""
    found = sorted(path for path in folder.rglob("*.py") if folder != PACKAGE or path.parent == PACKAGE)
    names = [path for path in found if path.name not in ("__init__.py", "__main__.py")]
    return [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in names]


def _api_page(name: str, title: str) -> str:
    folder = PACKAGE if name == "mnemon" else PACKAGE / name
    about = f"::: {title}\n    options:\n      members: false\n      show_root_heading: false\n"
    return f"# {title}\n\n{about}\n" + "\n\n".join(f"::: {module}" for module in _modules(folder)) + "\n"
