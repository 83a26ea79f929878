"""Presets: one TOML per published experiment, named by paper and table, and small ones for the embedded data.

A preset may start from another one: `extends = "vbm-table2-vae"` at its top, then only what differs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mnemon.training.config import Config, nearest, parse, read_values

FOLDER = Path(__file__).parent


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load(name: str) -> Config:
    """A preset by name, or any .toml file by path."""
    return parse(_values(name))


def train_command(config: Config) -> str:
    """The command that trains this configuration: its preset, and what was set beside it."""
    if config.name not in names():
        return f"mnemon train {config.name}.toml"
    preset, changed = _flatten(load(config.name).as_dict()), _flatten(config.as_dict())
    for name in ("model.image_shape", "description", "paper"):  # taken from the data; words
        changed[name] = preset[name]
    settings = [f" --set {key}={_written(value)}" for key, value in changed.items() if preset.get(key) != value]
    return f"mnemon train {config.name}" + "".join(settings)


def _flatten(values: Any, prefix: str = "") -> dict[str, Any]:
    """Nested tables as one, with keys as `--set` takes them."""
    if isinstance(values, dict):
        pairs: Any = values.items()
    elif isinstance(values, list | tuple) and values and isinstance(values[0], dict):
        pairs = enumerate(values)
    else:
        return {prefix[:-1]: values}
    return {key: value for name, part in pairs for key, value in _flatten(part, f"{prefix}{name}.").items()}


def _written(value: Any) -> str:
    return "none" if value is None else json.dumps(value).replace(" ", "")


def _values(name: str, seen: tuple[str, ...] = ()) -> dict[str, Any]:
    path = Path(name)
    if path.suffix in (".toml", ".json"):
        if not path.is_file():
            raise ValueError(f"preset: expected a preset's name or its .toml file, got no file {path}; check the path")
    elif name in names():
        path = FOLDER / f"{name}.toml"
    elif path.exists():
        raise ValueError(
            f"preset: expected a preset's name or a .toml file, got {path}; mnemon presets lists the names"
        )
    else:
        raise ValueError(f"unknown preset {name!r}{nearest(name, names())} (mnemon presets lists them)")
    if name in seen:
        raise ValueError(f"preset {name}: extends itself, by way of {' -> '.join(seen)}")
    values = {"name": path.stem, **read_values(path)}
    base = values.pop("extends", None)
    return values if base is None else merge(_values(base, (*seen, name)), values)


def merge(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Tables are merged key by key; other values, also lists of stages, are replaced."""
    merged = dict(base)
    for key, value in changes.items():
        if isinstance(value, dict) and isinstance(base.get(key), dict):
            value = merge(base[key], value)
        merged[key] = value
    return merged
