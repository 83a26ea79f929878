"""Run folders: config.json, model.safetensors (the best weights), metrics.jsonl, state.ckpt (to resume)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from mnemon.core.state import atomic_path
from mnemon.training.config import Config, parse

VERSION = 1
CONFIG, WEIGHTS, METRICS, STATE = "config.json", "model.safetensors", "metrics.jsonl", "state.ckpt"


def fingerprint(model: nn.Module) -> str:
    """A digest of a model's weights and buffers: memories carry that of the model that wrote them."""
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def save_weights(folder: Path, model: nn.Module) -> None:
    tensors = {name: t.detach().cpu().contiguous().clone() for name, t in model.state_dict().items()}
    with atomic_path(folder / WEIGHTS) as temporary:
        save_file(tensors, temporary, metadata={"format": "mnemon-model", "format_version": str(VERSION)})


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The lines of a run's metrics file; none where there is no file, and not a last one that was cut off."""
    path = folder / METRICS
    if not path.is_file():
        return []
    *lines, _ = path.read_text().split("\n")
    return [json.loads(line) for line in lines]


def load_weights(folder: Path, model: nn.Module) -> None:
    """Load model.safetensors into a model, refusing weights of another one."""
    path = folder / WEIGHTS
    if not path.is_file():
        raise ValueError(f"load: no {WEIGHTS} in {folder}; train the run first")
    try:
        tensors = load_file(path)
    except Exception as error:
        raise ValueError(f"load: {path} is not a whole safetensors file ({error})") from error
    check_weights(str(path), model, tensors)
    model.load_state_dict(tensors)


def check_weights(where: str, model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    own = model.state_dict()
    missing, unknown = own.keys() - tensors.keys(), tensors.keys() - own.keys()
    other = [name for name in own.keys() & tensors.keys() if own[name].shape != tensors[name].shape]
    if missing or unknown or other:
        raise ValueError(
            f"{where}: these are the weights of another model: {len(missing)} missing, {len(unknown)} unknown, "
            f"{len(other)} of another shape (such as {sorted(missing | unknown | set(other))[0]}); "
            "use the config.json they were saved with"
        )


def save_config(folder: Path, config: Config) -> None:
    with atomic_path(folder / CONFIG) as temporary:
        Path(temporary).write_text(json.dumps({"version": VERSION, **config.as_dict()}, indent=1) + "\n")


def read_config(folder: Path) -> Config:
    path = folder / CONFIG
    if not path.is_file():
        raise ValueError(f"{folder}: expected a run folder with {CONFIG}, found none; mnemon train makes one")
    try:
        values = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path}: not readable as JSON ({error})") from error
    if not isinstance(values, dict) or values.pop("version", None) != VERSION:
        raise ValueError(f"{path}: written by another version of this library; expected version {VERSION}")
    return parse(values)


def save_state(folder: Path, state: Mapping[str, Any]) -> None:
    """Tensors and plain values only, so that loading needs no pickled code."""
    with atomic_path(folder / STATE) as temporary:
        torch.save({"version": VERSION, **state}, temporary)


def load_state(folder: Path, config: Config) -> dict[str, Any] | None:
    """What `save_state` wrote, if it belongs to this configuration; None when there is nothing to resume."""
    path = folder / STATE
    if not path.is_file():
        return None
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        reason = " ".join(str(error).split())[:120]
        raise ValueError(f"{path}: not a whole checkpoint ({reason}); delete it to start over") from error
    if not isinstance(state, dict) or state.get("version") != VERSION:
        found = state.get("version") if isinstance(state, dict) else None
        raise ValueError(f"{path}: checkpoint version {found}, expected {VERSION}; start the run anew")
    # compared as configurations: a setting that this version knows and the checkpoint does not has its default
    check_same(folder, config, parse(json.loads(state["config"])))
    return dict(state)


def begun_config(folder: Path, name: str) -> Config | None:
    """The settings of a run that was begun from the preset `name`; None where there is none."""
    if not (folder / CONFIG).is_file():
        return None
    config = read_config(folder)
    if config.name != name:
        raise ValueError(
            f"{folder}: expected a run of {name}, got one of {config.name}; resume that, or use another --out"
        )
    return config


def check_same(folder: Path, asked: Config, found: Config) -> None:
    """Refuse to go on with other settings."""
    if other := differences(asked.as_dict(), found.as_dict()):
        raise ValueError(
            f"{folder}: this run has other settings than those asked for ({'; '.join(other[:3])}); resume with the "
            f"settings in {folder / CONFIG}, or train into another folder"
        )


def find_state(folder: Path, config: Config, images: str, resume: bool) -> dict[str, Any] | None:
    """The checkpoint to resume from, None for a run that begins; a folder that is in use is refused, and so is going on
    with other images than those with the fingerprint `images`."""
    saved = load_state(folder, config) if resume else None
    if saved is not None and saved.get("images", images) != images:  # older checkpoints do not say
        raise ValueError(
            f"{folder}: this run was begun with other images than those of {config.data.name} at hand, or with the "
            "same in another order; resume with the images it was begun with, or train into another folder"
        )
    if saved is None and (folder / STATE).exists():
        raise ValueError(f"{folder}: there is a run here already; use --resume, or another folder")
    if saved is None and (folder / WEIGHTS).exists():
        raise ValueError(f"{folder}: there are weights here, and no {STATE} to resume from; use another folder")
    return saved


def differences(asked: Any, found: Any, where: str = "") -> list[str]:
    """The settings that differ, as "training.seed is 1, not 0"."""
    if isinstance(asked, dict) and isinstance(found, dict):
        names = {**asked, **found}
        parts = [differences(asked.get(n), found.get(n), f"{where}.{n}" if where else n) for n in names]
    elif isinstance(asked, tuple) and isinstance(found, tuple) and len(asked) == len(found):
        parts = [differences(a, f, f"{where}.{i}") for i, (a, f) in enumerate(zip(asked, found, strict=True))]
    else:
        return [] if asked == found else [f"{where} is {found}, not {asked}"]
    return [difference for part in parts for difference in part]
