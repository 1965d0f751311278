"""The canonical neuron over all steps, in NumPy: docs/format.md has its equations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ptq4snn.network.program import Neuron
from ptq4snn.numerics.dither import PHASES, dither_offset, first_phase, later_phase
from ptq4snn.runtime.numpy_run import Array, Kernel, Run, carrier
from ptq4snn.runtime.parameters import Integers, Model, NeuronNumbers

__all__ = ["largest_of", "neuron_kernel"]


class _Membrane:
    """One neuron's numbers, for each channel or for each element, and its steps on [B, positions, channels].

    Whole numbers are carried in floats that hold all of them exactly, products before their shift included.
    """

    def __init__(self, model: Model, op: Neuron) -> None:
        n, value = model.neurons[op.name], model.program.values[op.output]
        self.n, self.shape = n, (value.positions, value.channels)
        self.dtype = carrier(largest_of(n, model.bounds.potentials[op.name]))
        self.channel = None if op.channel is None else op.channel.array().reshape(self.shape)
        self.charge_by = self._spread(n.charge_m * 2.0**-n.charge_n)
        self.settle_by = self._spread(n.settle_m * 2.0**-n.settle_n)
        self.rounds = bool((n.charge_m % (1 << n.charge_n)).any())  # else every product is whole
        self.theta, self.rho, self.low, self.high = map(self._spread, (n.theta, n.rho, n.low, n.high))
        element = np.arange(value.positions * value.channels) if op.element is None else op.element.array()
        self.phase = first_phase(element).reshape(self.shape)

    def _spread(self, values: Array | Integers) -> Array:
        return (values if self.channel is None else values[self.channel]).astype(self.dtype)

    def charge(self, x: Array, v: Array) -> Array:
        """A = x + rshift(Vq m, n)."""
        kept: Array = v * self.charge_by
        return x + (np.rint(kept, out=kept) if self.rounds else kept)

    def fires(self, a: Array) -> Array:
        """A >= theta; or floor(A / theta), 0 .. most, which floats that hold A exactly give exactly."""
        if self.n.most == 1:
            return a >= self.theta
        counts: Array = np.clip(np.floor(a / self.theta), 0, self.n.most)
        return counts

    def lifted(self, v: Array) -> Array:
        """rshift(Vq m, n): the state in units."""
        by = self._spread(self.n.lift_m * 2.0**-self.n.lift_n).astype(np.float64)
        return np.rint(v * by)

    def settle(self, a: Array, s: Array, t: int) -> Array:
        """Vq = clip(rshift(A' m, n)) after the reset."""
        if self.n.reset == "hard":
            a = np.where(s, 0, a)
        elif self.n.reset == "soft":
            a = a - self.rho * s
        if self.n.rounding == "dither":
            q = np.floor((a + self._dither(t)) * self.settle_by)
        else:
            q = np.rint(a * self.settle_by)
        clipped: Array = np.minimum(np.maximum(q, self.low, out=q), self.high, out=q)
        return clipped

    def _dither(self, t: int) -> Array:
        """The offset of every element at step t."""
        n = self.n.settle_n if self.channel is None else self.n.settle_n[self.channel]
        return dither_offset(later_phase(self.phase, t), n).astype(self.dtype)


def largest_of(n: NeuronNumbers, potential: int) -> int:
    """Of everything that a step computes."""
    state = int(max(np.abs(n.low).max(), np.abs(n.high).max()))
    settle = (potential + PHASES) * max(1, int(n.settle_m.max()))
    charge = state * max(1, int(n.charge_m.max()))
    return max(settle, charge, int(np.abs(n.theta).max()), int(np.abs(n.rho).max()), n.taken)


def neuron_kernel(model: Model, op: Neuron) -> Kernel:
    membrane, n = _Membrane(model, op), model.neurons[op.name]
    calibrated, factor = model.program.steps, op.factor * 2.0**n.shift
    timed = model.program.values[op.inputs[0]].time

    def incoming(run: Run, x: Array) -> Array:
        """The input in the neuron's units; a sum over T' steps in those of T."""
        if n.over_time and run.total != calibrated:
            x = np.rint(x.astype(np.float64) * factor * (calibrated / run.total))
            return x.astype(membrane.dtype)
        x = x.astype(membrane.dtype, copy=False)
        return x if factor == 1 else x * membrane.dtype(factor)

    def kernel(run: Run, inputs: Sequence[Array]) -> Array:
        x = inputs[0]  # [T, B, P, C], or one step of it that serves all
        here = range(1) if op.once else run.here
        steps = len(here)
        v = np.zeros(x.shape[1:], dtype=membrane.dtype)
        if not op.once and op.output in run.membranes:
            v = run.membranes[op.output].astype(membrane.dtype)
        spikes = np.empty((steps, *x.shape[1:]), dtype=np.float32)
        potentials = np.empty(spikes.shape, dtype=np.float64) if op.potential is not None else None
        for t in range(steps):
            if t == 0 or timed:
                x_t = incoming(run, x[t])
            a = membrane.charge(x_t, v)
            fires = membrane.fires(a)
            spikes[t] = fires
            if potentials is not None:
                potentials[t] = membrane.lifted(v) if op.carried else a
            v = membrane.settle(a, fires, 0 if op.once else run.first + here[t])
        if not op.once:
            run.membranes[op.output] = v
        if potentials is not None and op.potential is not None:
            run.values[op.potential] = potentials
        return spikes

    return kernel
