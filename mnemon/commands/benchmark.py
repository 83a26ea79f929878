"""mnemon bench memory: every memory on the same data, the same nets, the same questions."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from mnemon.commands.common import (
    Device,
    Json,
    Quiet,
    Root,
    make_console,
    make_folder,
    make_notes,
    pick_device,
    plain_errors,
    print_json,
    say,
)


@plain_errors
def memory(
    data: Annotated[
        list[str] | None, typer.Option(help="Only this data set, of those that --list shows. May be repeated.")
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="Only this model, of those that --list shows. May be repeated.")
    ] = None,
    seed: Annotated[
        list[int] | None,
        typer.Option(help="Only this seed; those of the protocol when absent. May be repeated.", min=0),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Glyphs, small nets, few updates: minutes on two CPU cores.")
    ] = False,
    minutes: Annotated[
        float | None, typer.Option(help="Stop cleanly after so many minutes; the same command goes on.", min=0)
    ] = None,
    workers: Annotated[int, typer.Option(help="Cells that run beside one another on the device.", min=1)] = 1,
    retry: Annotated[bool, typer.Option("--retry", help="Take up again what failed.")] = False,
    prune: Annotated[bool, typer.Option("--prune", help="Delete the weights of cells that are done.")] = False,
    show: Annotated[bool, typer.Option("--list", help="Print the plan and what it costs, and stop.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder of results files; when absent results, or out/memory-quick.")
    ] = None,
    runs: Annotated[
        Path | None,
        typer.Option(help="Folder of trainings and answers; when absent runs/memory, or runs/memory-quick."),
    ] = None,
    root: Root = None,
    device: Device = "auto",
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train and question every model of the registry, and memories that are not trained, under one protocol.

    Writes memory_DATA.json and memory/DATA/MODEL.png into the results folder, of which mnemon results makes a report.
    A cell is one model on one data set with one seed. What is done is kept and skipped: the same command goes on where
    it was stopped, also in the middle of a training. One process at a time works on a folder of --runs.

    Example: mnemon bench memory --quick

    Example: mnemon bench memory --data omniglot --minutes 9 --device cuda
    """
    from mnemon.evaluation.benchmark.grid import checked_status, plan, results_path, run_grid, status
    from mnemon.evaluation.benchmark.material import Place
    from mnemon.evaluation.benchmark.protocol import Protocol

    began = time.monotonic()
    console = make_console(quiet or as_json)
    protocol = Protocol.load(quick)
    place = Place(
        runs=runs or Path("runs/memory-quick" if quick else "runs/memory"),
        out=out or Path("out/memory-quick" if quick else "results"),
        root=root,
        device=pick_device(device),
        workers=workers,
        prune=prune,
    )
    cells = plan(protocol, data or (), model or (), seed or ())
    if show:
        _show_plan([checked_status(cell, protocol, place.runs) for cell in cells], protocol, console, as_json)
        return
    make_folder(place.runs)
    make_folder(place.out)
    until = None if minutes is None else began + 60 * minutes
    try:
        done = run_grid(cells, protocol, place, until=until, retry=retry, say=lambda text: say(console, text))
    except KeyboardInterrupt:
        say(make_notes(quiet), "stopped; what was found is kept, and the same command goes on")
        raise typer.Exit(130) from None
    found = [status(cell, protocol, place.runs) for cell in cells]
    counts = {name: sum(one.state == name for one in found) for name in ("done", "failed", "begun", "waiting")}
    files = [str(results_path(name, protocol, place)) for name in dict.fromkeys(cell.data for cell in cells)]
    if as_json:
        print_json({"complete": done, **counts, "seconds": time.monotonic() - began, "results": files})
        return
    told = ", ".join(f"{number} {name}" for name, number in counts.items() if number)
    say(console, f"cells: {told}; {time.monotonic() - began:.0f} s; results: {', '.join(files)}")
    if not done:
        say(console, "the same command goes on from here")


def _show_plan(found: list[Any], protocol: Any, console: Console, as_json: bool) -> None:
    if as_json:
        print_json([{**vars(one.cell), **vars(one), "cell": str(one.cell)} for one in found])
        return
    for table in _plan_tables(found, protocol):
        console.print(table)


def _plan_tables(found: list[Any], protocol: Any) -> list[Table]:
    """What differs between the models, the state of the cells, and what is left."""
    models = Table(title=f"{protocol.name}: {protocol.updates} updates each", box=box.SIMPLE_HEAD, title_justify="left")
    for heading in ("model", "what it has of its own"):
        models.add_column(heading, no_wrap=heading == "model")
    for kind in dict.fromkeys(one.cell.kind for one in found):
        models.add_row(kind, protocol.differs(kind))
    grid = Table(title="cells", box=box.SIMPLE_HEAD, title_justify="left", caption_justify="left")
    data = list(dict.fromkeys(one.cell.data for one in found))
    grid.add_column("model", no_wrap=True)
    for name in data:
        grid.add_column(name)
    for kind in dict.fromkeys(one.cell.kind for one in found):
        states = {
            name: Counter(one.state for one in found if (one.cell.data, one.cell.kind) == (name, kind)) for name in data
        }
        grid.add_row(kind, *(", ".join(f"{n} {state}" for state, n in states[name].items()) for name in data))
    for what, name in (("updates", "left_updates"), ("else", "left_else")):
        minutes = (sum(getattr(one, name) for one in found if one.cell.data == each) / 60 for each in data)
        grid.add_row(f"minutes: {what}", *(f"{number:.0f}" for number in minutes))
    updates, others = (sum(getattr(one, name) for one in found) / 60 for name in ("left_updates", "left_else"))
    where = "of one data-centre GPU, cells one by one; two CPU cores take longer"
    grid.caption = f"in all about {updates:.0f} minutes of updates and {others:.0f} of all else, {where}"
    return [models, grid]
