"""The training loop: plain PyTorch on Lightning Fabric, from one CPU core to several nodes.

Everything random follows from (seed, epoch, step), so a run that was killed and resumed, or that is dealt out to
several processes, goes through the same numbers. A run folder holds config.json, model.safetensors (the best weights
by validation), metrics.jsonl and state.ckpt.
"""

from __future__ import annotations

import dataclasses
import json
import math
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from mnemon.core.random import stream
from mnemon.data.episodes import EpisodeBatches
from mnemon.models import KanervaMachine, MemoryVAE
from mnemon.registry import build_model, set_regulariser
from mnemon.training import checkpoint
from mnemon.training.config import Config, StageConfig
from mnemon.training.data import TrainingData
from mnemon.training.metrics import Bar, Metrics
from mnemon.training.objective import NAMES
from mnemon.training.progress import Progress, Summary, check_finite_values, check_finite_weights
from mnemon.training.setup import Fabric, TrainingStep, check_batch, make_fabric
from mnemon.training.streams import EpisodeShard

TRAIN, VALIDATE, WEIGHTS = 1, 2, 3
"""Which random stream a draw belongs to."""


def train(
    config: Config,
    folder: Path,
    *,
    data: TrainingData | None = None,
    root: Path | None = None,
    resume: bool = False,
    accelerator: str = "auto",
    devices: int = 1,
    num_nodes: int = 1,
    console: Console | None = None,
    quiet: bool = False,
) -> Summary:
    """Train what `config` describes into `folder`; with `resume`, go on where a killed run was."""
    fabric = make_fabric(config, accelerator, devices, num_nodes)
    data = TrainingData.load(config.data, root) if data is None else data
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, image_shape=data.image_shape))
    check_batch(config, fabric.world_size)
    trainer = Trainer(config, folder, data, fabric, console or Console(), quiet)
    return trainer.run(resume)


class Trainer:
    """One training run. State that must survive a kill is in `progress`, the weights and the optimiser."""

    def __init__(
        self, config: Config, folder: Path, data: TrainingData, fabric: Fabric, console: Console, quiet: bool
    ) -> None:
        self.config, self.folder, self.data, self.fabric = config, folder, data, fabric
        self.progress = Progress()
        self.silent = quiet or not fabric.is_global_zero
        self.bar = Bar(console, silent=self.silent)
        self.images = data.place(fabric.device)
        torch.manual_seed(int(stream(config.training.seed, WEIGHTS).initial_seed() % 2**63))
        self.model = build_model(config.model)
        graphed = config.training.graphs and fabric.device.type == "cuda"
        if graphed and isinstance(self.model, MemoryVAE | KanervaMachine):
            self.model.use_graphs()
        self._begin_optimiser()

    # -- the run -----------------------------------------------------------------------------------

    def run(self, resume: bool) -> Summary:
        began = time.perf_counter()
        saved = self._prepare_folder(resume)
        if saved is not None:
            self._restore(saved)
        size = None if saved is None else saved["metrics_size"]
        self.metrics = (
            Metrics(self.folder, size=size, tensorboard=self.config.training.tensorboard) if self._first else None
        )
        progress = self.progress
        try:
            with self.bar:
                if saved is None:
                    self._begin_run()
                while not progress.done:
                    self._run_stage()
        finally:
            if self.metrics is not None:
                self.metrics.close()
        improved = progress.best_epoch > 0
        if not improved:
            self.bar.say(
                f"training never improved: validation loss {progress.first_loss:.4g} before training is the best; "
                "try a smaller learning rate or check the data"
            )
        planned = sum(stage.epochs for stage in self.config.stages)
        return Summary(
            self.folder, progress.step, progress.total_epochs, progress.best_epoch, progress.best_loss, improved,
            time.perf_counter() - began, progress.total_epochs < planned,
        )  # fmt: skip

    def _prepare_folder(self, resume: bool) -> dict[str, Any] | None:
        self.folder.mkdir(parents=True, exist_ok=True)
        saved = checkpoint.load_state(self.folder, self.config) if resume else None
        occupied = (self.folder / checkpoint.STATE).exists() or (self.folder / checkpoint.WEIGHTS).exists()
        self.fabric.barrier()
        if saved is None and occupied:
            raise ValueError(f"{self.folder}: there is a run here already; use --resume, or another folder")
        if self._first and saved is None:
            checkpoint.save_config(self.folder, self.config)
        return saved

    def _begin_run(self) -> None:
        """The untrained model is the first candidate, so that a training which never improves is noticed."""
        values = self._validate()
        self.progress.first_loss = self.progress.best_loss = values["loss"]
        self.progress.best_epoch = 0
        self.progress.stage_epochs = self.config.stages[0].epochs
        if self._first:
            assert self.metrics is not None
            self.metrics.write(0, {"kind": "validation", "epoch": 0, **values, "joint": _joint(values)})
            checkpoint.save_weights(self.folder, self.model)
        self._save()

    def _run_stage(self) -> None:
        progress = self.progress
        stage = self._stage
        if stage.regulariser is not None:
            set_regulariser(self.model, stage.regulariser)
        while progress.epoch < progress.stage_epochs:
            if stage.patience and progress.epochs_without_gain >= stage.patience:
                self.bar.say(f"stage {progress.stage + 1}: no gain for {stage.patience} epochs, stopping it")
                break
            self._run_epoch()
        self._end_stage()

    def _end_stage(self) -> None:
        """Go on to the next stage from the best weights, with a fresh optimiser."""
        progress = self.progress
        left = progress.stage_epochs - progress.epoch
        self.fabric.barrier()
        checkpoint.load_weights(self.folder, self.model)
        if progress.stage + 1 == len(self.config.stages):
            progress.done = True
        else:
            progress.stage += 1
            progress.epoch = progress.batch = progress.epochs_without_gain = 0
            progress.stage_epochs = self._stage.epochs + (left if self._stage.leftover else 0)
            self._begin_optimiser()
        self._save()

    # -- one epoch ---------------------------------------------------------------------------------

    def _run_epoch(self) -> None:
        progress, seed = self.progress, self.config.training.seed
        batches = self.data.epoch(seed, progress.total_epochs)
        name = f"stage {progress.stage + 1} epoch {progress.epoch + 1}/{progress.stage_epochs}"
        self.bar.epoch(name, len(batches), progress.batch)
        began, first = time.perf_counter(), progress.batch
        window: list[Tensor] = []
        self.step_module.train()
        while progress.batch < len(batches):
            window.append(self._step(batches, progress.batch, len(batches)))
            progress.batch += 1
            progress.step += 1
            every = self.config.training.checkpoint_every
            save = every is not None and progress.batch % every == 0 and progress.batch < len(batches)
            if len(window) == self.config.training.log_every or save or progress.batch == len(batches):
                self.bar.advance(self._flush(window))
                if save:
                    self._save()
            else:
                self.bar.advance()
        rate = (progress.batch - first) * self.data.frames_per_batch / (time.perf_counter() - began)
        self._finish_epoch(len(batches), rate)

    def _step(self, batches: EpisodeBatches, batch: int, num_batches: int) -> Tensor:
        progress, training = self.progress, self.config.training
        for group in self.optimizer.param_groups:
            group["lr"] = self._learning_rate((progress.epoch + batch / num_batches) / progress.stage_epochs)
        warmup = self._stage.kl_warmup
        kl_weight = min(1.0, (progress.epoch + batch / num_batches) / warmup) if warmup else 1.0
        loss, values = self._forward(batches, batch, (TRAIN, progress.step), self.config.data.duplicate, kl_weight)
        self.optimizer.zero_grad(set_to_none=True)
        self.fabric.backward(loss)
        if training.clip_norm is not None:
            self.fabric.clip_gradients(
                self.step_module, self.optimizer, max_norm=training.clip_norm, error_if_nonfinite=False
            )
        self.optimizer.step()
        return values

    def _forward(
        self, batches: EpisodeBatches, batch: int, purpose: tuple[int, int], duplicate: int, kl_weight: float = 1.0
    ) -> tuple[Tensor, Tensor]:
        """This process's part of a batch, with random numbers that belong to its episodes."""
        index, mask = batches[batch]
        if duplicate > 1:
            index, mask = index.repeat(duplicate, 1), None if mask is None else mask.repeat(duplicate, 1)
        device, world, rank = self.fabric.device, self.fabric.world_size, self.fabric.global_rank
        episodes = len(index) // world
        mine = slice(rank * episodes, (rank + 1) * episodes)
        generator = stream(self.config.training.seed, *purpose, device=device)
        images = self.images[index[mine].to(self.images.device)].to(device)
        mask = None if mask is None else mask[mine].to(device)
        if world == 1:
            return self.step_module(images, mask, generator, kl_weight)
        with EpisodeShard(generator, episodes, rank, world):
            return self.step_module(images, mask, generator, kl_weight)

    def _flush(self, window: list[Tensor]) -> dict[str, float]:
        """Bring a window of step values over at once (one wait for the GPU), check and add them up."""
        values = self.fabric.all_reduce(torch.stack(window), reduce_op="mean").double().cpu()
        first = self.progress.step - len(window)
        window.clear()
        check_finite_values(values, first, self.folder)
        self.progress.sums = (torch.tensor(self.progress.sums, dtype=torch.float64) + values.sum(0)).tolist()
        return dict(zip(NAMES, values[-1].tolist(), strict=True))

    def _finish_epoch(self, num_batches: int, frames_per_second: float) -> None:
        progress = self.progress
        train = {name: total / num_batches for name, total in zip(NAMES, progress.sums, strict=True)}
        validation = self._validate()
        progress.epoch, progress.batch = progress.epoch + 1, 0
        progress.total_epochs += 1
        progress.sums = [0.0] * len(NAMES)
        gained = validation["loss"] < progress.best_loss
        progress.epochs_without_gain = 0 if gained else progress.epochs_without_gain + 1
        if gained:
            progress.best_loss, progress.best_epoch = validation["loss"], progress.total_epochs
        if self._first:
            assert self.metrics is not None
            common = {"epoch": progress.total_epochs, "stage": progress.stage}
            rate = {"frames_per_second": round(frames_per_second, 1)}
            self.metrics.write(progress.step, {"kind": "train", **common, **train, "joint": _joint(train), **rate})
            self.metrics.write(
                progress.step, {"kind": "validation", **common, **validation, "joint": _joint(validation)}
            )
            if gained:
                checkpoint.save_weights(self.folder, self.model)
        self.bar.say(
            f"epoch {progress.total_epochs}: joint {_joint(train):.2f} nats/frame in training, "
            f"{_joint(validation):.2f} in validation{' *' if gained else ''}, {frames_per_second:,.0f} frames/s"
        )
        self._save()

    @torch.no_grad()
    def _validate(self) -> dict[str, float]:
        self.step_module.eval()
        batches = self.data.validation(self.config.training.validation_batches, self.fabric.world_size)
        images, self.images = self.images, self.data.place_validation(self.fabric.device)
        try:
            values = [self._forward(batches, i, (VALIDATE, i), 1)[1] for i in range(len(batches))]
        finally:
            self.images = images
        mean = self.fabric.all_reduce(torch.stack(values).double().mean(0), reduce_op="mean").tolist()
        return dict(zip(NAMES, mean, strict=True))

    # -- pieces ------------------------------------------------------------------------------------

    @property
    def _first(self) -> bool:
        return bool(self.fabric.is_global_zero)

    @property
    def _stage(self) -> StageConfig:
        return self.config.stages[self.progress.stage]

    def _learning_rate(self, fraction: float) -> float:
        rate = self._stage.learning_rate
        return rate if self._stage.decay == "constant" else rate * 0.5 * (1 + math.cos(math.pi * fraction))

    def _begin_optimiser(self) -> None:
        training = self.config.training
        step = TrainingStep(self.model, self.config, self.data)
        optimizer = torch.optim.AdamW(
            step.parameters(),
            lr=self._stage.learning_rate,
            betas=(training.beta1, training.beta2),
            weight_decay=training.weight_decay,
        )
        self.step_module, self.optimizer = self.fabric.setup(step, optimizer)

    def _restore(self, saved: dict[str, Any]) -> None:
        self.progress = Progress(**saved["progress"])
        self._begin_optimiser()
        checkpoint.check_weights(str(self.folder / checkpoint.STATE), self.model, saved["model"])
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])

    def _save(self) -> None:
        """A checkpoint, unless the weights went bad: then the one before is worth more."""
        self.fabric.barrier()
        if not self._first:
            return
        check_finite_weights(self.model, self.progress.step, self.folder)
        assert self.metrics is not None
        checkpoint.save_state(
            self.folder,
            {
                "config": json.dumps(self.config.as_dict(), sort_keys=True),
                "progress": dataclasses.asdict(self.progress),
                "model": {name: t.detach().cpu() for name, t in self.model.state_dict().items()},
                "optimizer": self.optimizer.state_dict(),
                "metrics_size": self.metrics.size,
            },
        )


def _joint(values: dict[str, float]) -> float:
    return values["reconstruction"] - values["code_kl"] - values["address_kl"] - values["memory_kl"]
