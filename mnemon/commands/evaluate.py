"""mnemon eval and mnemon figures: what a trained run is worth, in numbers and in pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from mnemon.commands.common import (
    Device,
    Json,
    Quiet,
    Root,
    Run,
    Seed,
    make_console,
    make_folder,
    pick_device,
    plain_errors,
    print_json,
)


@plain_errors
def evaluate(
    run: Run,
    data: Annotated[
        list[str] | None, typer.Option(help="Other test images: a name, an .npz, a folder. May be repeated.")
    ] = None,
    parts: Annotated[
        list[str] | None, typer.Option("--part", help="bounds, groups, recall, novelty or resize; all when absent.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Results file (.json); printed only when absent.")] = None,
    root: Root = None,
    seed: Seed = 0,
    device: Device = "auto",
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Evaluate a run on test episodes: bounds, recall, novelty, resizing.

    Example: mnemon eval runs/glyphs-mixture --part bounds --part novelty --out results/glyphs.json
    """
    from mnemon.evaluation import results
    from mnemon.evaluation.experiments import PARTS, Evaluation
    from mnemon.presets import train_command
    from mnemon.training.config import nearest

    for part in parts or []:
        if part not in PARTS:
            raise ValueError(f"--part: unknown part {part!r}{nearest(part, PARTS)}")
    records: list[dict[str, Any]] = []
    console = make_console(quiet or as_json)
    model, config, tests = _load(run, data, root, device)
    for name, test in tests.items():
        where = f"runs/{config.name}" if Path(run).is_dir() else run
        command = f"{train_command(config)} && mnemon eval {where} --data {name}"
        evaluation = Evaluation.of(model, config, test, command=command, updates=_updates(run), seed=seed)
        for part in parts or PARTS:
            with console.status(f"{part} on {name}"):
                records += PARTS[part](evaluation)
    if out is not None:
        make_folder(out.parent)
        results.write_json(out, records)
    if as_json:
        print_json(records)
        return
    table = Table("data", "metric", "scored", "bound", "value", "±", "unit", "note")
    for r in records:
        shown = (
            r["data"],
            r["metric"],
            r["scored"],
            r["bound"],
            f"{r['value']:.4g}",
            r["interval"],
            r["unit"],
            r["note"],
        )
        table.add_row(*("" if value is None else str(value) for value in shown))
    console.print(table)


@plain_errors
def figures(
    run: Run,
    out: Annotated[Path, typer.Option(help="Folder for the pictures.")] = Path("figures"),
    data: Annotated[str | None, typer.Option(help="Other test images: a name, an .npz, a folder.")] = None,
    length: Annotated[int | None, typer.Option(help="Images in the episode; the run's own number when absent.")] = None,
    clusters: Annotated[int | None, typer.Option(help="Clusters of a mixture or tree memory.", min=1)] = None,
    root: Root = None,
    seed: Seed = 0,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Draw a test episode, samples from its memory, iterative reading with nearest neighbours, and the memory itself.

    Example: mnemon figures runs/vbm-f22-mixture --length 640 --clusters 100 --out figures
    """
    from mnemon.evaluation.pictures import draw_all

    model, config, tests = _load(run, None if data is None else [data], root, device)
    make_folder(out)
    test = next(iter(tests.values()))
    files = draw_all(model, test, out, length=length or config.data.episode_length, num_clusters=clusters, seed=seed)
    make_console(quiet).print("\n".join(str(file) for file in files))


def _load(run: str, data: list[str] | None, root: Path | None, device: str) -> tuple[Any, Any, dict[str, Any]]:
    from mnemon.data import catalog
    from mnemon.evaluation.likelihood import TestSet
    from mnemon.pretrained import load_run
    from mnemon.training.data import preprocessing_of

    place = pick_device(device)
    model, config = load_run(run, device=place)
    names = data or [config.data.name, *config.data.extra]
    preprocessing = preprocessing_of(config.data)
    tests = {}
    for name in names:
        images = catalog.load(name, "test", root=root, image_shape=config.data.image_shape)
        if images.image_shape != config.model.image_shape:
            raise ValueError(
                f"{name}: expected images {config.model.image_shape} as {run} takes, got {images.image_shape}"
            )
        tests[name] = TestSet.of(images, preprocessing, place)
    return model, config, tests


def _updates(run: str) -> int | None:
    """How many updates the run's training made, from its metrics."""
    from mnemon.pretrained import find_run
    from mnemon.training.checkpoint import METRICS

    path = find_run(run) / METRICS
    if not path.is_file():
        return None
    lines = path.read_text().splitlines()
    return int(json.loads(lines[-1])["step"]) if lines else None
