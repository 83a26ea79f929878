"""What the commands share: options, plain error messages, images from the user's own files."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, ParamSpec, TypeVar

import torch
import typer
from rich.console import Console
from torch import Tensor

from mnemon.training.config import Config

Out = Annotated[Path, typer.Option(help="Folder for what the command writes; made if absent.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Seed = Annotated[int, typer.Option(help="Seed of every random draw.", min=0)]
Run = Annotated[str, typer.Argument(help="A run folder, or the name of a model of the zoo.")]
Images = Annotated[list[Path], typer.Argument(help="Image files, and folders of images.")]
Root = Annotated[
    Path | None,
    typer.Option(help="Folder of the data sets; MNEMON_DATA, or a folder of the user's cache, when absent."),
]
Device = Annotated[str, typer.Option(help="cpu, cuda, or auto.")]
Skip = Annotated[bool, typer.Option("--skip-unreadable", help="Leave out files that cannot be read, and name them.")]
Invert = Annotated[
    bool, typer.Option("--invert", help="Dark ink on a light ground: turn it round (models take ink = 1).")
]

P = ParamSpec("P")
T = TypeVar("T")


def plain_errors(command: Callable[P, T]) -> Callable[P, T]:
    """Bad input ends a command with its message and exit code 2, without a traceback."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return command(*args, **kwargs)
        except ValueError as error:
            typer.echo(f"error: {_with_options(str(error))}", err=True)
            raise typer.Exit(2) from error
        except OSError as error:  # a full disk, a folder that may not be written, ...
            where = "" if error.filename is None else f"{error.filename}: "
            typer.echo(f"error: {where}{error.strerror or error}", err=True)
            raise typer.Exit(2) from error

    return wrapped


IN_OPTIONS = {
    "give image_shape=(C, H, W)": "give --set data.image_shape=[C,H,W]",
    ", or skip them with unreadable='skip'": "",  # where it can be done, `read_images` has named the option
}
"""Remedies of the library, as commands have them."""


def _with_options(text: str) -> str:
    for remedy, option in IN_OPTIONS.items():
        text = text.replace(remedy, option)
    return text


def make_console(silent: bool) -> Console:
    return Console(quiet=silent)


def make_notes(silent: bool) -> Console:
    """For remarks that are no result: on stderr, so that what is piped on stays clean."""
    return Console(quiet=silent, stderr=True)


def say(console: Console, text: str) -> None:
    """A line as it is: paths are neither wrapped nor read as markup."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def tell(console: Console, text: str) -> None:
    """Sentences, which are wrapped at words; for paths `say`."""
    console.print(text, markup=False, highlight=False)


def make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"cannot make the folder {out}: {error.strerror}; name another place") from error


def check_file(out: Path, suffix: str = "") -> None:
    """Refuse a place for a file before anything is computed that would be lost, and make its folder."""
    if out.is_dir():
        raise ValueError(f"--out: expected a file, got {out}, which is a folder; name a file in it")
    if suffix and out.suffix.lower() != suffix:
        raise ValueError(f"--out: expected a file that ends in {suffix}, got {out}; only such files are written")
    make_folder(out.parent)


def print_json(value: Any, *, indent: int | None = None) -> None:
    typer.echo(json.dumps(value, indent=indent))


def pick_device(name: str) -> str:
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    kind, _, number = name.partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdigit()):
        raise ValueError(f"--device: expected cpu, cuda, cuda:1 or auto, got {name!r}")
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        found = torch.cuda.device_count()
        raise ValueError(f"--device: expected a device of this machine, got {name}; it has {found} GPUs, use cpu")
    return name


def cluster_options(model: Any, config: Config, clusters: int | None) -> dict[str, Any]:
    """What --clusters adds to a write; refused by models without clusters."""
    if clusters is None:
        return {}
    if not hasattr(getattr(model, "memory", None), "num_clusters"):
        raise ValueError(f"--clusters: {config.model.kind} has no clusters; leave it out")
    return {"num_clusters": clusters}


def read_images(
    paths: list[Path], config: Config, *, skip: bool, invert: bool, notes: Console
) -> tuple[Tensor, list[Path]]:
    """The user's images as the model takes them: its size, channels and binarisation. Shapes: -> (T, *X)"""
    from mnemon.data.images import ImageSet, from_files
    from mnemon.training.data import preprocessing_of

    def told(files: list[Path]) -> None:
        names = ", ".join(str(file) for file in files[:5])
        say(notes, f"left out {len(files)} unreadable files: {names}{' ...' if len(files) > 5 else ''}")

    assert config.model.image_shape is not None
    shape = config.model.image_shape
    try:
        data, kept = from_files(paths, image_shape=shape, unreadable="skip" if skip else "error", on_skip=told)
    except ValueError as error:
        raise ValueError(str(error).replace("unreadable='skip'", "--skip-unreadable")) from error
    pixels = 255 - data.images if invert else data.images
    if not invert and config.model.likelihood == "bernoulli" and pixels.float().mean() > 127:
        say(notes, "these images are mostly light; if they show dark ink on paper, use --invert")
    preprocessing = preprocessing_of(config.data)
    fixed = preprocessing.fix(ImageSet(pixels, name="images", split="given"), train=False)
    return preprocessing(fixed.images, torch.Generator().manual_seed(0)), kept
