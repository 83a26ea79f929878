"""The command line. Every command prints for people; --json prints for machines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, track
from rich.table import Table

import mnemon
from mnemon.commands import benchmark, evaluate, memory, models, results, train
from mnemon.commands.common import Json, Out, Quiet, Seed, make_console, make_folder, plain_errors
from mnemon.core.allocation import keep_freed_memory

app = typer.Typer(
    help="Generative memories: write a few examples in one pass; recall, generate and score from them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
bench = typer.Typer(help="Benchmarks that write results files.", no_args_is_help=True)
app.add_typer(bench, name="bench")
bench.command(name="memory")(benchmark.memory)
app.command()(train.train)
app.command(name="eval")(evaluate.evaluate)
app.command()(evaluate.figures)
app.command()(memory.write)
app.command()(memory.read)
app.command()(memory.sample)
app.command()(memory.score)
app.command()(models.models)
app.command()(train.presets)
app.command()(results.results)
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
    keep_freed_memory()


@app.command()
@plain_errors
def demo(
    out: Out = Path("out/demo"),
    episodes: Annotated[
        int, typer.Option(help="Episodes that the likelihoods are averaged over; fewer are quicker.", min=2)
    ] = 16,
    seed: Seed = 0,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Write a memory of 64 characters that the shipped model never saw; recall, complete, generate and score from it.

    Needs no download. Writes report.html, one page with everything in it.

    Example: mnemon demo --out out/demo
    """
    from mnemon import demo as characters
    from mnemon.demo_page import comparison, key_numbers, removal

    console = make_console(quiet or as_json)
    make_folder(out)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("starting", total=characters.STEPS)
        begun = iter(range(characters.STEPS))
        numbers = characters.run(
            out,
            seed,
            episodes=episodes,
            tell=lambda what: progress.update(task, description=what, completed=next(begun)),
        )
    path = out / "report.html"
    if as_json:
        typer.echo(json.dumps(numbers.as_dict() | {"report": str(path)}))
        return
    if quiet:
        return
    table = Table(box=box.SIMPLE, show_header=False)
    table.add_column(justify="right", style="bold")
    for value, what in key_numbers(numbers):
        table.add_row(value, what)
    console.print(table)
    console.print(f"Noisy characters. {removal(numbers.noisy)}.")
    console.print(f"Half-erased characters. {removal(numbers.half_erased)}.")
    console.print(comparison(numbers.same_class))
    console.print(f"report: {path}", soft_wrap=True)


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
