"""Follow a program and write it as nodes of NIR, which knows projections, sums over windows and neurons.

Values are followed by what they are made of: the nodes whose outputs are summed there, and their shape. What
NIR has no words for is refused with its place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptq4snn.errors import PTQ4SNNError
from ptq4snn.export.nir_form.naming import printable
from ptq4snn.export.nir_form.neurons import Wave, neuron_node
from ptq4snn.export.nir_form.projections import projection_node
from ptq4snn.files import short
from ptq4snn.network import program as ops
from ptq4snn.network.plan import Plan
from ptq4snn.runtime.parameters import Model

__all__ = ["Walk", "walk"]

Array = NDArray[Any]
NO_POOL = "NIR knows sums over windows of an image only, no max-pool and no resizing"


@dataclass(frozen=True)
class Made:
    """A value: outputs of `sources`, summed, of `shape` (channels first); `late`: of a step before."""

    sources: tuple[str, ...]
    shape: tuple[int, ...]
    late: int | None = None
    summed: bool = False  # over the steps: a reader sums what comes out at the end instead


@dataclass
class Walk:
    model: Model
    plan: Plan
    library: Any  # the package nir
    dt: float
    nodes: dict[str, Any] = field(default_factory=dict)
    edges: list[tuple[str, str]] = field(default_factory=list)
    made: dict[int, Made] = field(default_factory=dict)
    late: list[tuple[int, str]] = field(default_factory=list)  # a value, and who reads it a step later
    currents: dict[int, Wave] = field(default_factory=dict)  # synaptic currents that no membrane has read yet

    def refuse(self, op: ops.Operation, why: str) -> PTQ4SNNError:
        return PTQ4SNNError(f"'{short(printable(op.name))}' ({op.kind}) cannot be written as NIR: {why}")

    def node(self, op: ops.Operation, node: Any, source: Made) -> str:
        """A new node behind what is summed at its input."""
        name = f"n{len(self.nodes)}"
        node.metadata = {**(node.metadata or {}), "q.name": printable(op.name)}
        self.nodes[name] = node
        self.edges += [(s, name) for s in source.sources]
        if source.late is not None:
            self.late.append((source.late, name))
        return name


def walk(w: Walk) -> None:
    for op in w.model.program.operations:
        writer = _WRITERS.get(type(op))
        if writer is None:
            raise w.refuse(op, f"NIR has no {op.kind}")
        writer(w, op)
    for value, node in w.late:  # edges back, which every reader takes one step later
        w.edges += [(s, node) for s in w.made[value].sources]


def _quantize(w: Walk, op: ops.Quantize) -> None:
    """The input as it is; its 8-bit levels are in the metadata."""
    shape, value = w.model.program.input.shape, w.model.program.values[op.output]
    count = value.positions * value.channels
    first = np.arange(count).reshape(value.channels, value.positions).T.reshape(-1)
    in_order = shape == (value.channels,) or (len(shape) > 1 and shape[0] == value.channels)
    if not in_order or not np.array_equal(op.index.array(), first):
        raise w.refuse(op, "it reads the input in another order than [channels, ...]")
    if "input" not in w.nodes:
        w.nodes["input"] = w.library.Input(np.array(shape))
    w.made[op.output] = Made(("input",), tuple(shape))


def _project(w: Walk, op: ops.Project) -> None:
    source = w.made[op.inputs[0]]
    if op.window is None and len(source.shape) > 1 and prod(source.shape[1:]) == 1:
        flat = w.library.Flatten({"input": np.array(source.shape)}, 0)
        source = replace(source, sources=(w.node(op, flat, source),), shape=source.shape[:1])
    node, shape = projection_node(w, op, source.shape, source.summed)
    w.made[op.output] = Made((w.node(op, node, source),), shape, summed=source.summed)


def _pool(w: Walk, op: ops.Pool) -> None:
    window, source = op.window, w.made[op.inputs[0]]
    if op.how != "sum" or op.weights is not None or op.axes is not None or len(source.shape) != 3:
        raise w.refuse(op, NO_POOL)
    if window is not None and len(window.size) == 2:
        if window.before != window.after or set(window.dilation) != {1}:
            raise w.refuse(op, "its padding is not the same on both sides")
        numbers, size = (window.kernel, window.stride, window.before), window.out_size
    else:
        tile = _tile(op, source.shape[1:], w.model.program.values[op.output].positions)
        if tile is None:
            raise w.refuse(op, NO_POOL)
        numbers = tile, tile, (0, 0)
        size = tuple(n // k for n, k in zip(source.shape[1:], tile, strict=True))
    node = w.library.SumPool2d(*(np.array(a) for a in numbers))
    w.made[op.output] = replace(source, sources=(w.node(op, node, source),), shape=(source.shape[0], *size))


def _tile(op: ops.Pool, size: tuple[int, ...], count: int) -> tuple[int, int] | None:
    """The kernel of a pool over `count` tiles of an image, however the program writes it."""
    taps, _ = op.table(count)
    height, width = size
    at = np.arange(height * width).reshape(height, width)
    for h in (h for h in range(1, height + 1) if height % h == 0):
        for k in (k for k in range(1, width + 1) if width % k == 0):
            tiles = at.reshape(height // h, h, width // k, k).transpose(0, 2, 1, 3).reshape(-1, h * k)
            if (
                len(tiles) == count
                and tiles.size == taps.size
                and np.array_equal(np.sort(taps.reshape(tiles.shape), 1), tiles)
            ):
                return h, k
    return None


def _gather(w: Walk, op: ops.Gather) -> None:
    """A flattened image, channels first."""
    value, shape = w.model.program.values[op.output], w.made[op.inputs[0]].shape
    before = w.model.program.values[op.inputs[0]]
    flat = np.arange(before.positions * before.channels).reshape(before.positions, before.channels)
    wanted = flat.T.reshape(-1)
    if op.width != 1 or value.positions != 1 or not np.array_equal(op.index.array(), wanted):
        raise w.refuse(op, "NIR can flatten an image, but moves no elements otherwise")
    node = w.library.Flatten({"input": np.array(shape)}, 0)
    name = w.node(op, node, w.made[op.inputs[0]])
    w.made[op.output] = replace(w.made[op.inputs[0]], sources=(name,), shape=(value.channels,))


def _combine(w: Walk, op: ops.Combine) -> None:
    parts = [w.made[v] for v in op.inputs]
    if set(op.coefficients) != {1} or op.constant or len({p.shape for p in parts}) > 1:
        raise w.refuse(op, "NIR sums what reaches a node, and neither scales nor adds a constant")
    w.made[op.output] = Made(tuple(s for p in parts for s in p.sources), parts[0].shape)


def _neuron(w: Walk, op: ops.Neuron) -> None:
    source = w.made[op.inputs[0]]
    current = w.currents.pop(op.inputs[0], None)
    found = neuron_node(w, op, source.shape, current)
    if isinstance(found, Wave):  # a synapse: the membrane behind it makes the node
        assert op.potential is not None
        w.currents[op.potential] = found
        w.made[op.potential] = source
        return
    name = w.node(op, found, source)
    w.made[op.output] = Made((name,), source.shape)
    if op.potential is not None:
        w.made[op.potential] = Made((name,), source.shape)


def _time_sum(w: Walk, op: ops.TimeSum) -> None:
    """What a reader sums over the steps."""
    w.made[op.output] = replace(w.made[op.inputs[0]], summed=True)


def _delay(w: Walk, op: ops.Delay) -> None:
    """Spikes of a neuron that come back to a projection."""
    makers = {o.output: o for o in w.model.program.operations}
    maker = makers[op.inputs[0]]
    readers = [o for o in w.model.program.operations if op.output in o.inputs]
    if not isinstance(maker, ops.Neuron) or not all(isinstance(o, ops.Project) for o in readers):
        raise w.refuse(op, "what comes back is not a neuron's spikes, or does not reach a projection")
    w.made[op.output] = Made((), w.model.neurons[maker.name].shape, op.inputs[0])


_WRITERS: dict[type[ops.Operation], Callable[[Walk, Any], None]] = {
    ops.Quantize: _quantize,
    ops.Project: _project,
    ops.Neuron: _neuron,
    ops.Pool: _pool,
    ops.Gather: _gather,
    ops.Combine: _combine,
    ops.TimeSum: _time_sum,
    ops.Delay: _delay,
}
