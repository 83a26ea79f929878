"""mnemon models: the registry, and what each model can do."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table

from mnemon.commands.common import Json, Quiet, make_console, make_notes, plain_errors, print_json, tell


@plain_errors
def models(
    name: Annotated[str | None, typer.Argument(help="Show this model in full.")] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """List the models: paper, memory, the size of its state, and what each can do; or show one in full.

    What a model can do is found out by trying it, untrained, on a small episode.

    Example: mnemon models

    Example: mnemon models vbm-mixture
    """
    from mnemon.abilities import describe, presets_by_kind
    from mnemon.pretrained import find_run, zoo_names
    from mnemon.registry import entries
    from mnemon.training.checkpoint import read_config
    from mnemon.training.config import nearest

    kinds = list(entries())
    if name is not None and name in zoo_names():
        raise ValueError(f"models: {name} is a trained {read_config(find_run(name)).model.kind}; show that one")
    if name is not None and name not in kinds:
        raise ValueError(f"models: unknown model {name!r}{nearest(name, kinds)}")
    trained_by = presets_by_kind()
    wanted = kinds if name is None else [name]
    silent = quiet or as_json or len(wanted) == 1
    asked = track(wanted, "asking each model", console=make_notes(silent), transient=True, disable=silent)
    found = [describe(kind, trained_by.get(kind, [])) for kind in asked]
    if as_json:
        print_json(found if name is None else found[0], indent=1)
        return
    console = make_console(quiet)
    if name is None:
        _list(found, console)
    else:
        _show(found[0], console)


def _list(found: list[dict[str, Any]], console: Console) -> None:
    from mnemon.registry import SYMBOLS

    names = list(found[0]["abilities"])
    common = [name for name in names if all(model["abilities"][name]["can"] for model in found)]
    own = [name for name in names if name not in common]
    about = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    can = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("model", "memory", "state, floats", "paper"):
        about.add_column(heading, no_wrap=heading == "model")
    for heading in ("can it?", *own):
        can.add_column(heading.replace(" ", "\n") if heading in own else heading, no_wrap=True)
    for model in found:
        about.add_row(*(model[key] for key in ("kind", "memory", "state_floats", "paper")))
        can.add_row(model["kind"], *("yes" if model["abilities"][name]["can"] else "no" for name in own))
    console.print(about)
    console.print(can)
    tell(console, f"Every model can: {', '.join(common)}. mnemon models NAME says what each is, and how, or why not.")
    for symbol, meaning in SYMBOLS.items():
        if any(symbol in model["state_floats"] for model in found):
            tell(console, f"{symbol}: {meaning}")


def _show(model: dict[str, Any], console: Console) -> None:
    from mnemon.abilities import ABOUT
    from mnemon.registry import SYMBOLS

    tell(console, f"{model['kind']}: {model['title']} ({model['paper']})")
    tell(console, f"memory: {model['memory']}")
    used = [f"{symbol}: {about}" for symbol, about in SYMBOLS.items() if symbol in model["state_floats"]]
    tell(console, f"state: {model['state_floats']} floats an episode" + (f" ({'; '.join(used)})" if used else ""))
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("ability", "", "what it is", "how, or why not"):
        table.add_column(heading, no_wrap=heading in ("ability", ""))
    for name, answer in model["abilities"].items():
        table.add_row(name, "yes" if answer["can"] else "no", ABOUT[name], answer["about"])
    console.print(table)
    tell(console, f"settings of its own: {', '.join(model['settings']) or '-'}")
    tell(console, f"presets: {', '.join(model['presets']) or '-'}")
