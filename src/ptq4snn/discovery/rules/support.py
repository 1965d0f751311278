"""What the rules share: running an operation on channel numbers, quanta, operands."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map

from ptq4snn.discovery import calls
from ptq4snn.discovery.facts import Constant, Fact
from ptq4snn.discovery.graph import Graph, Node, Ref
from ptq4snn.discovery.thin import spread
from ptq4snn.errors import first_line

__all__ = ["Rule", "Unfollowed", "call", "common_factor", "operands", "through"]

Rule = Callable[[Graph, Node, list[Fact]], list[Fact]]
WHOLE = 1e-9  # a ratio this near to an integer is one


class Unfollowed(Exception):
    """The operation cannot be followed; the message says why."""


def call(node: Node, ids: dict[int, Tensor], view: bool = False) -> list[Tensor]:
    """Run the node's operation on other tensors. Without `view` these may lie differently in memory."""
    _, name, overload = node.target.split(".")
    if not view and name in ("view", "_unsafe_view", "_reshape_alias") and overload == "default":
        name = "reshape"
    func = getattr(getattr(torch.ops.aten, name), overload)
    args, kwargs = tree_map(
        lambda a: ids[a.value] if isinstance(a, Ref) else a,
        (
            list(node.args[:2] if name == "reshape" else node.args),
            {k: v for k, v in node.kwargs.items() if k not in ("dtype", "memory_format", "device")},
        ),
        is_leaf=lambda a: isinstance(a, Ref),
    )
    try:
        return [t for t in tree_flatten(func(*args, **kwargs))[0] if isinstance(t, Tensor)]
    except (RuntimeError, IndexError, TypeError, KeyError) as why:
        raise Unfollowed(f"cannot be repeated on channel numbers: {first_line(why)}") from why


def through(g: Graph, node: Node, ids: list[Tensor | None]) -> list[Tensor | None]:
    """Channel numbers of the outputs from those of the inputs; None stands for a constant."""
    if all(i is None for i in ids):
        return [None] * len(node.outputs)
    known = {}
    for v, i in zip(node.inputs, ids, strict=True):
        value = g.values[v]
        blank = value.indices if value.indices is not None else torch.zeros(value.shape, dtype=torch.float64)
        known[v] = blank if i is None else i
    return [spread(i) for i in call(node, known)]


def common_factor(a: float, b: float) -> float:
    """The finer of two quanta, if the coarser is a whole multiple of it."""
    fine, coarse = min(a, b), max(a, b)
    if abs(coarse / fine - round(coarse / fine)) > WHOLE:
        raise Unfollowed(f"joins numbers of unrelated quanta {a:g} and {b:g}")
    return fine


def whole(x: float) -> int | None:
    """x as an integer, None where it is none."""
    return round(x) if abs(x - round(x)) < WHOLE else None


def operands(node: Node, facts: list[Fact]) -> list[Fact]:
    """The two operands; literals become Constants."""
    by_value = dict(zip(node.inputs, facts, strict=True))
    return [by_value[a.value] if isinstance(a, Ref) else Constant(a) for a in calls.operands(node)]
