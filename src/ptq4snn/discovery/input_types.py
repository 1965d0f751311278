"""Types of numbers: half precision is widened, and samples come in the type that the model takes.

Sums of integers fit neither float16 (11 bits) nor bfloat16 (8 bits). A model of such weights is read as the
float32 model of the same weights. Event frames are often stored as uint8, and a model that does not turn them
into floats by itself gets them as floats: the same numbers.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from ptq4snn.discovery.resetting import reset_neurons
from ptq4snn.errors import UnsupportedModel

__all__ = ["in_full", "input_type", "optional_arguments", "refuse_several_inputs", "widened"]

NARROW = (torch.float16, torch.bfloat16)


def widened(model: nn.Module) -> nn.Module:
    """The model with what it holds in half precision in float32, in place."""
    narrow = any(t.dtype in NARROW for t in (*model.parameters(), *model.buffers()))
    return model._apply(in_full) if narrow else model


def in_full(x: Tensor) -> Tensor:
    """x in float32 if it is in half precision."""
    return x.float() if x.dtype in NARROW else x


def input_type(model: nn.Module, x: Tensor) -> torch.dtype:
    """The type in which the model takes samples such as x: their own where it runs on that, else that of its
    weights."""
    own = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
    if x.dtype == own:
        return own
    if _runs(model, x) or not _runs(model, x.to(own)):  # what else is wrong is told where it is followed
        return x.dtype
    return own


def _runs(model: nn.Module, x: Tensor) -> bool:
    reset_neurons(model)
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            model(x)
    except Exception:  # the user's own code may fail in any way
        return False
    finally:
        reset_neurons(model)
    return True


def refuse_several_inputs(model: nn.Module) -> None:
    """One tensor goes in: what asks for more is told how to give it."""
    names = _arguments(model.forward, required=True)
    if len(names) > 1:
        raise UnsupportedModel(
            f"the model's forward takes several inputs, {', '.join(names)}, and a program has one; put them "
            "into one tensor and take it apart in a module around the model, or give loop=your_function(net, "
            "x) if they are states that a loop hands on"
        )


def optional_arguments(forward: Any) -> list[str]:
    """Names of the arguments that a call may leave out."""
    return _arguments(forward, required=False)


def _arguments(forward: Any, required: bool) -> list[str]:
    try:
        given = list(inspect.signature(forward).parameters.values())
    except (TypeError, ValueError):
        return []
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in given if p.kind not in several and (p.default is p.empty) == required]
