"""mnemon eval and mnemon figures: what a trained run is worth, in numbers and in pictures."""

from __future__ import annotations

from collections.abc import Iterator
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

Parts = Annotated[
    list[str] | None,
    typer.Option(
        "--part",
        help="bounds, groups, recall, novelty, resize (these when absent), prior, fewshot, classification, lengths, "
        "denoise, shared-noise, capacity, contexts or factors. May be repeated.",
    ),
]
Samples = Annotated[
    int,
    typer.Option(help="Importance samples of prior, fewshot, classification and lengths; papers take 1000.", min=1),
]
Episodes = Annotated[
    int,
    typer.Option(help="Episodes of classification, lengths and denoise; images that a bound is averaged over.", min=2),
]
Curves = Annotated[
    Path | None,
    typer.Option("--figures", help="Folder for the pictures of fewshot, denoise and capacity; not drawn when absent."),
]

DRAWN = ("fewshot", "denoise", "capacity")
"""Parts that `--figures` draws."""


@plain_errors
def evaluate(
    run: Run,
    data: Annotated[
        list[str] | None, typer.Option(help="Other test images: a name, an .npz, a folder. May be repeated.")
    ] = None,
    parts: Parts = None,
    samples: Samples = 16,
    episodes: Episodes = 200,
    pictures: Curves = None,
    out: Annotated[Path | None, typer.Option(help="Results file (.json); printed only when absent.")] = None,
    split: Annotated[str, typer.Option(help="test, or valid for data that have it: to choose settings on.")] = "test",
    root: Root = None,
    seed: Seed = 0,
    device: Device = "auto",
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Evaluate a run on test episodes: bounds, recall, novelty, resizing; few-shot bounds and classification; what the
    memory holds, and denoising.

    prior: bound of test images with nothing written. fewshot: bounds of unwritten images of the classes in memory, for
    few and for many classes. classification: accuracy with 5 and 20 classes of 1 and 5 examples, without training. The
    last two need labelled test images. lengths: bounds of written frames and of others of their classes, for episodes
    of 1 to 64 frames. denoise: the error that ten reads leave, against the level of three kinds of noise. shared-noise:
    what the published code of the pseudo-inverse memory reports, which is no bound. capacity: error of recall against
    the number of written images, beside Hopfield networks, slots and copying. A model without a likelihood has recall
    and capacity alone. contexts: the family of data sets by their contexts, and their moments. factors: sets generated
    by a context-aware learner, judged by an independent classifier.

    Example: mnemon eval runs/glyphs-mixture --part bounds --part novelty --out results/glyphs.json

    Example: mnemon eval runs/glyphs-mixture --part classification --samples 100 --episodes 1000

    Example: mnemon eval runs/ebmm-patterns-32 --part capacity --figures figures
    """
    from mnemon.evaluation import results
    from mnemon.evaluation.parts import default_parts
    from mnemon.pretrained import find_run
    from mnemon.training.checkpoint import read_metrics

    _check_parts(parts or [])
    console = make_console(quiet or as_json)
    model, config, tests = _load(run, data, root, device, split)
    chosen = parts or default_parts(model)
    if pictures is not None and not {*DRAWN} & {*chosen}:
        raise ValueError(f"--figures: it draws what some parts find; add --part {' or --part '.join(DRAWN)}")
    history = read_metrics(find_run(run))
    options = {
        "updates": history[-1]["step"] if history else None, "history": history, "seed": seed, "num_samples": samples,
        "num_episodes": episodes, "root": root,
    }  # fmt: skip
    records: list[dict[str, Any]] = []
    for name, test in tests.items():
        records += _measure(chosen, model, config, test, run, name, options, console)
    if out is not None:
        make_folder(out.parent)
        results.write_json(out, records)
    drawn = [] if pictures is None else _draw(records, pictures)
    if pictures is not None and "denoise" in chosen and model.can_write:
        drawn += _draw_reads(model, config, tests, pictures, seed)
    if as_json:
        print_json(records)
        return
    for name in tests:
        found = [record for record in records if record["data"] == tests[name].data.name]
        for table in _tables(f"{name}, {split}", found):
            console.print(table)
    for path in (*([] if out is None else [out]), *drawn):
        say(console, f"written: {path}")


def _draw(records: list[dict[str, Any]], folder: Path) -> list[Path]:
    """The curves of what was found."""
    from mnemon.evaluation.capacity_pictures import draw_capacity
    from mnemon.evaluation.denoising import draw_denoising
    from mnemon.evaluation.fewshot_pictures import draw_curves

    make_folder(folder)
    return [path for draw in (draw_curves, draw_denoising, draw_capacity) for path in draw(records, folder)]


def _draw_reads(model: Any, config: Any, tests: dict[str, Any], folder: Path, seed: int) -> list[Path]:
    """Noisy images of each data set, read again and again."""
    from mnemon.evaluation.denoising import draw_reads

    files = {folder / f"{test.data.name}_reads.png": test for test in tests.values()}
    for path, test in files.items():
        draw_reads(model, test, path, length=config.data.episode_length, seed=seed)
    return list(files)


def _check_parts(named: list[str]) -> None:
    from mnemon.evaluation.parts import PARTS
    from mnemon.training.config import nearest

    for part in named:
        if part not in PARTS:
            raise ValueError(f"--part: unknown part {part!r}{nearest(part, PARTS)}")


def _measure(
    parts: list[str], model: Any, config: Any, test: Any, run: str, data: str, options: dict[str, Any], console: Console
) -> list[dict[str, Any]]:
    """The records of one data set."""
    from mnemon.evaluation.experiments import Evaluation
    from mnemon.evaluation.parts import PARTS
    from mnemon.presets import train_command

    command = f"mnemon eval {run} --data {data}"  # of the zoo: its weights are here
    if Path(run).is_dir():
        command = f"{train_command(config)} && mnemon eval runs/{config.name} --data {data}"
    evaluation = Evaluation.of(model, config, test, command=command, **options)
    records: list[dict[str, Any]] = []
    for part in parts:
        with console.status(f"{part} on {data}"):
            records += PARTS[part](evaluation)
    return records


def _tables(title: str, records: list[dict[str, Any]]) -> Iterator[Table]:
    """All results on one data set: those of few-shot memories, and of episodes of several lengths, as grids."""
    from mnemon.evaluation.capacity_pictures import is_capacity
    from mnemon.evaluation.cells import cell_of, is_fewshot

    others = [record for record in records if not is_fewshot(record) and not is_capacity(record)]
    if others:
        yield _table(title, others)
    yield from _capacity_grids(title, [record for record in records if is_capacity(record)])
    samples = max((record["num_samples"] or 1 for record in records), default=1)
    bound = f"bound by {samples} samples of unwritten images, nats"
    grids: list[tuple[Any, str, str, str]] = [
        ("table", f"{bound}; columns: examples of each class", "classes", "examples"),
        ("scaling", f"{bound}, as classes are added", "classes", "metric"),
        ("breakdown", "parts of the bound of unwritten images, nats", "examples", "metric"),
    ]
    for kind, about, row, column in grids:
        found = {}
        for record in records:
            if cell := cell_of(record, kind):
                places = {**cell._asdict(), "metric": record["metric"].replace("_", " ")}
                found[str(places[row]), str(places[column])] = record
        if found:
            yield _grid(f"{title}: {about}", row, found)


def _capacity_grids(title: str, records: list[dict[str, Any]]) -> Iterator[Table]:
    """A memory in each row, a number of written items in each column, for either error."""
    errors = {"wrong_pixels": "wrong pixels in per cent", "mse_recalled": "squared error per pixel in hundredths"}
    for metric, about in errors.items():
        mine = [record for record in records if record["metric"] == metric]
        found = {(str(record["model"]), str(record["episode_length"])): record for record in mine}
        if found:
            damage = str(mine[0]["note"]).removeprefix("capacity: ")
            yield _grid(f"{title}: {about}, {damage}; columns: written items", "memory", found, hundredths=True)


def _grid(title: str, corner: str, found: dict[tuple[str, str], dict[str, Any]], *, hundredths: bool = False) -> Table:
    """Values by row and column, and the widest interval below."""
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title_justify="left", caption_justify="left")
    columns = list(dict.fromkeys(column for _, column in found))
    table.add_column(corner, justify="left" if hundredths else "right", no_wrap=True)
    for name in columns:
        table.add_column(name, justify="right")
    for row in dict.fromkeys(row for row, _ in found):
        values = [found[row, name]["value"] if (row, name) in found else None for name in columns]
        table.add_row(row, *("" if value is None else _shown(value, hundredths) for value in values))
    widest = max(record["interval"] or 0 for record in found.values())
    table.caption = f"± at most {100 * widest if hundredths else widest:.2g}"
    return table


def _shown(value: float, hundredths: bool) -> str:
    return f"{100 * value:.3g}" if hundredths else f"{value:.4g}"


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
    beside: Annotated[
        list[str] | None,
        typer.Option(help="Another run, of images of the same shape, that reads the same cues. May be repeated."),
    ] = None,
    root: Root = None,
    seed: Seed = 0,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Draw a test episode, samples from its memory, iterative reading with nearest neighbours, samples from memories of
    one image each, the memory itself, and where images are found in it; of Kanerva++ what is read beside the keys of
    some images. Of a model without a likelihood: written images, damaged cues, and what is read from them. Of models of
    data sets: their contexts, sets that they generate; of a code of two numbers: its plane. And the course of the
    training.

    Example: mnemon figures runs/vbm-f22-mixture --length 640 --clusters 100 --out figures
    """
    from mnemon import plots
    from mnemon.evaluation.capacity import Task
    from mnemon.evaluation.capacity_pictures import draw_recalls
    from mnemon.evaluation.context_pictures import draw_contexts, training_curves
    from mnemon.evaluation.pictures import draw_all
    from mnemon.models.recall_model import RecallModel
    from mnemon.pretrained import find_run
    from mnemon.training.checkpoint import read_metrics

    model, config, tests = _load(run, None if data is None else [data], root, device)
    cluster_options(model, config, clusters)
    make_folder(out)
    test = next(iter(tests.values()))
    if length is not None and length > len(test.data):
        raise ValueError(f"--length: expected at most the {len(test.data)} test images, got {length}")
    number = length or config.data.episode_length
    if beside and not isinstance(model, RecallModel):
        raise ValueError(f"--beside: expected a run of a model that recalls from damaged cues (ebmm) first, got {run}")
    if isinstance(model, RecallModel):
        task = Task(config.objective.corruption, config.objective.level, (number,))
        others = {Path(each).name: _load(each, [data] if data else None, root, device)[0] for each in beside or []}
        files = [draw_recalls({Path(run).name: model, **others}, test, task, out, length=number, seed=seed)]
    elif files := draw_contexts(model, test, out, length=number, seed=seed):
        curves = training_curves(read_metrics(find_run(run)), config.stages)
        if curves is not None:
            files.append(out / "training.png")
            plots.save(curves, files[-1])
    else:
        files = draw_all(model, test, out, length=number, num_clusters=clusters, seed=seed)
    say(make_console(quiet), "\n".join(str(file) for file in files))


def _load(
    run: str, data: list[str] | None, root: Path | None, device: str, split: str = "test"
) -> tuple[Any, Any, dict[str, Any]]:
    from mnemon.data import catalog
    from mnemon.evaluation.likelihood import TestSet
    from mnemon.pretrained import load_run
    from mnemon.training.data import of_classes, preprocessing_of

    place = pick_device(device)
    model, config = load_run(run, device=place)
    names = data or [config.data.name, *config.data.extra]
    preprocessing = preprocessing_of(config.data)
    tests = {}
    for name in names:
        images = of_classes(catalog.load(name, split, root=root, image_shape=config.data.image_shape), config.data)
        if images.image_shape != config.model.image_shape:
            raise ValueError(
                f"{name}: expected images {config.model.image_shape} as {run} takes, got {images.image_shape}"
            )
        tests[name] = TestSet.of(images, preprocessing, place)
    return model, config, tests
