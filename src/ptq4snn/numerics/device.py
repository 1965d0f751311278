"""Integers in floats need exact products: on CUDA TF32 is switched off, and every device is checked once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ptq4snn.errors import PTQ4SNNError, UnsupportedOperation

__all__ = [
    "check_device",
    "exact_arithmetic",
    "find_device",
    "keeping_types",
    "no_autocast",
    "refuse_autocast",
]

NEEDS_NO_TEST = ("cpu", "meta")  # what others are compared with, and what computes nothing


@contextmanager
def exact_arithmetic(device: torch.device) -> Iterator[None]:
    """Run what is inside without autocast, and without TF32 on a CUDA device; the user's settings come back
    afterwards."""
    with (
        torch.autocast(device.type, enabled=False) if has_autocast(device) else nullcontext(),
        full_precision(device),
    ):
        yield


def find_device(device: Any, given: str) -> torch.device:
    """The device, if it computes here; `given` is how the user named it, such as "--device cuda"."""
    try:
        found = torch.device(device)
        float(torch.ones(2, device=found).sum())
    except (
        AssertionError,
        ImportError,
        RuntimeError,
        TypeError,
    ) as why:  # meta has shapes only, hpu a package
        raise PTQ4SNNError(
            f"{given} cannot be used here: choose cpu or a device that torch sees and computes on"
        ) from why
    return found


def check_device(device: torch.device) -> None:
    """Raise before any work if the device cannot carry integers in floats."""
    with exact_arithmetic(device):
        pass


def keeping_types(fn: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """What `nn.Module._apply` may do to carriers of integers: another device, never another type."""
    if (wanted := fn(torch.zeros(1)).dtype) not in (torch.float32, torch.float64):
        raise PTQ4SNNError(
            f"a quantized model carries its integers in float32 and float64 and cannot be turned into "
            f"{str(wanted).removeprefix('torch.')}: leave its type alone; its weights are low-bit already"
        )
    return lambda t: fn(t).to(t.dtype)


@contextmanager
def no_autocast() -> Iterator[None]:
    """The float network is observed as it is, whatever surrounds the call."""
    with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
        yield


def has_autocast(device: torch.device) -> bool:
    return torch.amp.is_autocast_available(device.type)


def refuse_autocast(device: torch.device) -> None:
    """Autocast inside of the model's own forward cannot be undone there."""
    if has_autocast(device) and torch.is_autocast_enabled(device.type):
        raise UnsupportedOperation(
            "the model switches torch.autocast on inside its forward, where integers would be computed in "
            "half precision: take it out of the forward, and put it around the call of the float model "
            "instead"
        )


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """No TF32 on a CUDA device, and the proof that this is enough, on any device but the CPU."""
    if device.type != "cuda":
        if device.type not in NEEDS_NO_TEST:
            self_test(str(device))
        yield
        return
    matmul = torch.backends.cuda.matmul
    before = matmul.allow_tf32
    matmul.allow_tf32 = False
    try:
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False, deterministic=True):
            self_test(str(device))
            yield
    finally:
        matmul.allow_tf32 = before


@cache
def self_test(device: str) -> None:
    """Add in float64, and convolve and multiply odd integers whose sums just fit float32, as the CPU does."""
    try:
        wide = torch.full((1,), 2.0**52 + 1, dtype=torch.float64).to(device)
    except (TypeError, RuntimeError) as why:  # mps
        raise PTQ4SNNError(
            f"{device} has no float64, which carries the largest sums, and cannot be used: use the CPU"
        ) from why
    if float(wide + wide) != 2.0**53 + 2:
        raise PTQ4SNNError(f"{device} does not add integers exactly in float64; use the CPU")
    x = ((torch.arange(2 * 64 * 8 * 8) * 37) % 4).float().view(2, 64, 8, 8)
    w = ((torch.arange(64 * 64 * 9) * 7919) % 16383 - 8191).float().view(64, 64, 3, 3)  # TF32 has 11 bits
    rows, columns = x.view(-1, 512), w.flatten()[: 512 * 8].view(512, 8)
    conv = F.conv2d(x.to(device), w.to(device), padding=1).cpu()
    product = (rows.to(device) @ columns.to(device)).cpu()
    same = torch.equal(conv.double(), F.conv2d(x.double(), w.double(), padding=1)) and torch.equal(
        product.double(), rows.double() @ columns.double()
    )
    if not same:
        raise PTQ4SNNError(f"{device} does not multiply integers exactly in float32; use the CPU")
