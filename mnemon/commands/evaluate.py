"""mnemon eval and mnemon figures: what a trained run is worth, in numbers and in pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table

from mnemon.commands.common import (
    Device,
    Json,
    Quiet,
    Root,
    Run,
    Seed,
    cluster_options,
    make_console,
    make_folder,
    pick_device,
    plain_errors,
    print_json,
    say,
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
    for name in tests:
        found = [record for record in records if record["data"] == tests[name].data.name]
        console.print(_table(f"{name}, test", found))
    if out is not None:
        say(console, f"written: {out}")


def _table(title: str, records: list[dict[str, Any]]) -> Table:
    """Results on one data set, for a narrow terminal."""
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title_justify="left")
    rows = [_cells(record) for record in records]
    columns = ("what", "scored", "value", "±", "unit", "note")
    kept = [at for at, _ in enumerate(columns) if any(row[at] for row in rows)]
    for at in kept:
        numeric, folds = columns[at] in ("value", "±"), columns[at] == "note"
        table.add_column(columns[at], justify="right" if numeric else "left", no_wrap=not folds)
    before = ""
    for row in rows:
        note = '"' if row[-1] and row[-1] == before else row[-1]  # a ditto mark
        before = row[-1]
        table.add_row(*((*row[:-1], note)[at] for at in kept))
    samples = {record["num_samples"] for record in records if (record["num_samples"] or 1) > 1}
    if samples:
        shown = "; ".join(f"({number}): by {number} importance samples" for number in sorted(samples))
        table.caption, table.caption_justify = shown, "left"
    return table


def _cells(record: dict[str, Any]) -> tuple[str, ...]:
    what = str(record["metric"]).replace("_", " ")
    if record["bound"]:
        samples = f" ({record['num_samples']})" if (record["num_samples"] or 1) > 1 else ""
        what = f"{record['bound']} {what}{samples}"
    if record["model"] == "pixel nearest neighbour":
        what = f"{what}, pixels"
    interval = "" if record["interval"] is None else f"{record['interval']:.2g}"
    scored = str(record["scored"] or "").replace("_", " ")
    unit = "" if record["unit"] in (None, record["metric"]) else record["unit"]
    return what, scored, f"{record['value']:.4g}", interval, unit, record["note"] or ""


@plain_errors
def figures(
    run: Run,
    out: Annotated[Path, typer.Option(help="Folder for the pictures.")] = Path("figures"),
    data: Annotated[str | None, typer.Option(help="Other test images: a name, an .npz, a folder.")] = None,
    length: Annotated[
        int | None, typer.Option(help="Images in the episode; the run's own number when absent.", min=1)
    ] = None,
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
    cluster_options(model, config, clusters)
    make_folder(out)
    test = next(iter(tests.values()))
    if length is not None and length > len(test.data):
        raise ValueError(f"--length: expected at most the {len(test.data)} test images, got {length}")
    files = draw_all(model, test, out, length=length or config.data.episode_length, num_clusters=clusters, seed=seed)
    say(make_console(quiet), "\n".join(str(file) for file in files))


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
    *lines, _ = path.read_text().split("\n")  # a line without its end was cut off
    return int(json.loads(lines[-1])["step"]) if lines else None
