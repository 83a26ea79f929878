"""Input checks. Every message says what was expected, what came, and what to do about it."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd import forward_ad


def truth(condition: Tensor) -> bool | None:
    """Whether every element is true; None where values cannot be seen (inside compile, vmap and CUDA graphs)."""
    if torch.compiler.is_compiling():
        return None
    if condition.is_cuda and torch.cuda.is_current_stream_capturing():
        return None
    try:
        return bool(condition.all())
    except RuntimeError as error:
        if "data-dependent control flow" not in str(error):
            raise
        return None


def holds(condition: Tensor) -> bool:
    """Whether every element is true, as far as can be seen."""
    return truth(condition) is not False


def is_transformed() -> bool:
    """Inside vmap, func.grad or forward-mode differentiation, whose levels belong to one thread."""
    if torch.compiler.is_compiling():
        return False
    return torch._C._functorch.peek_interpreter_stack() is not None or forward_ad._current_level >= 0


def check_size(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
        raise ValueError(f"{name}: expected a whole number of at least 1, got {value!r}")


def check_positive(name: str, value: float | Tensor) -> None:
    """A variance: a positive, finite number, or a scalar tensor (then it may be learned)."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real | Tensor):
        raise ValueError(f"{name}: expected a positive number or a scalar tensor, got {value!r}")
    if isinstance(value, Tensor):
        if value.ndim:
            raise ValueError(f"{name}: expected a number or a scalar tensor, got shape {tuple(value.shape)}")
        good = holds((value > 0) & value.isfinite())
    else:
        good = 0 < value < float("inf")
    if not good:
        raise ValueError(f"{name}: expected a positive, finite variance, got {value}; variances are not log-scaled")


def check_finite(name: str, value: Tensor, remedy: str) -> None:
    """Raise on NaN or infinity, with memory that does not grow with the input."""
    low, high = torch.aminmax(value)  # NaN spreads through both
    if not holds(low.isfinite() & high.isfinite()):
        raise ValueError(f"{name}: expected finite values, got NaN or infinity; {remedy}")


def check_codes(where: str, codes: Tensor, code_dim: int) -> None:
    """Codes are floating, (*B, T, C) with T >= 1 and the memory's own C."""
    if not isinstance(codes, Tensor):
        raise ValueError(
            f"{where}: expected codes as a Tensor or Codes, got {type(codes).__name__}; "
            "use torch.as_tensor(array) for NumPy arrays"
        )
    if codes.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"{where}: expected float32 or float64 codes, got {codes.dtype}; convert with codes.float()")
    if codes.ndim < 2:
        raise ValueError(
            f"{where}: expected codes (*B, T, {code_dim}), got {tuple(codes.shape)}; add an item dimension"
        )
    if codes.shape[-1] != code_dim:
        raise ValueError(
            f"{where}: expected codes (*B, T, {code_dim}), got {tuple(codes.shape)}; "
            f"this memory was made with code_dim={code_dim}"
        )
    if codes.shape[-2] == 0:
        raise ValueError(f"{where}: expected at least one item, got T = 0 in {tuple(codes.shape)}")
    if codes.numel() == 0:
        raise ValueError(f"{where}: expected at least one episode, got an empty batch {tuple(codes.shape)}")


def check_images(where: str, x: Tensor, image_shape: Sequence[int]) -> None:
    """Images are floating, (*B, T, *X) with the model's own *X."""
    if not isinstance(x, Tensor):
        raise ValueError(f"{where}: expected x as a Tensor, got {type(x).__name__}; use torch.as_tensor")
    shape = tuple(image_shape)
    if x.ndim <= len(shape) or tuple(x.shape[-len(shape) :]) != shape:
        remedy = "add an item dimension" if tuple(x.shape) == shape else "resize the images to this size"
        wanted = ", ".join(map(str, shape))
        raise ValueError(f"{where}: expected x (*B, T, {wanted}), got {tuple(x.shape)}; {remedy}")
    if not x.is_floating_point():
        remedy = "convert with x.float()" if x.dtype == torch.bool else "divide by 255"
        raise ValueError(f"{where}: expected images as floats in [0, 1], got {x.dtype}; {remedy}")


def check_observed(where: str, observed: Tensor, shape: Sequence[int]) -> None:
    """Which pixels of a cue are to be trusted: bools that broadcast to it."""
    check_broadcast(f"{where}: observed", observed, shape)
    if observed.dtype != torch.bool:
        raise ValueError(f"{where}: observed: expected bools, True for what is seen, got {observed.dtype}; use .bool()")


def check_item_shape(where: str, name: str, value: Tensor, shape: Sequence[int]) -> None:
    """Masks and weights have one entry per item."""
    if not isinstance(value, Tensor):
        raise ValueError(f"{where}: expected {name} as a Tensor, got {type(value).__name__}; use torch.as_tensor")
    if tuple(value.shape) != tuple(shape):
        raise ValueError(f"{where}: expected {name} of shape {tuple(shape)} (one per item), got {tuple(value.shape)}")


def check_broadcast(name: str, value: Tensor, shape: Sequence[int]) -> None:
    """Something given for the items must broadcast to them, not the other way round."""
    if not isinstance(value, Tensor):
        raise ValueError(f"{name}: expected a Tensor, got {type(value).__name__}; use torch.as_tensor")
    try:
        fits = torch.broadcast_shapes(value.shape, shape) == torch.Size(shape)
    except RuntimeError:
        fits = False
    if not fits:
        raise ValueError(f"{name}: expected a shape that broadcasts to {tuple(shape)}, got {tuple(value.shape)}")


def common_batch(where: str, memory: Sequence[int], given: Sequence[int]) -> torch.Size:
    """*B of memories and of what is given for them: one memory may be asked about many, and many about one."""
    try:
        return torch.broadcast_shapes(tuple(memory), tuple(given))
    except RuntimeError:
        raise ValueError(
            f"{where}: expected a memory and what is given for it of batch shapes that broadcast, got {tuple(memory)} "
            f"and {tuple(given)}; index the memory, or give every episode its own"
        ) from None


def check_mean(name: str, value: float | Tensor, shape: Sequence[int]) -> None:
    """A prior mean: a finite number, or a finite tensor of one shape."""
    if isinstance(value, Tensor):
        if value.ndim and tuple(value.shape) != tuple(shape):
            raise ValueError(f"{name}: expected a number or a tensor {tuple(shape)}, got {tuple(value.shape)}")
        finite = holds(value.isfinite())
    else:
        finite = isinstance(value, numbers.Real) and math.isfinite(value)
    if not finite:
        raise ValueError(f"{name}: expected finite values, got {value}")


def check_steps(num_steps: int, tol: float | None, chunk_size: int | None) -> None:
    check_size("num_steps", num_steps)
    if tol is not None and not tol > 0:
        raise ValueError(f"tol: expected a positive gain per frame in nats, got {tol}; leave it out to run all steps")
    if chunk_size is not None:
        check_size("chunk_size", chunk_size)
