"""What forward does in front of its first layers and behind its last, and what the plan does in its place.

    (x - mean) / std     on the input: the first layer's grid reads x itself
    softmax, argmax      on what is returned: done behind the decoded outputs

Both are calls that the quantized model leaves out (network/edit.py, `Moved`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ptq4snn.discovery.graph import Graph, Node, Ref, Wish
from ptq4snn.discovery.looping import Looped
from ptq4snn.discovery.needed_edits import constants, edits_of
from ptq4snn.discovery.operations import KINDS
from ptq4snn.discovery.projection_modules import channel_axis
from ptq4snn.discovery.record import FACTORIES
from ptq4snn.discovery.resetting import reset_neurons
from ptq4snn.discovery.surgery import copy_model
from ptq4snn.network.edit import Edit
from ptq4snn.numerics.finishing import MAX_CLASSES

__all__ = ["Moves", "find_moves"]

FINISHING = {"_softmax": "softmax", "_log_softmax": "log_softmax", "argmax": "argmax"}
AFFINE = {*KINDS["add"], *KINDS["multiply"]}
FIRST_CALL = 1  # of a module, in a recording
FLAT = 1e-9  # a factor that differs less from pixel to pixel is one


@dataclass(frozen=True)
class Moves:
    """Calls that move, and what those on the input's way come to: (factors, constants) of every projection
    that reads it, one entry or one for each of its input channels."""

    edits: tuple[Edit, ...] = ()
    inputs: Mapping[str, tuple[tuple[float, ...], tuple[float, ...]]] = field(default_factory=dict)


def find_moves(graph: Graph, model: nn.Module, sample: Tensor) -> Moves:
    """What can move. The model is not changed."""
    wishes, inputs = _on_the_input(graph), {}
    if isinstance(model, Looped) and any(w.node.scope == "" and _is_outside(w.node) for w in wishes):
        wishes = []  # a loop around the net does it, and a step by itself would read what it made
    if wishes:
        inputs = _affines(graph, model, sample)
    if not inputs:
        wishes = []
    return Moves(tuple(edits_of(graph, [*wishes, *_at_the_end(graph)], model)), inputs)


def _is_outside(node: Node) -> bool:
    """Whether it stands in the loop around a net, not in the net's own forward."""
    return node.site is not None and node.site.call == FIRST_CALL


def _at_the_end(graph: Graph) -> list[Wish]:
    """Softmaxes and the like whose results are returned, and only that."""
    readers: dict[int, list[Node]] = {}
    for node in graph.nodes:
        for v in node.inputs:
            readers.setdefault(v, []).append(node)
    runs = Counter((n.scope, n.site.place) for n in graph.nodes if n.site is not None)
    wishes: list[Wish] = []
    final: set[int] = set()  # values that nothing but the end reads
    for node in reversed(graph.nodes):
        how = FINISHING.get(node.op)
        if how is None or node.site is None or runs[node.scope, node.site.place] > 1:
            continue
        after = readers.get(node.outputs[0], [])
        ends = all(n.outputs[0] in final for n in after) and (after or node.outputs[0] in graph.outputs)
        rank, dim = len(graph.values[node.inputs[0]].shape), node.given["dim"]
        if not ends or dim is None or rank == 0 or node.given.get("keepdim"):
            continue
        if graph.values[node.inputs[0]].shape[dim] <= MAX_CLASSES:
            final.add(node.outputs[0])
            wishes.append(Wish(how, node, 0, (1,), dim % rank - rank, how))  # type: ignore[arg-type]
    return wishes[::-1]


def _on_the_input(graph: Graph) -> list[Wish]:
    """Sums and products with constants between the input and the layers that read it; none where anything
    else than a layer reads what they make."""
    constant, data = constants(graph), set(graph.inputs)
    wishes: list[Wish] = []
    for node in graph.nodes:
        read = [v for v in node.inputs if v in data]
        if not read or node.op in FACTORIES or node.kind == "projection":
            continue
        if node.op in AFFINE and _is_affine(graph, node, read, constant):
            operand = node.given["self"]
            at = 0 if isinstance(operand, Ref) and operand.value in data else 1
            wishes.append(Wish("input", node, at, (1,), -1, "input"))
        elif node.op not in KINDS["shape"] or not all(v in data or v in constant for v in node.inputs):
            return []
        data.update(node.outputs)
    return wishes if not data & set(graph.outputs) else []


def _is_affine(graph: Graph, node: Node, read: list[int], constant: set[int]) -> bool:
    """factor * x or x + constant, of the same shape as x."""
    others = [v for v in node.inputs if v not in read]
    upside_down = node.op == "div" and node.given["other"] == Ref(read[0])
    return (
        len(read) == 1
        and node.site is not None
        and all(v in constant for v in others)
        and not upside_down
        and node.given.get("rounding_mode") is None
        and graph.values[read[0]].shape == graph.values[node.outputs[0]].shape
    )


def _affines(
    graph: Graph, model: nn.Module, sample: Tensor
) -> dict[str, tuple[tuple[float, ...], tuple[float, ...]]]:
    """What the first layers see of zeros and of the largest input, in float64 where the model's own code
    leaves it so; none where it differs inside a channel."""
    names, wide = _first_layers(graph), copy_model(model, model.parameters()).double()
    x = sample.double() if sample.is_floating_point() else sample
    top = float(x.abs().max()) or 1.0
    low, high = (_seen(wide, names, torch.full_like(x, v)) for v in (0, top))
    found = {}
    for name in names:
        if name not in low or name not in high:
            return {}
        module = wide.get_submodule(name)
        axis = None if isinstance(module, nn.Linear) else channel_axis(module)
        offset = _by_channel(low[name].double(), axis)
        gain = _by_channel((high[name].double() - low[name].double()) / top, axis)
        if offset is None or gain is None or 0.0 in gain:
            return {}
        found[name] = (gain, offset)
    return found


def _first_layers(graph: Graph) -> list[str]:
    """Projections that read the input through shapes, sums and products alone."""
    data, found = set(graph.inputs), {}
    for node in graph.nodes:
        if not data & set(node.inputs) or node.op in FACTORIES:
            continue
        if node.kind == "projection":
            found[node.target] = True
        elif node.op in AFFINE or node.op in KINDS["shape"]:
            data.update(node.outputs)
    return list(found)


def _seen(model: nn.Module, names: list[str], x: Tensor) -> dict[str, Tensor]:
    """What the layers get in one pass, as far as it runs."""
    seen: dict[str, Tensor] = {}

    def note(name: str) -> Callable[[nn.Module, Any], None]:
        def hook(_m: nn.Module, args: Any) -> None:
            seen.setdefault(name, args[0].clone())

        return hook

    handles = [model.get_submodule(n).register_forward_pre_hook(note(n)) for n in names]
    reset_neurons(model)
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]), suppress(Exception):
            model(x)  # which may turn it into float32 in front of a layer in float64
    finally:
        reset_neurons(model)
        for h in handles:
            h.remove()
    return seen


def _by_channel(x: Tensor, axis: int | None) -> tuple[float, ...] | None:
    """The value of each channel; None where a channel has several."""
    rows = x.reshape(1, -1) if axis is None else x.movedim(axis, 0).flatten(1)
    if bool(((rows - rows[:, :1]).abs() > FLAT * (1 + rows.abs())).any()):
        return None
    return tuple(rows[:, 0].tolist())
