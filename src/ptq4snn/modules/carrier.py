"""Integers carried in float tensors: exact rounding, straight-through gradients, streams that saturate."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["Clock", "StreamTensor", "counted", "plain", "round_through", "tracked"]

_ADDS = {
    torch.add, torch.sub, Tensor.add, Tensor.add_, Tensor.sub, Tensor.sub_, Tensor.__add__, Tensor.__radd__,
    Tensor.__iadd__, Tensor.__sub__, Tensor.__isub__,
}  # fmt: skip
_REDUCTIONS = {
    torch.mean, torch.sum, Tensor.mean, Tensor.sum, F.avg_pool1d, F.avg_pool2d, F.avg_pool3d,
    F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d,
}  # fmt: skip
STREAM_LOW, STREAM_HIGH = -32768, 32767


class Clock:
    """Time steps that neurons have run since the forward pass began; a mean over time divides by them."""

    def __init__(self) -> None:
        self.steps = 0
        self.passes = 0

    def start(self) -> None:
        self.steps, self.passes = 0, self.passes + 1


class _Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.round()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0]


def tracked(x: Tensor) -> bool:
    """Whether a gradient will come back through x."""
    return torch.is_grad_enabled() and x.requires_grad


def round_through(x: Tensor) -> Tensor:
    """Halves to even; the gradient passes unchanged. Without one `x`, which must be fresh, is overwritten."""
    if not tracked(x):
        return x.round_()
    y: Tensor = _Round.apply(x)  # type: ignore[no-untyped-call]
    return y


def counted(x: Tensor, inverse: float) -> Tensor:
    """The integer that a carrier x = integer / inverse stands for. Means leave one rounding of float32 in x:
    up to 2^23 it goes away again, but only if the product is not rounded to float32 once more."""
    if inverse == 1.0:
        return x
    exact = math.frexp(inverse)[0] == 0.5
    return round_through(x * inverse) if exact else round_through(x.double() * inverse).to(x.dtype)


class StreamTensor(Tensor):
    """A 16-bit stream (membrane shortcut): whatever the model's code does with it, every add saturates.

    Sums over many positions do not fit float32: they and means are made in float64.
    """

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _REDUCTIONS and args and isinstance(args[0], StreamTensor):
            args = (args[0].double(), *args[1:])
        out = super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]
        if func in _ADDS and isinstance(out, Tensor):
            with torch._C.DisableTorchFunctionSubclass():
                clipped = plain(out).clamp_(STREAM_LOW, STREAM_HIGH)
            return clipped.as_subclass(StreamTensor)
        return out


def plain(x: Tensor) -> Tensor:
    return x.as_subclass(Tensor) if type(x) is StreamTensor else x
