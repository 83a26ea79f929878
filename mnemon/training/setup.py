"""What a training runs on: Lightning Fabric, and the module it wraps."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mnemon.core.episode import Roles
from mnemon.core.lock import sole_process
from mnemon.core.protocol import MemoryModel
from mnemon.core.random import stream
from mnemon.models import MemoryVAE
from mnemon.registry import build_model, set_regulariser
from mnemon.training.config import Config, StageConfig, nearest
from mnemon.training.data import TrainingData
from mnemon.training.objective import check_objective, training_loss
from mnemon.training.schedules import BoundWeights

try:
    from lightning.fabric import Fabric
except ImportError:  # the small package has the same class
    from lightning_fabric import Fabric

ACCELERATORS = ("auto", "cpu", "cuda")
RANKS = ("RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")
"""Where a launcher tells a process its number."""
FABRIC_LOGGERS = ("lightning_fabric", "lightning.fabric", "lightning.pytorch")
"""Which of them Fabric's messages go through depends on the package it comes with."""
FRESH_WEIGHTS = 3
"""The random stream of untrained weights."""


class TrainingStep(nn.Module):
    """Model and objective in one forward pass, which is what DDP and autocast wrap."""

    def __init__(self, model: MemoryModel, config: Config, data: TrainingData) -> None:
        super().__init__()
        self.model, self.objective = model, config.objective
        self._prepare = data.preprocessing
        self._loss_scale = 1.0 if config.training.loss_unit == "frame" else 1 / math.prod(data.image_shape)

    def forward(
        self,
        images: Tensor,
        mask: Tensor | None,
        generator: torch.Generator,
        weights: BoundWeights,
        written: Tensor | None,
        scored: Tensor | None,
        constant: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        x = self._prepare(images, generator).to(next(self.parameters()).dtype)
        roles = Roles(written, scored, constant)
        result = training_loss(self.model, self.objective, x, mask, generator, weights, roles)
        return self._loss_scale * result.loss, result.values


def make_fabric(config: Config, accelerator: str = "auto", devices: int = 1, num_nodes: int = 1) -> Fabric:
    """CPU, one GPU, several processes or nodes, not launched yet; under torchrun its own settings count."""
    if accelerator not in ACCELERATORS:
        raise ValueError(f"accelerator: got {accelerator!r}{nearest(accelerator, ACCELERATORS)}")
    if accelerator == "auto":
        accelerator = "cuda" if torch.cuda.is_available() else "cpu"
    if accelerator == "cuda" and torch.cuda.device_count() < 1:
        raise ValueError("accelerator: expected one of this machine, got cuda, and there is no CUDA device; use cpu")
    if torch.distributed.is_torchelastic_launched():
        world, devices = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_WORLD_SIZE"])
        num_nodes = world // devices
    check_batch(config, devices * num_nodes)
    many = devices * num_nodes > 1 or torch.distributed.is_torchelastic_launched()
    with less_noise():
        return Fabric(
            accelerator=accelerator,
            devices=devices,
            num_nodes=num_nodes,
            strategy="ddp" if many else "auto",
            precision=config.training.precision,
        )


def launch(fabric: Fabric) -> None:
    """From here on there are as many processes as were asked for."""
    with less_noise():
        fabric.launch()


def sole_training(folder: Path) -> contextlib.AbstractContextManager[None]:
    """No other training into the same folder. The first process asks, before it starts the others."""
    first = all(os.environ.get(name, "0") == "0" for name in RANKS)
    return sole_process(folder, "--out") if first else contextlib.nullcontext()


def is_first_process() -> bool:
    """Whether this process is the one that prints."""
    return not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0


@contextlib.contextmanager
def less_noise() -> Iterator[None]:
    """Without Fabric's messages on launching and on Tensor Cores, and its hints on how to launch."""
    loggers = [logging.getLogger(name) for name in FABRIC_LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*srun.*")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextlib.contextmanager
def products(*, tf32: bool) -> Iterator[None]:
    """Without TF32 in products and convolutions, which are set back in the end; or as they are set."""
    if tf32:
        yield
        return
    try:
        before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    except RuntimeError as error:  # PyTorch has two interfaces to them, and refuses to mix them
        raise ValueError(
            "training.tf32: expected PyTorch's precisions as torch.set_float32_matmul_precision and allow_tf32 set "
            "them, got some that were set by fp32_precision; set them by the former"
        ) from error
    try:
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = False
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


def fix_workspace() -> None:
    """Ask for products of matrices that sum in one order. The setting is read when a process first multiplies on its
    GPU: commands that use the GPU before they train ask at once."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


@contextlib.contextmanager
def one_order(device: torch.device, *, deterministic: bool) -> Iterator[None]:
    """With kernels of the GPU that sum in one order. What has no such kernel is warned of by name, and used. Whoever
    asked PyTorch for this already keeps their own settings."""
    if not deterministic or device.type != "cuda" or torch.are_deterministic_algorithms_enabled():
        yield
        return
    fix_workspace()
    memory: Any = torch.utils.deterministic
    fills = memory.fill_uninitialized_memory
    try:
        torch.use_deterministic_algorithms(True, warn_only=True)
        memory.fill_uninitialized_memory = False  # costs time, and finds faults only
        yield
    finally:
        torch.use_deterministic_algorithms(False)
        memory.fill_uninitialized_memory = fills


def check_batch(config: Config, world_size: int) -> None:
    total = config.data.batch_size * config.data.duplicate
    if total % world_size:
        raise ValueError(
            f"data.batch_size: expected batch_size x duplicate ({total}) to be divisible by the {world_size} processes"
        )


def fresh_model(config: Config) -> MemoryModel:
    """The untrained model of the seed. The caller's random numbers are left as they were."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream(config.training.seed, FRESH_WEIGHTS).initial_seed())
        model = build_model(config.model)
    check_objective(model, config.objective)
    for stage in config.stages:  # a stage that does not fit is found now, not when its turn comes
        if stage.estimator is not None:
            check_objective(model, dataclasses.replace(config.objective, estimator=stage.estimator))
        set_stage_regulariser(model, config, stage)
    return model


def set_stage_regulariser(model: MemoryModel, config: Config, stage: StageConfig) -> None:
    """The stage's own, or else the model's; what the stage before had is gone."""
    regulariser = stage.regulariser or config.model.regulariser
    if regulariser is not None:
        set_regulariser(model, regulariser)
    elif isinstance(model, MemoryVAE):
        model.regulariser = None
