"""mnemon results: the results pages and the report from the results files."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from mnemon.commands.common import Quiet, check_file, make_console, make_folder, plain_errors, say


@plain_errors
def results(
    folder: Annotated[
        Path, typer.Argument(help="Folder of results files (.json), as mnemon eval and mnemon bench memory write them.")
    ] = Path("results"),
    out: Annotated[
        Path | None, typer.Option(help="Markdown file to write; docs/results.md when no option names a place.")
    ] = None,
    pictures: Annotated[
        Path | None,
        typer.Option(
            "--figures", help="Folder for curves of denoising and capacity, all models together; not drawn when absent."
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", help="HTML file for the report, with everything in it; not made when absent."),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Make pages and a report from results files: our numbers, with the papers' beside them.

    Writes --out, and next to it which_memory.md: what the benchmark of all memories says, in plain words. --html is a
    report with leaderboards, curves and samples, to open in a browser.

    Example: mnemon results results --out docs/results.md --html out/results.html

    Example: mnemon results out/memory-quick --out out/quick.md --html out/quick.html
    """
    from mnemon import report, results_report
    from mnemon.core.state import atomic_path
    from mnemon.evaluation.capacity_pictures import draw_capacity, draw_tradeoff
    from mnemon.evaluation.denoising import draw_denoising
    from mnemon.evaluation.jobs import holds_nothing
    from mnemon.evaluation.tables import read_remarks, read_results, results_page
    from mnemon.evaluation.which_memory import which_memory_page

    if folder.is_file():
        raise ValueError(f"results: expected a folder of results files, got a file, {folder}; name its folder")
    if not folder.is_dir():
        raise ValueError(f"results: no folder {folder}; mnemon eval --out {folder}/NAME.json makes results files")
    records = read_results(folder)
    if not records:
        raise ValueError(
            f"results: expected results files in {folder}, found no record in any; mnemon eval --out "
            f"{folder}/NAME.json and mnemon bench memory make them"
        )
    if out is None and html is None and pictures is None:
        out = Path("docs/results.md")
    if out is not None:
        check_file(out, ".md")
        source = folder.resolve().name
        pages = {
            out: results_page(records, read_remarks(folder), source=source),
            out.with_name("which_memory.md"): which_memory_page(records, holds_nothing, source=source),
        }
        for path, text in pages.items():
            with atomic_path(path) as temporary:
                Path(temporary).write_text(linked(text, [*pages, *out.parent.glob("*.md")]), encoding="utf-8")
            say(make_console(quiet), f"written: {path}, of {len(records)} records")
    if html is not None:
        make_folder(html.parent)
        report.save(results_report.render(records, folder), html)
        say(make_console(quiet), f"written: {html}")
    if pictures is not None:
        make_folder(pictures)
        for draw in (draw_denoising, draw_capacity, draw_tradeoff):
            for path in draw(records, pictures):
                say(make_console(quiet), f"written: {path}")


def linked(text: str, pages: Iterable[Path]) -> str:
    """Without links to pages of the documentation that are not beside this one."""
    there = {path.name for path in pages}

    def link(found: re.Match[str]) -> str:
        return found[0] if found["page"] in there else f"{found['words']} (of mnemon's docs)"

    return re.sub(r"(?<!!)\[(?P<words>[^\[\]]+)\]\((?P<page>[\w-]+\.md)(#[\w-]*)?\)", link, text)
