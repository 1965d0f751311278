"""A network's spikes and states once more: forward hooks, int64 and float64, one channel after the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ptq4snn.frameworks.adapter import NeuronSpec
from ptq4snn.network.plan import NeuronPlan

Array = NDArray[Any]


@dataclass
class Call:
    """One call of a neuron: currents and spikes [T, B, C, positions]."""

    current: Array
    spikes: Array


def calls(
    root: nn.Module, inner: nn.Module, names: list[str], batches: list[Tensor]
) -> dict[str, list[Call]]:
    """Every neuron call of `root` over the batches; all states here have their channels in front."""
    seen: dict[str, list[Call]] = {n: [] for n in names}

    def note(name: str) -> Any:
        def hook(_m: nn.Module, args: Any, out: Tensor) -> None:
            shape = (*out.shape[:3], -1)
            seen[name].append(
                Call(args[0].double().reshape(shape).numpy(), out.double().reshape(shape).numpy())
            )

        return hook

    handles = [inner.get_submodule(n).register_forward_hook(note(n)) for n in names]
    with torch.no_grad():
        for x in batches:
            root(x)
    for h in handles:
        h.remove()
    return seen


def rounded_shift(a: Array, n: int) -> Array:
    """a / 2^n in int64, halves to even."""
    if n <= 0:
        return a << -n
    floor = a >> n
    rest, half = a - (floor << n), 1 << (n - 1)
    return floor + ((rest > half) | ((rest == half) & (floor % 2 == 1)))


def integer_states(plan: NeuronPlan, call: Call) -> tuple[Array, Array]:
    """Real states [T, B, C, positions] of the integer neuron, and how many of each step [T] did not fit."""
    assert plan.quantum == 1.0 and (plan.emits_units or not plan.shift)
    out, overflows = np.zeros_like(call.current), np.zeros(len(call.current), np.int64)
    for c in range(plan.channels):
        (mc, nc), (ms, ns) = plan.charge[c], plan.settle[c]
        low, high = plan.zero[c] - 2 ** (plan.bits[c] - 1), plan.zero[c] + 2 ** (plan.bits[c] - 1) - 1
        v = np.zeros(call.current.shape[1:2] + call.current.shape[3:], np.int64)
        for t in range(len(call.current)):
            a = call.current[t, :, c].astype(np.int64) + rounded_shift(v * mc, nc)
            s = a >= int(plan.theta[c])
            assert np.array_equal(s, call.spikes[t, :, c] == 1)
            a = np.where(s, 0 if plan.reset == "hard" else a - int(plan.rho[c]), a)
            q = rounded_shift(a * ms, ns)
            overflows[t] += ((q < low) | (q > high)).sum()
            v = q.clip(low, high)
            out[t, :, c] = v * plan.scales[c]
    return out, overflows


def float_states(spec: NeuronSpec, call: Call) -> Array:
    """Canonical states of the float neuron, with the spikes it fired."""
    leak, gain, rho = float(spec.leak), float(spec.gain), float(spec.rho)
    out, v = np.zeros_like(call.current), np.zeros(call.current.shape[1:])
    for t in range(len(call.current)):
        h = leak * v + gain * call.current[t]
        s = call.spikes[t]
        v = h * (1 - s) if spec.reset == "hard" else h - rho * s
        out[t] = v
    return out
