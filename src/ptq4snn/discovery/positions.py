"""Constants that differ from position to position (position embeddings), added to a current: which bias each
output position of the projection in front of them gets.

Elements are followed by number, through the operations between the projection and the sum.
"""

from __future__ import annotations

from collections import Counter

import torch
from torch import Tensor, nn

from ptq4snn.discovery.editing import Moved
from ptq4snn.discovery.exclusion import advice
from ptq4snn.discovery.graph import Graph, Node
from ptq4snn.discovery.operations import KINDS
from ptq4snn.discovery.projection_modules import channel_axis
from ptq4snn.discovery.rules.support import Unfollowed, call
from ptq4snn.errors import UnsupportedOperation

__all__ = ["find_places"]


def find_places(graph: Graph, modules: dict[str, nn.Module]) -> dict[str, Tensor]:
    """By projection: what is added to its output [*positions, C], float64."""
    found: dict[str, Tensor] = {}
    done: set[str] = set()
    for node in graph.nodes:
        module = modules.get(node.target) if node.kind == "moved" else None
        if (
            not isinstance(module, Moved)
            or module.kind != "position"
            or module.constant is None
            or node.target in done
        ):
            continue
        done.add(node.target)
        try:
            first, numbers = _numbered(graph, node)
            places = _by_position(
                first, numbers, module.constant.double().cpu(), graph, modules[first.target]
            )
        except Unfollowed as why:
            place = node.target.rpartition(".")[0]
            raise UnsupportedOperation(
                f"a constant that differs from position to position is added in '{place or 'the model'}' to "
                f"a current {why}; add it right behind a layer, or keep it in float: "
                f"{advice(_layers_before(graph, node))}"
            ) from why
        found[first.target] = found.get(first.target, 0.0) + places
    return found


def _layers_before(graph: Graph, node: Node) -> list[str]:
    """The projections that a sum reads, whatever lies between."""
    made = {v: n for n in graph.nodes for v in n.outputs}
    todo, found, seen = [node.inputs[0]], set[str](), set[int]()
    while todo:
        value = todo.pop()
        step = made.get(value)
        if step is None or value in seen:
            continue
        seen.add(value)
        if step.kind == "projection":
            found.add(step.target)
        else:
            todo += step.inputs
    return sorted(found)


def _numbered(graph: Graph, node: Node) -> tuple[Node, Tensor]:
    """The projection in front of a sum, and the number of the element in its output that each element of the
    sum is."""
    made = {v: n for n in graph.nodes for v in n.outputs}
    readers = Counter(v for n in graph.nodes for v in n.inputs) + Counter(graph.outputs)
    path: list[Node] = []
    value = node.inputs[0]
    while value in made and made[value].kind != "projection":
        step = made[value]
        moves = step.kind == "op" and step.op in KINDS["shape"] and len(step.inputs) == 1
        if readers[value] > 1 and not (moves and len(step.outputs) > 1):
            raise Unfollowed("that something else reads too")
        if not moves and step.kind not in ("norm", "moved"):
            raise Unfollowed("that is not the output of one layer alone")
        path.append(step)
        value = step.inputs[0]
    if value not in made or readers[value] > 1:
        raise Unfollowed("that something else reads too")
    shape = graph.values[value].shape
    numbers = torch.arange(torch.Size(shape).numel(), dtype=torch.float64).reshape(shape)
    ends = [node.inputs[0], *(step.inputs[0] for step in path)]  # what each step makes
    for step, end in zip(reversed(path), reversed(ends[: len(path)]), strict=True):
        if step.kind == "op":
            numbers = call(step, {step.inputs[0]: numbers})[step.outputs.index(end)]
    return made[value], numbers


def _by_position(first: Node, numbers: Tensor, shift: Tensor, graph: Graph, module: nn.Module) -> Tensor:
    """[*positions, C] of the projection's output."""
    shape, axis = graph.values[first.outputs[0]].shape, channel_axis(module)
    number, added = numbers.reshape(-1).long(), shift.expand(numbers.shape).reshape(-1)
    full = torch.zeros(torch.Size(shape).numel(), dtype=torch.float64)
    full[number] = added
    if not torch.equal(full[number], added):
        raise Unfollowed("of which one element becomes several with constants of their own")
    places = full.reshape(shape).movedim(axis, -1)
    lead = places.dim() - 1 if axis == -1 else places.dim() + axis  # axes that may be samples and steps
    for _ in range(lead):
        if not torch.equal(places, places[:1].expand_as(places)):
            break
        places = places[0]
    if axis != -1 and places.dim() != -axis:
        raise Unfollowed("from sample to sample or from step to step")
    if any(torch.equal(places, places.narrow(d, 0, 1).expand_as(places)) for d in range(places.dim() - 1)):
        raise Unfollowed("whose positions stand in front of the samples")
    return places
