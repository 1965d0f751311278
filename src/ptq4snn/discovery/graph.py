"""The recorded forward pass: values and the nodes that made them, in execution order.

Pairs are a reading of this graph, and an integer program can be lowered from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from ptq4snn.network.edit import EditKind

__all__ = ["Graph", "Node", "NodeKind", "Ref", "Site", "Value", "Wish"]

NodeKind = Literal["op", "projection", "norm", "neuron", "before", "float", "moved"]
MAX_INDICES = 2**16


@dataclass(frozen=True)
class Ref:
    """Stands for a tensor in a node's arguments."""

    value: int


@dataclass(frozen=True)
class Value:
    """One tensor of the forward pass. `data` is kept where all elements are known to be equal, `indices` for
    small integer tensors, which other tensors may be indexed with."""

    id: int
    shape: tuple[int, ...]
    dtype: str
    name: str | None = None
    data: float | None = None
    indices: Tensor | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Site:
    """A call in a module's forward (discovery/sites.py)."""

    call: int  # which call of the module
    place: int  # in its code
    turn: int  # how many times that place ran in this call before


@dataclass(frozen=True)
class Wish:
    """What has to go through a module of its own before it can be followed (network/edit.py)."""

    kind: EditKind
    node: Node
    operand: int  # which of the node's operands goes through it
    shape: tuple[int, ...]
    axis: int
    key: Any  # the same for calls that one module can answer


@dataclass(frozen=True)
class Node:
    """`target` is an ATen operation (`aten.add.Tensor`) or a module path; `scope` is the module it ran in."""

    kind: NodeKind
    target: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    scope: str
    given: dict[str, Any] = field(default_factory=dict)  # arguments of an operation by name, with defaults
    site: Site | None = None  # where in the code of its scope it stands

    @property
    def op(self) -> str:
        """The operation's bare name: aten.add_.Tensor -> add."""
        return self.target.split(".")[1].rstrip("_") if self.kind == "op" else self.kind


@dataclass
class Graph:
    values: list[Value] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    step_outputs: list[int] = field(default_factory=list)  # of a net inside its loop, at the first step
    wishes: list[Wish] | None = None  # a list: what must be edited is noted while the graph is walked

    def add_value(self, tensor: Tensor, name: str | None = None, uniform: bool = False) -> int:
        """A new value like `tensor`; with `uniform` it is looked at whether all elements are equal."""
        data = None
        if name != "input" and (tensor.numel() == 1 or (uniform and _is_uniform(tensor))):
            data = float(tensor.flatten()[0])
        indexing = tensor.dtype in (torch.int64, torch.int32) and tensor.numel() <= MAX_INDICES
        indices = tensor.detach().clone() if indexing else None
        dtype = str(tensor.dtype).removeprefix("torch.")
        self.values.append(Value(len(self.values), tuple(tensor.shape), dtype, name, data, indices))
        return len(self.values) - 1

    def add_like(self, value: int) -> int:
        """A new value of the same shape and type as another."""
        self.values.append(
            replace(self.values[value], id=len(self.values), name="result", data=None, indices=None)
        )
        return len(self.values) - 1

    def visits(self) -> Iterator[tuple[int, Node, list[int]]]:
        """Every node in order, with its number and the values that nothing reads after it."""
        last_use = {v: i for i, node in enumerate(self.nodes) for v in node.inputs}
        last_use.update(dict.fromkeys([*self.outputs, *self.step_outputs], len(self.nodes)))
        for i, node in enumerate(self.nodes):
            yield i, node, [v for v in (*node.inputs, *node.outputs) if last_use.get(v, -1) <= i]

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form: names, shapes, wiring and plain arguments."""
        return {
            "inputs": self.inputs,
            "outputs": self.outputs,
            "values": [{"id": v.id, "shape": list(v.shape), "dtype": v.dtype} for v in self.values],
            "nodes": [
                {
                    "kind": n.kind,
                    "target": n.target,
                    "scope": n.scope,
                    "inputs": list(n.inputs),
                    "outputs": list(n.outputs),
                    "args": _plain(n.args),
                    "kwargs": _plain(n.kwargs),
                }
                for n in self.nodes
            ],
        }


def _is_uniform(tensor: Tensor) -> bool:
    return tensor.numel() > 0 and bool((tensor == tensor.flatten()[0]).all())


def _plain(x: Any) -> Any:
    if isinstance(x, Ref):
        return f"%{x.value}"
    if isinstance(x, Node):
        return {"target": x.target, "args": _plain(x.args), "kwargs": _plain(x.kwargs)}
    if isinstance(x, (list, tuple)):
        return [_plain(i) for i in x]
    if isinstance(x, dict):
        return {k: _plain(v) for k, v in x.items()}
    return x if isinstance(x, (int, float, str, bool, type(None))) else str(x)
