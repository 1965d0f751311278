"""What the constraints of a target ask of a bundle, read from its plan and its program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod

from ptq4snn.network import program as ops
from ptq4snn.network.plan import NeuronPlan, Plan
from ptq4snn.runtime.parameters import Model

__all__ = ["Cell", "Layer", "Network", "network_of", "padded_memory"]


@dataclass(frozen=True)
class Layer:
    """A projection."""

    name: str
    bits: int
    scales: int  # different ones
    role: str
    dense: bool  # every output reads every input
    weights: int
    outputs: int  # numbers that it makes for a sample in a step
    kernel: tuple[int, ...]  # sides, none of a matrix
    stride: tuple[int, ...]
    padded: tuple[int, int]  # weights and outputs in a memory whose rows are powers of two


@dataclass(frozen=True)
class Cell:
    """A neuron of the model: a layer of neurons with one name."""

    name: str
    bits: int  # the widest state as it is packed
    held: int  # bits of the signed integers that the state can be, zero points included
    leaks: tuple[Fraction, ...]  # different ones, ascending
    reset: str
    comparator: str
    own_threshold: bool  # a soft reset subtracts the threshold itself
    emits: str
    most: int  # spikes of a step
    carries: bool
    neurons: int
    last: bool  # no layer reads its spikes


@dataclass(frozen=True)
class Network:
    layers: tuple[Layer, ...]
    cells: tuple[Cell, ...]
    features: dict[str, tuple[str, ...]]  # where each of FEATURES is
    read_out: tuple[str, ...]  # outputs that are no spikes: what they are
    inputs: int  # numbers of a sample in a step


def network_of(plan: Plan, model: Model) -> Network:
    operations = model.program.operations
    behind = _reach(operations, ops.Project)
    return Network(
        layers=tuple(_layer(plan, model, op) for op in operations if isinstance(op, ops.Project)),
        cells=tuple(_cell(plan, model, op, behind) for op in operations if isinstance(op, ops.Neuron)),
        features=_features(plan, operations),
        read_out=tuple(
            f"output {i} is a {o.kind}" + (f" of '{o.name}'" if o.name else "")
            for i, o in enumerate(model.program.outputs)
            if o.kind != "count"
        ),
        inputs=prod(model.program.input.shape),
    )


def _reach(operations: tuple[ops.Operation, ...], kind: type[ops.Operation]) -> set[int]:
    """Values that an operation of a kind reads, straight or through others; delays lead back."""
    found: set[int] = set()
    before = -1
    while before != len(found):
        before = len(found)
        for op in reversed(operations):
            made = {op.output, getattr(op, "potential", None)}
            if isinstance(op, kind) or made & found:
                found.update(op.inputs)
    return found


def _layer(plan: Plan, model: Model, op: ops.Project) -> Layer:
    p, value = model.projections[op.name], model.program.values[op.output]
    source = model.program.values[op.inputs[0]]
    whole = op.window is None and source.positions == 1
    kernel, stride = ((), ()) if op.window is None else (op.window.kernel, op.window.stride)
    sides = (value.positions,) if op.window is None else op.window.out_size
    return Layer(
        op.name, p.bits, len(set(plan.projections[op.name].scales)), p.role, whole,
        prod(p.weight.shape), value.positions * value.channels, kernel, stride,
        padded_memory(source.channels, value.channels, kernel, sides),
    )  # fmt: skip


def padded_memory(inputs: int, outputs: int, kernel: Sequence[int], sides: Sequence[int]) -> tuple[int, int]:
    """Weights c 2^(ceil log2 k + ceil log2 f) and neurons f 2^(ceil log2 h + ceil log2 w), as on DynapCNN."""
    weights = inputs * _power(prod(kernel)) * _power(outputs)
    return weights, outputs * prod(_power(n) for n in sides)


def _power(n: int) -> int:
    """The least power of two that is not below n."""
    return int(1 << (n - 1).bit_length())


def _cell(plan: Plan, model: Model, op: ops.Neuron, behind: set[int]) -> Cell:
    n, value = plan.neurons[op.name], model.program.values[op.output]
    return Cell(
        name=op.name,
        bits=max(n.bits),
        held=_held(n),
        leaks=tuple(sorted({Fraction(m, 2**s) for m, s in n.leak})),
        reset=n.reset,
        comparator=n.comparator,
        own_threshold=all(abs(r - t) <= 1 for r, t in zip(n.rho, n.theta, strict=True)),
        emits=n.emits,
        most=n.most,
        carries=n.carries_state and not op.once,
        neurons=value.positions * value.channels,
        last=op.output not in behind,
    )


def _held(n: NeuronPlan) -> int:
    """Bits of two's complement for levels from zero - 2^(b-1) to zero + 2^(b-1) - 1."""
    most = 0
    for bits, zero in zip(n.bits, n.zero, strict=True):
        low, high = zero - 2 ** (bits - 1), zero + 2 ** (bits - 1) - 1
        most = max(most, (-low - 1).bit_length() + 1, high.bit_length() + 1)
    return most


def _features(plan: Plan, operations: tuple[ops.Operation, ...]) -> dict[str, tuple[str, ...]]:
    back = _recurrent(operations)
    found: dict[str, list[str]] = {}
    for op in operations:
        if isinstance(op, ops.Delay):
            found.setdefault("recurrence", []).append(op.name)
        elif isinstance(op, ops.Combine) and len(op.inputs) > 1 and not back.intersection(op.inputs):
            found.setdefault("residual", []).append(op.name)
        elif isinstance(op, (ops.MatMul, ops.Multiply)):
            found.setdefault("attention", []).append(op.name)
        elif getattr(op, "how", None) == "max":
            found.setdefault("max-pool", []).append(op.name)
        elif isinstance(op, ops.Project) and plan.projections[op.name].rescale is not None:
            found.setdefault("stream", []).append(op.name)
        elif isinstance(op, ops.Neuron) and plan.neurons[op.name].emits != "spikes":
            found.setdefault("synapse", []).append(op.name)
    return {what: tuple(dict.fromkeys(places)) for what, places in found.items()}


def _recurrent(operations: tuple[ops.Operation, ...]) -> set[int]:
    """Values made from a delay without a neuron between: currents that come back."""
    found = {op.output for op in operations if isinstance(op, ops.Delay)}
    for op in operations:
        if not isinstance(op, (ops.Neuron, ops.Delay)) and found.intersection(op.inputs):
            found.add(op.output)
    return found
