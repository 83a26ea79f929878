"""Small trainings: random binary patterns in classes, nets of a few filters."""

import numpy as np
import torch

from mnemon.data.images import ImageSet
from mnemon.training.config import parse
from mnemon.training.data import TrainingData

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
        values[key] = {**values[key], **value} if isinstance(value, dict) else value
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
