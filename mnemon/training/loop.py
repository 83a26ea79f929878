"""The training loop: plain PyTorch on Lightning Fabric, from one CPU core to several nodes.

Everything random follows from (seed, epoch, step), so a run that was killed and resumed, or that is dealt out to
several processes, goes through the same numbers. A run folder holds config.json, model.safetensors (the best weights
by validation), metrics.jsonl and state.ckpt.
"""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from mnemon.core.protocol import MemoryModel
from mnemon.core.random import seed_of
from mnemon.data.episodes import EpisodeBatches
from mnemon.training import checkpoint
from mnemon.training.config import Config, StageConfig
from mnemon.training.data import TrainingData
from mnemon.training.metrics import Bar, Metrics
from mnemon.training.objective import names_of
from mnemon.training.optimizers import make_optimizer
from mnemon.training.passes import Passes
from mnemon.training.progress import (
    Progress,
    Summary,
    blame_numbers,
    check_finite_values,
    check_finite_weights,
    check_time,
)
from mnemon.training.schedules import bound_weights, learning_rate
from mnemon.training.setup import (
    Fabric,
    TrainingStep,
    fresh_model,
    launch,
    make_fabric,
    one_order,
    products,
    set_stage_regulariser,
    sole_training,
)
from mnemon.training.statistics import NUM_BATCHES, averaging, batch_norms
from mnemon.training.step_graph import StepGraphs

TRAIN, VALIDATE, STATISTICS = 1, 2, 4
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
    until: float | None = None,
) -> Summary:
    """Train what `config` describes into `folder`; with `resume`, go on where a killed run was.

    until: after this `time.monotonic()` it stops at the next checkpoint; `OutOfTime` leaves a run that can be resumed
    """
    data = TrainingData.load(config.data, root) if data is None else data
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, image_shape=data.image_shape))
    # whatever can be wrong with the settings is found before there are several processes to say so
    model = fresh_model(config)
    data.check()
    fabric = make_fabric(config, accelerator, devices, num_nodes)
    with sole_training(folder):
        saved = checkpoint.find_state(folder, config, data.fingerprint, resume)
        launch(fabric)
        settings = config.training
        with products(tf32=settings.tf32), one_order(fabric.device, deterministic=settings.deterministic):
            trainer = Trainer(config, folder, data, model, fabric, Bar(console or Console(), silent=quiet), until)
            return trainer.run(saved)


class Trainer:
    """One training run. State that must survive a kill is in `progress`, the weights and the optimiser."""

    def __init__(
        self,
        config: Config,
        folder: Path,
        data: TrainingData,
        model: MemoryModel,
        fabric: Fabric,
        bar: Bar,
        until: float | None = None,
    ) -> None:
        self.until = until
        self.config, self.folder, self.data, self.model, self.fabric = config, folder, data, model, fabric
        self.names = names_of(model)
        self.progress = Progress(stage_epochs=config.stages[0].epochs, sums=[0.0] * len(self.names))
        self.bar = bar if fabric.is_global_zero else Bar(Console(), silent=True)
        self.images = data.place(fabric.device)
        self.window: list[Tensor] = []  # values of the last steps, not yet waited for
        graphs = config.training.graphs if fabric.device.type == "cuda" else "none"
        self.replays_steps = graphs == "steps" and fabric.world_size == 1
        if graphs != "none" and not self.replays_steps:
            self.model.use_graphs()
        half = config.training.precision == "bf16-mixed"
        if fabric.device.type == "cuda" and half and config.training.channels_innermost:
            self.model.to(memory_format=torch.channels_last)
        self.step_module = fabric.setup_module(TrainingStep(self.model, config, data))
        self.passes = Passes(self.step_module, fabric, config.training.seed)
        self._begin_optimiser()

    # -- the run -----------------------------------------------------------------------------------

    def run(self, saved: dict[str, Any] | None) -> Summary:
        began = time.perf_counter()
        progress = self._open(saved)
        try:
            with self.bar:
                if saved is None:
                    self._begin_run()
                while not progress.done:
                    self._run_stage()
        except (ValueError, RuntimeError) as error:
            blame_numbers(error, self.model, self.window, self.names, progress.step, self.folder)
            raise
        finally:
            if self.metrics is not None:
                self.metrics.close()
        planned = sum(stage.epochs for stage in self.config.stages)
        summary = progress.summary(self.folder, planned, time.perf_counter() - began)
        if not summary.improved:
            self.bar.say(
                f"training never improved: validation loss {progress.first_loss:.4g} before training is the best; "
                "try a smaller learning rate or check the data"
            )
        return summary

    def _open(self, saved: dict[str, Any] | None) -> Progress:
        """Make the run folder ready: empty, or as it was when the checkpoint was written."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if saved is not None:
            self.progress = Progress(**saved["progress"])
            checkpoint.check_weights(str(self.folder / checkpoint.STATE), self.model, saved["model"])
            self.model.load_state_dict(saved["model"])
            self.optimizer.load_state_dict(saved["optimizer"])
        self.metrics = None
        if self._first:
            size = None if saved is None else saved["metrics_size"]
            board = self.config.training.tensorboard
            self.metrics = Metrics(self.folder, size=size, tensorboard=board, step=self.progress.step)
            if saved is None:
                checkpoint.save_config(self.folder, self.config)
            elif self.progress.step == 0:  # killed before the first weights were written
                checkpoint.save_weights(self.folder, self.model)
        return self.progress

    def _begin_run(self) -> None:
        """The untrained model is the first candidate, so that a training which never improves is noticed."""
        values = self._validate()
        self.progress.first_loss = self.progress.best_loss = values["loss"]
        self.progress.best_epoch = 0
        if self.metrics is not None:
            self.metrics.write_validation(0, {"epoch": 0}, values)
        self._save()
        if self._first:
            checkpoint.save_weights(self.folder, self.model)

    def _run_stage(self) -> None:
        progress, stage = self.progress, self._stage
        set_stage_regulariser(self.model, self.config, stage)
        # a stage has its own objective
        self.graphs = StepGraphs(self.step_module, self.passes.of_numbers(stage), self.fabric.backward)
        while progress.epoch < progress.stage_epochs:
            if stage.patience and progress.epochs_without_gain >= stage.patience:
                self.bar.say(f"stage {progress.stage + 1}: no gain for {stage.patience} epochs, stopping it")
                break
            check_time(self.until)
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
        progress, training = self.progress, self.config.training
        batches = self.data.epoch(training.seed, progress.total_epochs)
        name = f"stage {progress.stage + 1} epoch {progress.epoch + 1}/{progress.stage_epochs}"
        self.bar.epoch(name, len(batches), progress.batch)
        began, first = time.perf_counter(), progress.batch
        self.step_module.train()
        while progress.batch < len(batches):
            self.window.append(self._step(batches, progress.batch, len(batches)))
            progress.batch += 1
            progress.step += 1
            every = training.checkpoint_every
            save = every is not None and progress.batch % every == 0 and progress.batch < len(batches)
            if len(self.window) == training.log_every or save or progress.batch == len(batches):
                self.bar.advance(self._flush())
                if save:
                    self._save()
                    check_time(self.until)
            else:
                self.bar.advance()
        rate = (progress.batch - first) * self.data.frames_per_batch / (time.perf_counter() - began)
        self._finish_epoch(len(batches), rate)

    def _step(self, batches: EpisodeBatches, batch: int, num_batches: int) -> Tensor:
        progress, training = self.progress, self.config.training
        epochs = progress.epoch + batch / num_batches
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self._stage, epochs / progress.stage_epochs)
        weights = bound_weights(self._stage, epochs)
        part = self.passes.deal(batches, batch, self.images, self.config.data.duplicate)
        if self.replays_steps and weights.temperature is None:
            seed = seed_of(training.seed, TRAIN, progress.step)
            values = self.graphs.run(part.inputs, seed, weights.numbers)
        else:
            loss, values = self.passes.run(part, (TRAIN, progress.step), weights)
            self.optimizer.zero_grad(set_to_none=True)
            self.fabric.backward(loss)
        if training.clip_norm is not None:
            self.fabric.clip_gradients(
                self.step_module, self.optimizer, max_norm=training.clip_norm, error_if_nonfinite=False
            )
        self.optimizer.step()
        return values

    def _flush(self) -> dict[str, float]:
        """Bring a window of step values over at once (one wait for the GPU), check and add them up."""
        values = self.fabric.all_reduce(torch.stack(self.window), reduce_op="mean").double().cpu()
        check_finite_values(values, self.names, self.progress.step - len(self.window), self.folder)
        self.window.clear()
        self.progress.sums = (torch.tensor(self.progress.sums, dtype=torch.float64) + values.sum(0)).tolist()
        return dict(zip(self.names, values[-1].tolist(), strict=True))

    def _finish_epoch(self, num_batches: int, frames_per_second: float) -> None:
        progress = self.progress
        train = {name: total / num_batches for name, total in zip(self.names, progress.sums, strict=True)}
        validation = self._validate()
        progress.epoch, progress.batch = progress.epoch + 1, 0
        progress.total_epochs += 1
        progress.sums = [0.0] * len(self.names)
        gained = validation["loss"] < progress.best_loss or self._stage.keep == "last"
        progress.epochs_without_gain = 0 if gained else progress.epochs_without_gain + 1
        if gained:
            progress.best_loss, progress.best_epoch = validation["loss"], progress.total_epochs
        if self.metrics is not None:
            common = {"epoch": progress.total_epochs, "stage": progress.stage}
            self.metrics.write_epoch(progress.step, common, train, validation, frames_per_second)
            if gained:
                checkpoint.save_weights(self.folder, self.model)
        self.bar.say_epoch(progress.total_epochs, train, validation, frames_per_second, gained)
        self._save()

    @torch.no_grad()
    def _refresh_statistics(self) -> None:
        """Batch statistics of the present weights, from the first batches of the data."""
        layers = batch_norms(self.model)
        if not layers:
            return
        batches = self.data.grown(self.config.training.seed)
        self.step_module.train()
        with averaging(layers):
            for i in range(min(NUM_BATCHES, len(batches))):
                self.passes.run(self.passes.deal(batches, i, self.images), (STATISTICS, i))

    @torch.no_grad()
    def _validate(self) -> dict[str, float]:
        self._refresh_statistics()
        self.step_module.eval()
        batches = self.data.validation(self.config.training.validation_batches)
        images = self.data.place_validation(self.fabric.device)
        parts = (self.passes.deal(batches, i, images) for i in range(len(batches)))
        values = [self.passes.run(part, (VALIDATE, i))[1] for i, part in enumerate(parts)]
        mean = self.fabric.all_reduce(torch.stack(values).double().mean(0), reduce_op="mean").cpu()
        check_finite_values(mean[None], self.names, self.progress.step, self.folder, "validation ")
        return dict(zip(self.names, mean.tolist(), strict=True))

    # -- pieces ------------------------------------------------------------------------------------

    @property
    def _first(self) -> bool:
        return bool(self.fabric.is_global_zero)

    @property
    def _stage(self) -> StageConfig:
        return self.config.stages[self.progress.stage]

    def _begin_optimiser(self) -> None:
        rate = self._stage.learning_rate
        optimizer = make_optimizer(self.step_module, self.model, self.config.training, rate)
        self.optimizer = self.fabric.setup_optimizers(optimizer)

    def _save(self) -> None:
        """A checkpoint, unless the weights went bad: then the one before is worth more."""
        check_finite_weights(self.model, self.progress.step, self.folder)
        self.fabric.barrier()
        if self.metrics is None:
            return
        checkpoint.save_state(
            self.folder,
            {
                "config": json.dumps(self.config.as_dict(), sort_keys=True),
                "images": self.data.fingerprint,
                "progress": dataclasses.asdict(self.progress),
                "model": {name: t.detach().cpu() for name, t in self.model.state_dict().items()},
                "optimizer": self.optimizer.state_dict(),
                "metrics_size": self.metrics.size,
            },
        )
