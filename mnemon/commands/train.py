"""mnemon train, mnemon presets, mnemon data."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Table

from mnemon.commands.common import Json, Quiet, Root, make_console, plain_errors, print_json, say

data_app = typer.Typer(help="Data sets: what there is, and getting it.", invoke_without_command=True)


@plain_errors
def train(
    preset: Annotated[str, typer.Argument(help="Name of a preset (mnemon presets lists them), or a .toml file.")],
    out: Annotated[Path | None, typer.Option(help="Run folder; runs/PRESET when absent.")] = None,
    data: Annotated[
        str | None, typer.Option(help="Other images: a data set's name, an .npz file, or a folder of images.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Change a setting, of those that mnemon presets PRESET shows: training.seed=1. May be repeated.",
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on where a killed or stopped run was, with the settings it was begun with."),
    ] = False,
    root: Root = None,
    accelerator: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    devices: Annotated[int, typer.Option(help="Processes on this machine, one GPU or CPU share each.", min=1)] = 1,
    num_nodes: Annotated[int, typer.Option(help="Machines; use torchrun to start them.", min=1)] = 1,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train a model from a preset into a run folder.

    The folder then holds config.json, model.safetensors (best by validation), metrics.jsonl and state.ckpt. Next:
    mnemon eval and mnemon figures take it.

    Example: mnemon train glyphs-mixture --out runs/glyphs --set stages.0.epochs=3
    """
    from mnemon import presets
    from mnemon.training import checkpoint
    from mnemon.training.loop import train as run_training
    from mnemon.training.setup import is_first_process

    config = presets.load(preset)
    folder = out or Path("runs") / config.name
    console = make_console(quiet or as_json)
    begun = checkpoint.begun_config(folder, config.name) if resume else None
    config = begun or config  # a run keeps the settings that it was begun with, without their being told again
    if data is not None:
        config = dataclasses.replace(config, data=dataclasses.replace(config.data, name=data, extra=()))
    config = config.with_settings(settings or [])
    if begun is not None:
        checkpoint.check_same(folder, config, begun)  # before data are looked for that it does not need
    elif resume and is_first_process():
        say(console, f"{folder}: nothing to resume here; this run begins")
    summary = run_training(
        config, folder, root=root, resume=resume, accelerator=accelerator, devices=devices, num_nodes=num_nodes,
        console=console, quiet=quiet or as_json,
    )  # fmt: skip
    if not is_first_process():
        return
    if as_json:
        print_json({**vars(summary), "folder": str(summary.folder)})
        return
    has_bound = "reconstruction" in checkpoint.read_metrics(summary.folder)[-1]
    loss = f"{summary.best_loss:.3f} nats/frame" if has_bound else f"{summary.best_loss:.5f}"
    say(
        console,
        f"{summary.folder}: {summary.epochs} epochs, {summary.steps} updates in {summary.seconds:.0f} s; "
        f"best validation loss {loss} after epoch {summary.best_epoch}",
    )


@plain_errors
def presets(
    name: Annotated[str | None, typer.Argument(help="Show this preset in full.")] = None,
    of: Annotated[str | None, typer.Option(help="Only those of this model or data set.")] = None,
    as_json: Json = False,
) -> None:
    """List the presets, or those of a model or a data set, or show one.

    Example: mnemon presets vbm-table2-gaussian

    Example: mnemon presets --of omniglot
    """
    from mnemon import presets as library
    from mnemon.training.config import nearest

    if name in library.names() or Path(name or "").suffix:
        print_json(library.load(str(name)).as_dict(), indent=1)
        return
    found = {preset: library.load(preset) for preset in library.names()}
    about = {preset: (config.model.kind, config.data.name, *config.data.extra) for preset, config in found.items()}
    if name is not None:
        if any(name in words for words in about.values()):
            raise ValueError(f"presets: {name} is a model or a data set, and no preset; --of {name} lists its presets")
        library.load(name)  # which refuses it
    if of is not None:
        found = {preset: config for preset, config in found.items() if of in about[preset]}
        if not found:
            known = sorted({word for words in about.values() for word in words})
            raise ValueError(f"--of: no preset of a model or data set {of!r}{nearest(of, known)}")
    if as_json:
        print_json({preset: config.as_dict() for preset, config in found.items()})
        return
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("preset", "what it trains"):
        table.add_column(heading, no_wrap=heading == "preset")
    for preset, config in found.items():
        table.add_row(preset, config.description)
    make_console(False).print(table)


@data_app.callback()
@plain_errors
def data(context: typer.Context, root: Root = None, as_json: Json = False) -> None:
    """List the data sets: which are embedded, which are here, and how to get the others.

    Example: mnemon data
    """
    from mnemon.data import catalog

    if context.invoked_subcommand is not None:
        return
    found = catalog.describe(root)
    if as_json:
        print_json(found)
        return
    console = make_console(False)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("name", "here", "images", "about"):
        table.add_column(heading, no_wrap=heading != "about")
    for entry in found:
        shape = "x".join(map(str, entry["image_shape"]))
        table.add_row(entry["name"], entry["here"], shape, f"{entry['about']} ({entry['source']})")
    console.print(table)
    for entry in found:
        if entry["here"] != "embedded":
            say(console, f"{entry['name']}: {entry['where']}")


@data_app.command()
@plain_errors
def get(name: Annotated[str, typer.Argument(help="Name of the data set.")], root: Root = None) -> None:
    """Download a data set through torchvision and store it as .npz.

    Example: mnemon data get mnist --root data
    """
    from mnemon.data import catalog

    for split in ("train", "test"):
        typer.echo(repr(catalog.load(name, split, root=root, download=True)))
