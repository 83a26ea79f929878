"""mnemon results: the results page from the results files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mnemon.commands.common import Quiet, make_console, make_folder, plain_errors, say


@plain_errors
def results(
    folder: Annotated[Path, typer.Argument(help="Folder of results files.")] = Path("results"),
    out: Annotated[Path, typer.Option(help="Markdown file to write.")] = Path("docs/results.md"),
    pictures: Annotated[
        Path | None,
        typer.Option("--figures", help="Folder for curves of all models together; not drawn when absent."),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Make docs/results.md from results/*.json: our numbers, with the papers' beside them.

    Example: mnemon results results --out docs/results.md
    """
    from mnemon.core.state import atomic_path
    from mnemon.evaluation.capacity_pictures import draw_capacity, draw_tradeoff
    from mnemon.evaluation.denoising import draw_denoising
    from mnemon.evaluation.tables import read_remarks, read_results, results_page

    if not folder.is_dir():
        raise ValueError(f"results: no folder {folder}; mnemon eval --out {folder}/NAME.json makes results files")
    records = read_results(folder)
    make_folder(out.parent)
    with atomic_path(out) as temporary:
        Path(temporary).write_text(results_page(records, read_remarks(folder)), encoding="utf-8")
    make_console(quiet).print(f"{out}: {len(records)} records")
    if pictures is not None:
        make_folder(pictures)
        for draw in (draw_denoising, draw_capacity, draw_tradeoff):
            for path in draw(records, pictures):
                say(make_console(quiet), f"written: {path}")
