"""The canonical neuron in one step: charge, fire, settle."""

from __future__ import annotations

import numpy as np

from ptq4snn.export.onnx_form.graph import Array, Name, carrier
from ptq4snn.export.onnx_form.values import Step
from ptq4snn.network.program import Neuron
from ptq4snn.numerics.dither import CYCLE_BITS, dither_offset, dither_phase
from ptq4snn.runtime.numpy_neuron import largest_of

__all__ = ["neuron"]


def neuron(step: Step, op: Neuron) -> None:
    model, nodes = step.model, step.nodes
    n, value = model.neurons[op.name], model.program.values[op.output]
    dtype = carrier(largest_of(n, model.bounds.potentials[op.name]))
    channel = None if op.channel is None else op.channel.array().reshape(value.positions, value.channels)

    def spread(values: Array) -> Name:
        return nodes.constant(values if channel is None else values[channel], dtype)

    a = _incoming(step, op, dtype)
    if not op.once:
        v = nodes.cast(step.states[op.output], dtype)
        kept = nodes("Mul", v, spread(n.charge_m * 2.0**-n.charge_n))
        whole = not bool((n.charge_m % (1 << n.charge_n)).any())
        a = nodes("Add", a, kept if whole else nodes("Round", kept))
    if n.most == 1:
        spikes = nodes.cast(nodes("GreaterOrEqual", a, spread(n.theta)), dtype)
    else:  # floor(A / theta), 0 .. most: exact, for floats that hold A divide to its side of a whole number
        fit = nodes("Floor", nodes("Div", a, spread(n.theta)))
        spikes = nodes("Min", nodes("Max", fit, nodes.constant(0, dtype)), nodes.constant(n.most, dtype))
    if op.potential is not None:
        handed, kind = (a, dtype)
        if op.carried:
            handed, kind = _lifted(step, op, channel), "float64"
        step.put(op.potential, handed, kind)
    if not op.once:
        step.after[op.output] = nodes.cast(_settled(step, op, a, spikes, dtype, channel), "int32")
    step.put(op.output, nodes.cast(spikes, "float32") if dtype != "float32" else spikes, "float32")


def _incoming(step: Step, op: Neuron, dtype: str) -> Name:
    """The input in the neuron's units; a sum over T' steps in those of T."""
    nodes, n = step.nodes, step.model.neurons[op.name]
    factor = op.factor * 2.0**n.shift
    if n.over_time:
        x = nodes("Mul", step.get(op.inputs[0], "float64"), nodes.constant(factor, "float64"))
        by = step.from_calibration()
        x = nodes("Round", nodes("Mul", x, by))
        return x if dtype == "float64" else nodes.cast(x, dtype)
    x = step.get(op.inputs[0], dtype)
    name: Name = x if factor == 1 else nodes("Mul", x, nodes.constant(factor, dtype))
    return name


def _lifted(step: Step, op: Neuron, channel: Array | None) -> Name:
    """rshift(Vq m, n): the state that the step began with, in units."""
    nodes, n = step.nodes, step.model.neurons[op.name]
    by = n.lift_m * 2.0**-n.lift_n
    v = nodes.cast(step.states[op.output], "float64")
    factor = nodes.constant(by if channel is None else by[channel], "float64")
    name: Name = nodes("Round", nodes("Mul", v, factor))
    return name


def _settled(step: Step, op: Neuron, a: Name, s: Name, dtype: str, channel: Array | None) -> Name:
    """Vq = clip(rshift(A' m, n)) after the reset."""
    nodes, n = step.nodes, step.model.neurons[op.name]

    def spread(values: Array) -> Name:
        return nodes.constant(values if channel is None else values[channel], dtype)

    if n.reset == "hard":
        fired = s if n.most == 1 else nodes("Min", s, nodes.constant(1, dtype))
        a = nodes("Sub", a, nodes("Mul", a, fired))
    elif n.reset == "soft":
        a = nodes("Sub", a, nodes("Mul", spread(n.rho), s))
    by = spread(n.settle_m * 2.0**-n.settle_n)
    if n.rounding == "dither":
        table = nodes.constant(_phases(step, op, channel), dtype)  # [16, positions, channels]
        d = nodes("Gather", table, step.phase, axis=0)
        q = nodes("Floor", nodes("Mul", nodes("Add", a, d), by))
    else:
        q = nodes("Round", nodes("Mul", a, by))
    name: Name = nodes("Min", nodes("Max", q, spread(n.low)), spread(n.high))
    return name


def _phases(step: Step, op: Neuron, channel: Array | None) -> Array:
    """What dither adds at each of the steps of its period."""
    n, value = step.model.neurons[op.name], step.model.program.values[op.output]
    shape = value.positions, value.channels
    element = np.arange(value.positions * value.channels) if op.element is None else op.element.array()
    shift = n.settle_n if channel is None else n.settle_n[channel]
    steps = range(2**CYCLE_BITS)
    return np.stack([dither_offset(dither_phase(element.reshape(shape), t), shift) for t in steps])
