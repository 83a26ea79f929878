"""The command line. Every command prints for people; --json prints for machines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.progress import track
from rich.table import Table

import mnemon
from mnemon.commands import evaluate, memory, train
from mnemon.commands.common import Json, Out, Quiet, Seed, make_console, make_folder

app = typer.Typer(
    help="Generative memories: write a few examples in one pass; recall, generate and score from them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
bench = typer.Typer(help="Benchmarks that write results files.", no_args_is_help=True)
app.add_typer(bench, name="bench")
app.command()(train.train)
app.command(name="eval")(evaluate.evaluate)
app.command()(evaluate.figures)
app.command()(memory.write)
app.command()(memory.read)
app.command()(memory.sample)
app.command()(memory.score)
app.command()(train.presets)
app.add_typer(train.data_app, name="data")


def _version(show: bool) -> None:
    if show:
        typer.echo(f"mnemon {mnemon.__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Generative memories: write a few examples in one pass; recall, generate and score from them."""


@app.command()
def demo(out: Out = Path("out/demo"), seed: Seed = 0, quiet: Quiet = False, as_json: Json = False) -> None:
    """Write one memory from sixty handwritten digits; recall, complete, generate and score from it.

    Needs no download: the digits come with scikit-learn. Writes demo.png.

    Example: mnemon demo --out out/demo
    """
    from mnemon import demo as digits_demo

    console = make_console(quiet or as_json)
    make_folder(out)
    with console.status("choosing the variances and writing the memory"):
        report = digits_demo.run(out, seed)
    if as_json:
        typer.echo(json.dumps(report.as_dict() | {"figure": str(out / "demo.png")}))
        return
    table = Table(title=f"One memory of {report.written_items} digits of six classes: squared error per pixel")
    for heading in ("", "noisy cue", "recalled", "half erased", "completed"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, recall in (("written digits", report.written), ("new digits, same classes", report.same_classes)):
        errors = (recall.noisy, recall.denoised, recall.half_erased, recall.completed)
        table.add_row(name, *(f"{error:.4f}" for error in errors))
    console.print(table)
    console.print(
        f"Told from classes never written, by log p(x | memory): AUROC {report.auroc_written:.3f} for written digits, "
        f"{report.auroc_same_classes:.3f} for new ones of their classes "
        f"(distance to the nearest written digit: {report.auroc_same_classes_nearest_neighbour:.3f})."
    )
    console.print(
        f"Memory {report.memory_bytes:,} bytes, raw digits {report.image_bytes:,}; written in {report.write_ms:.0f} ms "
        f"(50 sweeps), read in {report.read_us_per_item:.1f} us per digit."
    )
    console.print(f"figure: {out / 'demo.png'}")


@bench.command()
def synthetic(
    out: Out = Path("out/synthetic"),
    quick: Annotated[bool, typer.Option("--quick", help="Only a corner of the grid: K up to 32, C up to 100.")] = False,
    seed: Seed = 0,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Figure 2 of the VBM paper: variational Bayes against the Dynamic Kanerva Machine on synthetic episodes.

    Writes synthetic.json, synthetic.csv and synthetic.png.

    Example: mnemon bench synthetic --quick --out out/synthetic
    """
    from mnemon import plots
    from mnemon.evaluation import results
    from mnemon.evaluation import synthetic as grid

    console = make_console(quiet or as_json)
    make_folder(out)
    slots, dims = (grid.QUICK_SLOTS, grid.QUICK_CODE_DIMS) if quick else (grid.SLOTS, grid.CODE_DIMS)
    cells = track(
        grid.score_grid(slots, dims, seed),
        "inferring",
        len(slots) * len(dims),
        console=console,
        disable=quiet or as_json,
    )
    scores = [score for cell in cells for score in cell]
    command = f"mnemon bench synthetic --seed {seed}" + (" --quick" if quick else "")
    records = grid.as_records(scores, seed, command, results.current_commit())
    results.write_json(out / "synthetic.json", records)
    results.write_csv(out / "synthetic.csv", records)
    panels = {
        name.replace(", ", ", variance "): grid.ratios(scores, name) for name in grid.METHODS if name.startswith("DKM")
    }
    figure = plots.heatmaps(
        panels,
        columns=3,
        title="Negative joint bound of the DKM over that of VB (50 sweeps); above 1, VB is better",
        note="address variance of the DKM: fixed 0.3 (published), fixed 0.09, or the best scalar; T = 32, noise 1",
    )
    plots.save(figure, out / "synthetic.png")
    if as_json:
        typer.echo(json.dumps({"conclusion": grid.conclusion(scores), "records": records}))
        return
    console.print(_bounds_table(scores))
    console.print(grid.conclusion(scores))
    console.print(f"written: {out / 'synthetic.json'}, .csv, .png")


def _bounds_table(scores: Any) -> Table:
    from mnemon.evaluation import synthetic as grid

    table = Table(title="Joint bound per frame, nats (higher is better)", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("K", justify="right")
    table.add_column("C", justify="right")
    for method in grid.METHODS:
        table.add_column(method.replace(",", "").replace("converged", "conv.").replace(" ", "\n"), justify="right")
    values = {(s.num_slots, s.code_dim, s.method): s.value for s in scores}
    for num_slots, code_dim in dict.fromkeys((s.num_slots, s.code_dim) for s in scores):
        bounds = [values[num_slots, code_dim, method] for method in grid.METHODS]
        row = [f"{bound:.{1 if bound > -1000 else 0}f}" for bound in bounds]
        table.add_row(str(num_slots), str(code_dim), *row)
    return table
