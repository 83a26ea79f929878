"""The optimisers: Adam, and Adam with a trust ratio for every layer (LARS); which parameters weight decay reaches.

    u = m / (sqrt(v) + eps) + weight_decay w          (m, v: Adam's means, corrected for their start)
    w <- w - learning_rate r u,   r = trust_coefficient |w| / |u| for a layer's weights, 1 for biases and norms

With a coefficient of 1, the learning rate is the relative change of a layer in one step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from mnemon.core.protocol import MemoryModel
from mnemon.training.config import TrainingConfig


class LarsAdam(torch.optim.Optimizer):
    """Adam whose every step is as long, relative to the layer's weights, as the learning rate says.

    A group with adapted=False takes plain Adam steps; so do weights that are all 0, which have no length to go by.
    weight_decay_form "decoupled" adds the decay to Adam's update, before the ratio; "l2" adds it to the gradient.

    Kanerva++, E, which says "LARS coupled with ADAM" and no more. Here the ratio is taken of Adam's
    update: a factor on the gradient would be undone by Adam's own scaling.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        weight_decay_form: Literal["decoupled", "l2"] = "decoupled",
        trust_coefficient: float = 1.0,
        adapted: bool = True,
    ) -> None:
        if not all(0 <= beta < 1 for beta in betas):
            raise ValueError(f"betas: expected two numbers from 0 to below 1, got {betas}")
        for name, value in (("lr", lr), ("eps", eps), ("weight_decay", weight_decay)):
            if not value >= 0:
                raise ValueError(f"{name}: expected at least 0, got {value}")
        if not trust_coefficient > 0:
            raise ValueError(f"trust_coefficient: expected above 0, got {trust_coefficient}; use Adam to go without")
        if weight_decay_form not in ("decoupled", "l2"):
            raise ValueError(f"weight_decay_form: expected decoupled or l2, got {weight_decay_form!r}")
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "weight_decay_form": weight_decay_form,
            "trust_coefficient": trust_coefficient,
            "adapted": adapted,
        }
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One step of every parameter that has a gradient. closure: computes the loss anew, if given"""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            weights = [p for p in group["params"] if p.grad is not None]
            if weights:
                self._step_group(group, weights)
        return loss

    def _step_group(self, group: dict[str, Any], weights: list[Tensor]) -> None:
        """All tensors of a group at once: a few launches on a GPU in place of a few per tensor."""
        gradients = [p.grad for p in weights if p.grad is not None]
        decay, decoupled = group["weight_decay"], group["weight_decay_form"] == "decoupled"
        if decay and not decoupled:
            gradients = list(torch._foreach_add(gradients, weights, alpha=decay))
        updates = self._adam_updates(group, weights, gradients)
        if decay and decoupled:
            torch._foreach_add_(updates, weights, alpha=decay)
        if group["adapted"]:
            torch._foreach_mul_(updates, trust_ratios(weights, updates, group["trust_coefficient"]))
        torch._foreach_add_(weights, updates, alpha=-group["lr"])

    def _adam_updates(self, group: dict[str, Any], weights: list[Tensor], gradients: list[Tensor]) -> list[Tensor]:
        beta1, beta2 = group["betas"]
        kept = [self._moments(p) for p in weights]
        means, squares = ([moments[name] for moments in kept] for name in ("exp_avg", "exp_avg_sq"))
        for moments in kept:
            moments["step"] += 1  # stays on the CPU: nothing waits for the GPU
        steps = [moments["step"].item() for moments in kept]
        torch._foreach_lerp_(means, gradients, 1 - beta1)
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - beta2)
        scales = torch._foreach_sqrt(squares)
        torch._foreach_div_(scales, [(1 - beta2**step) ** 0.5 for step in steps])
        torch._foreach_add_(scales, group["eps"])
        updates = torch._foreach_div(means, scales)
        torch._foreach_div_(updates, [1 - beta1**step for step in steps])
        return list(updates)

    def _moments(self, weight: Tensor) -> dict[str, Tensor]:
        """Adam's means under the names that torch.optim.Adam gives them."""
        moments: dict[str, Tensor] = self.state[weight]
        if not moments:
            moments["step"] = torch.zeros((), dtype=torch.float32)
            moments["exp_avg"] = torch.zeros_like(weight, memory_format=torch.preserve_format)
            moments["exp_avg_sq"] = torch.zeros_like(weight, memory_format=torch.preserve_format)
        return moments


def trust_ratios(weights: list[Tensor], updates: list[Tensor], coefficient: float) -> list[Tensor]:
    """coefficient |w| / |u| of every tensor; 1 where either length is 0. Shapes: -> () each

    You et al., 2017: the local learning rate of LARS, of an update in place of the gradient.
    """
    lengths, sizes = torch.stack(torch._foreach_norm(weights)), torch.stack(torch._foreach_norm(updates))
    known = (lengths > 0) & (sizes > 0)
    ratios = torch.where(known, coefficient * lengths / torch.where(known, sizes, 1.0), 1.0)
    return list(ratios.unbind())


def biases_and_norms(model: nn.Module) -> set[int]:
    """Ids of the parameters that are no layer's weights: biases, what norms scale and shift by, vectors and scalars."""
    found = set()
    for module in model.modules():
        norm = "norm" in type(module).__name__.lower()
        for name, parameter in module.named_parameters(recurse=False):
            if norm or name == "bias" or parameter.ndim < 2:
                found.add(id(parameter))
    return found


def parameter_groups(module: nn.Module, model: MemoryModel, training: TrainingConfig) -> list[dict[str, Any]]:
    """The parameters for an optimiser, by whether weight decay applies to them and whether LARS adapts their steps.

    Learned contents of a memory (`model.undecayed`) are never decayed nor adapted: their rows are no layer.
    """
    contents = {id(parameter) for name, parameter in model.named_parameters() if name in model.undecayed}
    small = biases_and_norms(model)
    groups: dict[tuple[bool, bool], list[nn.Parameter]] = {}
    for parameter in module.parameters():
        spared = contents if training.weight_decay_on == "all" else contents | small
        adapted = training.optimizer == "lars_adam" and id(parameter) not in contents | small
        groups.setdefault((id(parameter) not in spared, adapted), []).append(parameter)
    made: list[dict[str, Any]] = []
    for decayed, adapted in sorted(groups, reverse=True):
        group: dict[str, Any] = {"params": groups[decayed, adapted]}
        if not decayed:
            group["weight_decay"] = 0.0
        if training.optimizer == "lars_adam":
            group["adapted"] = adapted
        made.append(group)
    return made


def make_optimizer(
    module: nn.Module, model: MemoryModel, training: TrainingConfig, learning_rate: float
) -> torch.optim.Optimizer:
    """The optimiser that the settings ask for. module: what is trained, the model inside of it"""
    groups = parameter_groups(module, model, training)
    betas, decay = (training.beta1, training.beta2), training.weight_decay
    if training.optimizer == "lars_adam":
        return LarsAdam(
            groups,
            lr=learning_rate,
            betas=betas,
            weight_decay=decay,
            weight_decay_form=training.weight_decay_form,
            trust_coefficient=training.trust_coefficient,
        )
    kind = torch.optim.AdamW if training.weight_decay_form == "decoupled" else torch.optim.Adam
    fused = True if all(parameter.is_cuda for parameter in module.parameters()) else None  # one launch, not dozens
    return kind(groups, lr=learning_rate, betas=betas, weight_decay=decay, fused=fused)
