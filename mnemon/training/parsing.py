"""Frozen dataclasses from tables of settings: every key and value is checked against the annotations."""

from __future__ import annotations

import dataclasses
import difflib
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, Literal

OPEN = "model.options"
"""The table whose keys the chosen model knows, and checks."""


FEW = 60
"""Names that a message lists."""


def nearest(word: str, choices: Iterable[str]) -> str:
    """The end of an error message: "; did you mean X?", or the choices where one can look through them."""
    choices = list(choices)
    close = difflib.get_close_matches(word, choices, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; expected one of {', '.join(sorted(choices)) if len(choices) <= FEW else f'{len(choices)} others'}"


def build_settings(cls: Any, values: Any, where: str) -> Any:
    """A dataclass from a dictionary, checking every key and value against its annotation."""
    if not isinstance(values, Mapping):
        raise ValueError(f"{where}: expected a table of settings, got {values!r}")
    hints = typing.get_type_hints(cls)
    prefix = f"{where}." if where else ""
    for key in values:
        if key not in hints:
            raise ValueError(f"unknown setting {prefix}{key}{nearest(key, hints)}")
    built = {key: _convert(hints[key], value, prefix + key) for key, value in values.items()}
    try:
        return cls(**built)
    except TypeError:
        missing = [f.name for f in dataclasses.fields(cls) if f.default is dataclasses.MISSING and f.name not in built]
        raise ValueError(f"{where or 'configuration'}: missing {', '.join(missing)}") from None


def _convert(hint: Any, value: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None:
            return None
        return _convert(next(a for a in arguments if a is not type(None)), value, where)
    if origin is Literal:
        if value not in arguments:
            raise ValueError(f"{where}: got {value!r}{nearest(str(value), map(str, arguments))}")
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise ValueError(f"{where}: expected a list, got {value!r}")
        return tuple(_convert(arguments[0], item, f"{where}.{i}") for i, item in enumerate(value))
    if origin is dict:  # a table whose keys a model knows
        if not isinstance(value, Mapping):
            raise ValueError(f"{where}: expected a table of settings, got {value!r}")
        return dict(value)
    if dataclasses.is_dataclass(hint):
        return build_settings(hint, value, where)
    accepted = (int, float) if hint is float else hint
    if not isinstance(value, accepted) or (isinstance(value, bool) and hint is not bool):
        raise ValueError(f"{where}: expected {hint.__name__}, got {value!r}")
    return hint(value)


def assign_setting(values: Any, key: str, value: Any) -> None:
    *path, last = key.split(".")
    for depth, part in enumerate(path):
        values = _step(values, part, ".".join(path[: depth + 1]))
        if values is None:
            raise ValueError(f"--set: {'.'.join(path[: depth + 1])} is not set in this experiment; set it as a whole")
    if isinstance(values, list | tuple):
        raise ValueError(f"--set: {key} names a stage; set one of its values, such as {key}.epochs")
    if last not in values and ".".join(path) != OPEN:
        raise ValueError(f"unknown setting {key}{nearest(last, values)}")
    values[last] = value


def _step(values: Any, part: str, where: str) -> Any:
    if isinstance(values, list | tuple):
        if not part.isdigit() or int(part) >= len(values):
            raise ValueError(f"--set: {where}: expected a number below {len(values)}, got {part!r}")
        return values[int(part)]
    if part not in values:
        raise ValueError(f"unknown setting {where}{nearest(part, values)}")
    return values[part]


def read_value(text: str) -> Any:
    """A TOML value; a bare word is a string, "none" is nothing."""
    if text.lower() == "none":
        return None
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
