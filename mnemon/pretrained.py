"""Trained models by name or folder, and memory files that know which weights wrote them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from mnemon.core.protocol import MemoryModel
from mnemon.core.state import State
from mnemon.registry import build_model
from mnemon.training import checkpoint
from mnemon.training.config import Config, nearest

ZOO = Path(__file__).parent / "zoo"


def zoo_names() -> list[str]:
    """The models that ship with the package."""
    return sorted(path.parent.name for path in ZOO.glob(f"*/{checkpoint.CONFIG}"))


def find_run(name: str | os.PathLike[str]) -> Path:
    """The folder of a run: a path, or the name of a model of the zoo."""
    path = Path(name)
    if path.is_dir():
        return path
    if str(name) in zoo_names():
        return ZOO / str(name)
    raise ValueError(f"no run folder {path}, and no model of that name in the zoo{nearest(str(name), zoo_names())}")


def load_run(name: str | os.PathLike[str], *, device: str | torch.device = "cpu") -> tuple[MemoryModel, Config]:
    """The trained model of a run folder or of the zoo, ready to use, and its configuration."""
    folder = find_run(name)
    config = checkpoint.read_config(folder)
    model = build_model(config.model)
    checkpoint.load_weights(folder, model)
    return model.to(device).eval(), config


def from_pretrained(name: str | os.PathLike[str], *, device: str | torch.device = "cpu") -> MemoryModel:
    """A trained model: a name of the zoo ("mixture-characters") or a folder with config.json and model.safetensors."""
    return load_run(name, device=device)[0]


def save_pretrained(model: MemoryModel, config: Config, folder: str | os.PathLike[str]) -> None:
    """config.json and model.safetensors, from which `from_pretrained` makes the model again."""
    path = Path(folder)
    checkpoint.check_weights("save_pretrained", build_model(config.model), model.state_dict())
    path.mkdir(parents=True, exist_ok=True)
    checkpoint.save_weights(path, model)
    checkpoint.save_config(path, config)


def save_memory(path: str | os.PathLike[str], state: State, model: MemoryModel) -> None:
    """Write a memory with the fingerprint of the model that wrote it."""
    state.save(path, metadata={"weights": checkpoint.fingerprint(model)})


def load_memory(
    path: str | os.PathLike[str], model: MemoryModel, *, device: str | torch.device = "cpu", check: bool = True
) -> Any:
    """Read a memory, refusing one that other weights wrote: its codes would mean something else."""
    state = State.load(path, device=device)
    with safe_open(path, framework="pt") as file:
        wrote = (file.metadata() or {}).get("weights")
    own = checkpoint.fingerprint(model)
    if check and wrote != own:
        if not wrote:
            raise ValueError(
                f"{path}: expected a memory that names the weights that wrote it, got one saved without; save it with "
                "mnemon.save_memory(path, memory, model), or write the images again"
            )
        raise ValueError(
            f"{path}: this memory was written by other weights (expected {own[:8]}, got {wrote[:8]}); use the run that "
            "wrote it, or write the images again"
        )
    return state
