"""Spikes that are multiplied with a constant of their channel (ann2snn's ChannelVoltageScaler): the factor
goes into the weights of the projections that read them, or behind the outputs.

Factors are followed through the operations that keep channels apart: reshapes, means, sums, maxima.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from ptq4snn.discovery.editing import Moved
from ptq4snn.discovery.exclusion import advice
from ptq4snn.discovery.graph import Graph, Node
from ptq4snn.discovery.operations import KINDS
from ptq4snn.discovery.projection_modules import channel_axis
from ptq4snn.discovery.record import FACTORIES
from ptq4snn.discovery.rules.support import call
from ptq4snn.errors import UnsupportedOperation

__all__ = ["SpikeScales", "find_spike_scales"]

MEANS = {*KINDS["mean pool"], *KINDS["adaptive mean pool"], *KINDS["sum"]}
MAXIMA = {*KINDS["max pool"], *KINDS["adaptive max pool"], *KINDS["maximum"]}
FLAT = 1e-12


@dataclass
class SpikeScales:
    columns: dict[str, Tensor] = field(default_factory=dict)  # [inputs] by projection
    outputs: dict[int, tuple[int, Tensor]] = field(default_factory=dict)  # by value: axis from the end, [C]
    folded: set[str] = field(default_factory=set)  # calls that are in the weights


def find_spike_scales(graph: Graph, modules: dict[str, nn.Module]) -> SpikeScales:
    found = SpikeScales()
    factors: dict[int, tuple[Tensor, frozenset[str]]] = {}  # by value, with the calls it comes from
    for node in graph.nodes:
        module = modules.get(node.target) if node.kind == "moved" else None
        if isinstance(module, Moved) and module.kind == "scale" and module.constant is not None:
            before, calls = factors.get(node.inputs[0], (torch.ones(()), frozenset()))
            shape = graph.values[node.outputs[0]].shape
            factor = (before.double() * module.constant.double().cpu()).expand(shape)
            factors[node.outputs[0]] = factor, calls | {node.target}
        elif any(v in factors for v in node.inputs) and node.op not in FACTORIES:
            _follow(graph, node, factors, found, modules)
    ends = [v for v in graph.outputs if v in factors]
    for v in ends:
        found.outputs[v] = _at_output(*factors[v])
    if both := found.folded & {name for v in ends for name in factors[v][1]}:
        raise _refusal(both, "are returned and also read by a layer")
    return found


def _follow(
    graph: Graph, node: Node, factors: dict[int, tuple[Tensor, frozenset[str]]], found: SpikeScales,
    modules: dict[str, nn.Module],
) -> None:  # fmt: skip
    """What one node makes of factors."""
    names = frozenset().union(*(factors[v][1] for v in node.inputs if v in factors))
    if node.kind == "projection":
        columns = _columns(factors[node.inputs[0]][0], modules[node.target], names)
        if not torch.equal(found.columns.setdefault(node.target, columns), columns):
            raise _refusal(names, f"reach '{node.target}' with other factors from call to call")
        found.folded |= names
        return
    known = {
        v: factors[v][0] if v in factors else torch.ones(graph.values[v].shape, dtype=torch.float64)
        for v in node.inputs
    }
    if node.op in KINDS["shape"]:
        made = call(node, known)
    elif node.op in MEANS or node.op in MAXIMA:
        made = _joined(node, known, names)
    else:
        raise _refusal(names, f"go into {node.op.lstrip('_')}")
    factors.update({v: (t, names) for v, t in zip(node.outputs, made, strict=False)})


def _joined(node: Node, known: dict[int, Tensor], names: frozenset[str]) -> list[Tensor]:
    """Of a mean, a sum or a maximum: the factor that all joined elements have."""
    (x,) = known.values()
    ones = call(node, {v: torch.ones_like(t) for v, t in known.items()})[0]
    made = call(node, known)[0] / ones
    squares = call(node, {v: t * t for v, t in known.items()})[0] / ones
    if bool((squares - made * made).abs().max() > FLAT * x.abs().max() ** 2):
        raise _refusal(names, "of several channels are joined")
    return [made]


def _columns(factor: Tensor, module: nn.Module, names: frozenset[str]) -> Tensor:
    """[inputs] of a projection."""
    rows = factor.movedim(channel_axis(module), 0).flatten(1)
    if bool(((rows - rows[:, :1]).abs() > FLAT * rows.abs().max()).any()):
        raise _refusal(names, "differ inside of a channel")
    return rows[:, 0].clone()


def _at_output(factor: Tensor, names: frozenset[str]) -> tuple[int, Tensor]:
    for axis in range(factor.dim()):
        rows = factor.movedim(axis, 0).flatten(1)
        if torch.equal(rows, rows[:, :1].expand_as(rows)):
            return axis - factor.dim(), rows[:, 0].clone()
    raise _refusal(names, "differ along several axes of an output")


def _refusal(names: Iterable[str], what: str) -> UnsupportedOperation:
    place = min(names).rpartition(".")[0]
    return UnsupportedOperation(
        f"spikes that '{place or 'the model'}' multiplies with a constant of their channel {what}; multiply "
        f"the weights of the next layer instead, or keep it in float: {advice([place or 'LAYER'])}"
    )
