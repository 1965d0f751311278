"""Neurons with real thresholds and time constants.

    leak = 1 - dt / tau            so  tau = dt / (1 - leak)
    gain = r dt / tau = factor     so  r = factor / (1 - leak)

NIR fires where v > v_threshold, the program where A >= theta in whole numbers: the real threshold lies half a
step below theta.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ptq4snn.export.nir_form.naming import printable
from ptq4snn.network.program import Neuron

if TYPE_CHECKING:
    from ptq4snn.export.nir_form.walk import Walk

__all__ = ["Wave", "neuron_node"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Wave:
    """A synaptic current on its way to a membrane."""

    name: str
    leak: Array
    factor: float
    bits: Array
    scales: Array


def _leak(w: Walk, name: str) -> Array:
    return np.array([m * 2.0**-n for m, n in w.plan.neurons[name].leak])


def neuron_node(w: Walk, op: Neuron, shape: tuple[int, ...], current: Wave | None) -> Any:
    """The node of a neuron, behind the current `current` if it has one; of a synapse the current."""
    n, plan = w.model.neurons[op.name], w.plan.neurons[op.name]
    factor = float(op.factor) * 2.0**n.shift
    if op.once or n.over_time:
        raise w.refuse(op, "it reads a sum over all steps")
    if n.v_rest != 0:
        raise w.refuse(op, "its resting potential is not 0")
    if n.most > 1:
        raise w.refuse(op, f"it fires up to {n.most} times in a step, and NIR's neurons fire once")
    if plan.emits == "carried":
        raise w.refuse(op, "its current reaches the membrane a step later, and readers of NIR differ in that")
    if plan.emits == "current":
        return Wave(op.name, _leak(w, op.name), factor, n.bits, np.array(plan.scales))
    theta = (n.theta - 0.5) * n.unit
    if n.reset == "soft" and bool((np.abs(n.rho - n.theta) > 1).any()):
        raise w.refuse(op, "it subtracts another number than its threshold (a reset of the step before)")
    numbers = {"leak": _leak(w, op.name), "theta": theta}
    over = {k: _spread(w, op, v, shape) for k, v in numbers.items()}
    meta = {
        "q.reset": n.reset, "q.bits": n.bits, "q.scales": np.array(plan.scales), "q.unit": n.unit,
        "q.theta": n.theta, "q.rho": n.rho,
    }  # fmt: skip
    zero, one = np.zeros(shape, np.float32), np.ones(shape, np.float32)
    leak, threshold = over["leak"], over["theta"].astype(np.float32)
    lib, share = w.library, 1 - leak
    if current is not None:
        meta |= {
            "q.synapse": printable(current.name),
            "q.synapse_bits": current.bits,
            "q.synapse_scales": current.scales,
        }
        syn = 1 - _spread(w, op, current.leak, shape)
        if not (share > 0).all() or not (syn > 0).all():
            raise w.refuse(op, "a current or a membrane without a leak has no time constant")
        values = [_f(w.dt / syn), _f(w.dt / share), _f(one / share), zero, threshold]
        return lib.CubaLIF(*values, v_reset=zero, w_in=_f(current.factor / syn), metadata=meta)
    if n.reset == "none":
        if not (share > 0).all():
            return lib.I(_f(one * factor), metadata=meta)
        return lib.LI(_f(w.dt / share), _f(factor / share), zero, metadata=meta)
    if (share == 0).all():
        return lib.IF(_f(one * factor), threshold, v_reset=zero, metadata=meta)
    if not (share > 0).all():
        raise w.refuse(op, "some of its channels leak and others do not")
    return lib.LIF(_f(w.dt / share), _f(factor / share), zero, threshold, v_reset=zero, metadata=meta)


def _f(x: Any) -> Array:
    return np.asarray(x, dtype=np.float32)


def _spread(w: Walk, op: Neuron, values: Array, shape: tuple[int, ...]) -> Array:
    """One value for each element of a sample's state, channels first."""
    layout = w.plan.neurons[op.name].layout
    if tuple(layout.shape) != tuple(shape):
        raise w.refuse(op, f"its state has the shape {list(layout.shape)}, its input {list(shape)}")
    sizes = [n if d in layout.dims else 1 for d, n in enumerate(layout.shape)]
    return np.broadcast_to(values.reshape(sizes), shape).astype(np.float64)
