"""Small trainings: random binary patterns in classes, nets of a few filters."""

import json

import numpy as np
import torch

from mnemon.data.images import ImageSet
from mnemon.training.config import parse
from mnemon.training.data import TrainingData
from mnemon.training.loop import train

SHAPE = (1, 22, 22)


def image_set(num_classes=12, per_class=10, seed=0, split="train"):
    """Each class is a pattern, each image a noisy copy."""
    generator = torch.Generator().manual_seed(seed)
    patterns = torch.rand(num_classes, 1, *SHAPE, generator=generator) < 0.3
    flips = torch.rand(num_classes, per_class, *SHAPE, generator=generator) < 0.03
    images = (patterns ^ flips).to(torch.uint8).flatten(0, 1) * 255
    labels = torch.arange(num_classes).repeat_interleave(per_class)
    return ImageSet(images, labels, "patterns", split)


def config(**changes):
    values = {
        "name": "tiny",
        "data": {"name": "patterns", "binarise": "static", "episode_length": 6, "batch_size": 4, "validation": 0.25},
        "model": {"kind": "vbm-mixture", "num_filters": 4, "code_dim": 4, "num_slots": 2, "num_clusters": 2,
                  "num_steps": 2},
        "training": {"seed": 3, "log_every": 2},
        "stages": [{"epochs": 3, "learning_rate": 5e-3, "patience": 0}],
    }  # fmt: skip
    for key, value in changes.items():
        values[key] = {**values.get(key, {}), **value} if isinstance(value, dict) else value
    return parse(values)


def training_data(settings, **options):
    return TrainingData.of(settings.data, image_set(**options))


def store(root, **options):
    """The same images as a data set in a folder, for the command line."""
    for split, seed in (("train", 0), ("test", 1)):
        data = image_set(seed=seed, **options)
        (root / "patterns").mkdir(parents=True, exist_ok=True)
        np.savez(root / "patterns" / f"{split}.npz", images=data.images.numpy()[:, 0], labels=data.labels.numpy())
    return root / "patterns"


NO_SLOTS = {"num_slots": None, "num_clusters": None, "num_steps": None}
SIZES = {
    "vae": NO_SLOTS,
    "statistician": {**NO_SLOTS, "context_dim": 3},
    "statistician-full": {**NO_SLOTS, "code_dim": 64, "context_dim": 3, "layer_dim": 4, "hidden": 8},
    "context-aware": {**NO_SLOTS, "code_dim": 64, "context_dim": 3, "layer_dim": 2, "hidden": 8},
    "dkm": {"num_clusters": None, "num_steps": None},
    "vma": {**NO_SLOTS, "architecture": "pyramid", "embedding_dim": 5},
    "soft-attention": {**NO_SLOTS, "architecture": "mlp", "embedding_dim": 5},
    "gmn": {**NO_SLOTS, "architecture": "mlp", "embedding_dim": 5, "vary_items": True},
    "kanerva-pp": {**NO_SLOTS, "num_filters": 8, "map_shape": (2, 8, 8), "read_size": 4, "hidden": 16},
    "dkm-tsm": {"num_clusters": None, "num_steps": None},
    "pseudo-inverse": {"num_clusters": None, "num_steps": None},
    "vae-tsm": {**NO_SLOTS, "hidden": 8},
    "ebmm": {**NO_SLOTS, "hidden": 12, "dynamic_size": 4, "num_hops": 2, "write_steps": 2, "read_steps": 2},
    "vbm-gaussian": {"num_clusters": None},
    "vbm-shifted": {"num_clusters": None},
    "vbm-categorical": {"num_clusters": None},
    "vbm-mixture": {},
    "vbm-tree": {"num_segments": 2},
}
"""What each kind of model changes in `config`."""


FEW_SHOT = {"episodes": "few_shot", "episode_length": 9, "num_classes": 3, "targets": 1, "validation": 0.4}
RECALL = {"episodes": "recall", "episode_length": 6, "targets": 4}
"""Episodes of which some items are scored."""


def of_kind(kind, **changes):
    model = {"kind": kind, **SIZES[kind], **changes.pop("model", {})}
    if kind == "ebmm":  # it has no bound to weigh
        objective = changes.pop("objective", {})
        changes["objective"] = {key: objective[key] for key in ("corruption", "level") if key in objective}
    return config(model=model, **changes)


def fit(settings, folder, *, data=None, accelerator="cpu", quiet=True, **options):
    """Train on the CPU, quietly."""
    data = data or training_data(settings)
    return train(settings, folder, data=data, accelerator=accelerator, quiet=quiet, **options)


def records(folder, kind=None):
    """The lines of metrics.jsonl."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if kind in (None, line["kind"])]


def curve(folder):
    """All that was recorded, but the speed."""
    return [{key: value for key, value in line.items() if key != "frames_per_second"} for line in records(folder)]
