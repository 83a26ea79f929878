"""What a training runs on: Lightning Fabric, and the module it wraps."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from mnemon.models.codec_model import CodecModel
from mnemon.training.config import Config
from mnemon.training.data import TrainingData
from mnemon.training.objective import training_loss

try:
    from lightning.fabric import Fabric
except ImportError:  # the small package has the same class
    from lightning_fabric import Fabric


class TrainingStep(nn.Module):
    """Model and objective in one forward pass, which is what DDP and autocast wrap."""

    def __init__(self, model: CodecModel, config: Config, data: TrainingData) -> None:
        super().__init__()
        self.model, self.objective = model, config.objective
        self._prepare = data.preprocessing
        self._loss_scale = 1.0 if config.training.loss_unit == "frame" else 1 / math.prod(data.image_shape)

    def forward(
        self, images: Tensor, mask: Tensor | None, generator: torch.Generator, kl_weight: float
    ) -> tuple[Tensor, Tensor]:
        x = self._prepare(images, generator).to(next(self.parameters()).dtype)
        result = training_loss(self.model, self.objective, x, mask, generator, kl_weight)
        return self._loss_scale * result.loss, result.values


def make_fabric(config: Config, accelerator: str = "auto", devices: int = 1, num_nodes: int = 1) -> Fabric:
    """CPU, one GPU, several processes or nodes; under torchrun its own settings count."""
    if accelerator == "auto":
        accelerator = "cuda" if torch.cuda.is_available() else "cpu"
    strategy = "ddp" if devices * num_nodes > 1 or torch.distributed.is_torchelastic_launched() else "auto"
    fabric = Fabric(
        accelerator=accelerator,
        devices=devices,
        num_nodes=num_nodes,
        strategy=strategy,
        precision=config.training.precision,
    )
    fabric.launch()
    return fabric


def check_batch(config: Config, world_size: int) -> None:
    total = config.data.batch_size * config.data.duplicate
    if total % world_size:
        raise ValueError(
            f"data.batch_size: expected batch_size x duplicate ({total}) to be divisible by the {world_size} processes"
        )
