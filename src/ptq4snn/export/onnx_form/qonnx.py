"""A step of a plain chain of layers in QONNX, for readers that build hardware (FINN, hls4ml).

Everything is a whole number in float32, exact by the proven bounds: weights and states are Quant nodes of
their widths and of scale 1, and a neuron fires by a BipolarQuant:

    A  = W x + b + Quant(V m)          V: what comes in as a state
    S  = (BipolarQuant(A - theta) + 1) / 2
    V' = Quant(A' m), A' = A (1 - S) or A - rho S

x are the input's 8-bit levels, y the integers of one step; a reader sums them over the steps. One sample, for
these readers want sizes that are known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ptq4snn import __version__
from ptq4snn.errors import PTQ4SNNError
from ptq4snn.export.nir_form.naming import printable
from ptq4snn.export.onnx_form.graph import Array, Name, Nodes, Pool, carrier
from ptq4snn.extras import needed_by
from ptq4snn.files import short
from ptq4snn.network import program as ops
from ptq4snn.runtime.decode import worth_of
from ptq4snn.runtime.numpy_neuron import largest_of
from ptq4snn.runtime.numpy_project import border_map
from ptq4snn.runtime.parameters import Model, NeuronNumbers

with needed_by("ptq4snn.export.onnx"):
    import onnx as library
    from onnx import TensorProto, helper

__all__ = ["qonnx_model"]

DOMAIN = "qonnx.custom_op.general"
OPSET, IR = 13, 8  # which these readers know
FLOAT = "float32"


def qonnx_model(model: Model) -> Any:
    """The ModelProto of one step, or a refusal that names the place."""
    chain = _Chain(model, Nodes(Pool(), "n"))
    for op in model.program.operations:
        writer = _WRITERS.get(type(op))
        if writer is None:
            raise chain.refuse(op, f"a plain chain of layers has no {op.kind}")
        writer(chain, op)
    for i, out in enumerate(model.program.outputs):
        chain.give(f"y{i}", *chain.output(out))
    graph = helper.make_graph(
        chain.nodes.nodes, "step", chain.inputs, chain.outputs, chain.nodes.pool.tensors
    )
    imports = [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, 2)]
    made = helper.make_model(
        graph, opset_imports=imports, ir_version=IR, producer_name="ptq4snn", producer_version=__version__
    )
    helper.set_model_props(made, chain.properties)
    library.checker.check_model(made)
    return made


@dataclass
class _Chain:
    model: Model
    nodes: Nodes
    made: dict[int, tuple[Name, tuple[int, ...]]] = field(
        default_factory=dict
    )  # name and shape, channels first
    summed: set[int] = field(default_factory=set)
    inputs: list[Any] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)
    properties: dict[str, str] = field(default_factory=dict)
    states: int = 0

    def refuse(self, op: ops.Operation, why: str) -> PTQ4SNNError:
        return PTQ4SNNError(f"'{short(printable(op.name))}' ({op.kind}) cannot be written as QONNX: {why}")

    def take(self, name: Name, shape: tuple[int, ...]) -> Name:
        """An input of the graph."""
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, *shape]))
        return name

    def give(self, name: Name, x: Name, shape: tuple[int, ...]) -> None:
        """An output of the graph: what its last node makes, once more where others read it (hls4ml loses an
        Identity, and what it shows)."""
        nodes = self.nodes.nodes
        maker = next(node for node in nodes if x in node.output)
        if any(x in node.input for node in nodes):
            maker, before = type(maker)(), maker
            maker.CopyFrom(before)
            nodes.append(maker)
        maker.output[0] = name
        self.outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, *shape]))

    def constant(self, values: Array) -> Name:
        return self.nodes.constant(values, FLOAT)

    def quant(self, x: Name, bits: int, signed: bool = True) -> Name:
        """Rounded to whole numbers of so many bits, halves to even."""
        one, zero = self.constant(np.ones(1)), self.constant(np.zeros(1))
        name: Name = self.nodes(
            "Quant", x, one, zero, self.constant(np.full(1, bits)), domain=DOMAIN, signed=int(signed),
            narrow=0, rounding_mode="ROUND",
        )  # fmt: skip
        return name

    def exact(self, op: ops.Operation, largest: int) -> None:
        if carrier(largest) != FLOAT:
            raise self.refuse(
                op, f"its numbers reach {largest:,}, and float32 holds whole numbers to 2^24: fewer bits fit"
            )

    def output(self, out: ops.Output) -> tuple[Name, tuple[int, ...]]:
        x, shape = self.made[out.value]
        if not out.index.is_identity(int(np.prod(shape))):
            raise PTQ4SNNError("an output in another order than the network's cannot be written as QONNX")
        worth, number = worth_of(self.model, out), len(self.outputs) - self.states
        if worth is not None:
            self.properties[f"y{number}.scale"] = " ".join(f"{v:.17g}" for v in worth[0].reshape(-1))
        return x, shape


def _quantize(c: _Chain, op: ops.Quantize) -> None:
    shape, value = c.model.program.input.shape, c.model.program.values[op.output]
    order = np.arange(value.positions * value.channels).reshape(value.channels, value.positions).T.reshape(-1)
    if c.inputs or shape[0] != value.channels or not np.array_equal(op.index.array(), order):
        raise c.refuse(op, "it reads the input in another order than [channels, ...], or twice")
    grid = c.model.projections[op.name].input
    assert grid is not None
    c.properties["x.scale"] = " ".join(f"{v:.17g}" for v in np.atleast_1d(grid.scales))
    c.properties["x.zero"] = " ".join(f"{v / 2**16:.17g}" for v in np.atleast_1d(grid.zeros))
    c.made[op.output] = c.quant(c.take("x", tuple(shape)), 8, signed=False), tuple(shape)


def _project(c: _Chain, op: ops.Project) -> None:
    n, (x, shape) = c.model.projections[op.name], c.made[op.inputs[0]]
    if op.inputs[0] in c.summed or n.over_time or n.rescale is not None:
        raise c.refuse(op, "it reads a sum over time, or writes a stream or a chain")
    low, high = c.model.bounds.sums[op.name]
    c.exact(op, max(int(-low.min()), int(high.max()), *map(abs, c.model.bounds.values[op.output])))
    bias = border_map(n, op, c.model.program.values[op.inputs[0]].positions)  # [1 or P, C]
    if op.window is None:
        if len(shape) != 1 or op.groups != 1:
            raise c.refuse(op, "it works on every position of its own")
        made = (n.weight.shape[0],)
        y = c.nodes("MatMul", x, c.quant(c.constant(n.weight.T), n.bits))
    else:
        w = op.window
        made = (n.weight.shape[0], *w.out_size)
        y = c.nodes(
            "Conv", x, c.quant(c.constant(n.weight), n.bits), kernel_shape=list(w.kernel),
            strides=list(w.stride), pads=[*w.before, *w.after], dilations=list(w.dilation), group=op.groups,
        )  # fmt: skip
    y = y if n.shift == 0 else c.nodes("Mul", y, c.constant(np.full(1, 2.0**n.shift)))
    c.made[op.output] = c.nodes("Add", y, c.constant(_placed(bias, made))), made


def _placed(values: Array, shape: tuple[int, ...]) -> Array:
    """[1 or P, C] as [1, C, ...]."""
    channels = values.T.reshape(shape[0], -1)  # [C, 1 or P]
    return channels.reshape(1, shape[0], *(shape[1:] if channels.shape[1] > 1 else [1] * (len(shape) - 1)))


def _neuron(c: _Chain, op: ops.Neuron) -> None:
    n, (x, shape) = c.model.neurons[op.name], c.made[op.inputs[0]]
    _plain(c, op, n)
    c.exact(op, largest_of(n, c.model.bounds.potentials[op.name]))
    potential = int(c.model.bounds.potentials[op.name])

    def each(values: Array) -> Name:
        return c.constant(_placed(np.asarray(values)[None], shape))

    factor = float(op.factor) * 2.0**n.shift
    v = c.quant(c.take(f"state{c.states}", shape), int(n.bits[0]))
    kept = c.nodes("Mul", v, each(n.charge_m * 2.0**-n.charge_n))
    a = x if factor == 1 else c.nodes("Mul", x, c.constant(np.full(1, factor)))
    a = c.nodes("Add", a, c.quant(kept, potential.bit_length() + 1))
    fires = c.nodes("BipolarQuant", c.nodes("Sub", a, each(n.theta)), c.constant(np.ones(1)), domain=DOMAIN)
    half = c.constant(np.full(1, 0.5))
    spikes = c.nodes("Add", c.nodes("Mul", fires, half), half)
    taken = c.nodes("Mul", spikes, a if n.reset == "hard" else each(n.rho))
    left = c.nodes("Mul", c.nodes("Sub", a, taken), each(n.settle_m * 2.0**-n.settle_n))
    c.give(f"state{c.states}_after", c.quant(left, int(n.bits[0])), shape)
    c.states += 1
    c.made[op.output] = spikes, shape


def _plain(c: _Chain, op: ops.Neuron, n: NeuronNumbers) -> None:
    """What a Quant of one width a layer and of rounding to even can say."""
    for broken, why in (
        (op.once or n.over_time, "it reads a sum over all steps"),
        (op.potential is not None, "its potential is read"),
        (op.channel is not None, "its channels are no axis of the state"),
        (n.reset == "none", "it never fires"),
        (n.most > 1, f"it fires up to {n.most} times in a step"),
        (n.rounding != "even", 'its state is rounded by dither: quantize with state_rounding = "even"'),
        (
            len(set(n.bits.tolist())) > 1,
            'its channels have different widths: quantize with allocation = "uniform"',
        ),
        (bool(n.zero.any()), 'its state has a zero point: quantize with zero_point = "none"'),
    ):
        if broken:
            raise c.refuse(op, why)


def _gather(c: _Chain, op: ops.Gather) -> None:
    """An image that is flattened, channels first."""
    (x, shape), value = c.made[op.inputs[0]], c.model.program.values[op.output]
    before = c.model.program.values[op.inputs[0]]
    order = np.arange(before.positions * before.channels).reshape(before.positions, before.channels).T
    if len(op.inputs) > 1 or op.width != 1 or value.positions != 1:
        raise c.refuse(op, "it moves elements")
    if not np.array_equal(op.index.array(), order.reshape(-1)):
        raise c.refuse(op, "it moves elements")
    c.made[op.output] = c.nodes("Flatten", x, axis=1), (int(np.prod(shape)),)


def _time_sum(c: _Chain, op: ops.TimeSum) -> None:
    """A reader sums what comes out of every step."""
    c.made[op.output] = c.made[op.inputs[0]]
    c.summed.add(op.output)


_WRITERS: dict[type[ops.Operation], Callable[[_Chain, Any], None]] = {
    ops.Quantize: _quantize,
    ops.Project: _project,
    ops.Neuron: _neuron,
    ops.Gather: _gather,
    ops.TimeSum: _time_sum,
}
