"""Constants in chains of projections: biases and shifts of BatchNorms are left to the last projection.

    W2 (W1 x + b1) + b2   =   W2 (W1 x) + (b2 + sum over the taps of W2 b1)

This holds where b1 arrives the same everywhere, so the next projection must not pad. The number between the
two is then the smaller one, which its 8 bits suit better, and a BatchNorm that pads needs a border of zeros.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ptq4snn.discovery.facts import TIME, Current
from ptq4snn.discovery.info import Norm, ProjectionInfo
from ptq4snn.discovery.projection_modules import channel_axis
from ptq4snn.discovery.walk import ProjectionCall, Walk
from ptq4snn.errors import UnsupportedOperation

__all__ = ["carry_constants", "check_borders", "even_constant"]


def pads(projection: Any) -> bool:
    """Whether a convolution adds a border of its own."""
    padding = getattr(projection, "padding", 0)
    return (
        padding != "valid" if isinstance(padding, str) else any(torch.as_tensor(padding).flatten().tolist())
    )


def even_constant(w: Walk, calls: list[ProjectionCall], module: nn.Module) -> float | None:
    """What 1 everywhere at the output of a chain's first projection is at the input of the next; None where
    that differs from place to place, or where the channels do not stay what they were."""
    constants = set()
    for call in calls:
        fact = call.fact
        if not isinstance(fact, Current) or len(fact.projections) > 1 or pads(module):
            return None
        if len(fact.sheets) > 1:  # summed over calls: 1 everywhere arrives several times
            return None
        (sheet,), (name,) = fact.sheets, fact.projections
        own = sheet.ids % TIME - w.base[name]
        numbers = torch.arange(w.channels[name], dtype=own.dtype)
        axis = channel_axis(module)
        if sheet.uneven or own.shape[axis] != len(numbers):
            return None
        if not torch.equal(own, numbers.view(-1, *[1] * (-axis - 1)).expand_as(own)):
            return None
        constants.add(sheet.constant)
    return constants.pop() if len(constants) == 1 else None


def check_borders(w: Walk, name: str, norms: tuple[Norm, ...], modules: dict[str, nn.Module]) -> None:
    """A border behind a projection must be read by projections alone that do not pad."""
    if not any(n.border for n in norms):
        return
    bn = next(n.name for n in norms if n.border)
    if not norms[0].border or modules[name].bias is not None:
        raise UnsupportedOperation(
            f"the BatchNorm '{bn}' pads, and '{name}' in front of it has a bias or a norm of its own; drop it"
        )
    facts = [c.fact for c in w.neurons] + w.outputs
    readers: dict[str, list[ProjectionCall]] = {}
    for call in w.projections:
        if isinstance(call.fact, Current) and name in call.fact.projections:
            readers.setdefault(call.name, []).append(call)
    even = all(even_constant(w, calls, modules[r]) is not None for r, calls in readers.items())
    if not even or any(name in getattr(f, "projections", ()) for f in facts):
        raise UnsupportedOperation(
            f"the BatchNorm '{bn}' pads with a constant, which can be folded into a convolution without "
            f"padding only; put one behind it"
        )


def carry_constants(
    model: nn.Module, projections: dict[str, ProjectionInfo], outputs: set[str | None]
) -> None:
    """Move the biases of folded projections on through their chains, in place; `outputs` keep theirs."""
    for name, info in projections.items():
        first: Any = model.get_submodule(name)
        readers = [q for q in projections.values() if name in q.chained_from]
        if info.role != "chain" or first.bias is None or name in outputs:
            continue
        if any(q.constant is None for q in readers):
            continue
        for q in readers:
            module: Any = model.get_submodule(q.name)
            weight = module.weight.detach().double()
            more = _through(weight, getattr(module, "groups", 1), first.bias.detach().double() * q.constant)
            bias = more if module.bias is None else more + module.bias.detach().double()
            module.bias = nn.Parameter(bias.to(module.weight), requires_grad=False)
        first.bias = None


def _through(weight: Tensor, groups: int, constant: Tensor) -> Tensor:
    """Output [C_out] of a projection without padding whose input is constant [C_in] everywhere."""
    out, inputs = weight.shape[:2]
    taps = weight.reshape(out, inputs, -1).sum(2)
    return (taps * constant.view(groups, inputs).repeat_interleave(out // groups, 0)).sum(1)
