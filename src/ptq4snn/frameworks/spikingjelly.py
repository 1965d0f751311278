"""Neurons of SpikingJelly 0.0.0.0.14 (`activation_based`, `clock_driven`) and 2.0.0, without importing it.

    decay_input        H = V + (x - (V - v_reset)) / tau           leak 1 - 1/tau, gain 1/tau
    not decay_input    H = V - (V - v_reset) / tau + x             leak 1 - 1/tau, gain 1
    S = H >= v_threshold;  V = v_reset where S  (hard)  or  H - v_threshold S  (v_reset None)

so the rest is v_reset (0 if None), and V starts there. Parametric: 1/tau = sigmoid(w). What neither leaks nor
resets to a value rests anywhere: an IFNode with v_reset None may start at any v (`set_reset_value`), which is
its rest then, with a threshold that much nearer and a reset that is still v_threshold.
Only attributes of a node are read, so one that was built for CuPy is taken as well and runs anywhere.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from ptq4snn.errors import UnsupportedOperation
from ptq4snn.frameworks.adapter import NeuronSpec, Shell
from ptq4snn.frameworks.compound import Compound
from ptq4snn.frameworks.core import NeuronCore
from ptq4snn.frameworks.foreign import (
    REGISTER,
    StatefulShell,
    fires_like,
    origins,
    overridden,
    refusal,
    values,
)
from ptq4snn.frameworks.spikingjelly_compound import Cuba, ElementWise, Linear, compound, is_addition

__all__ = ["SpikingJellyAdapter"]

IF, LIF, PLIF = "IFNode", "LIFNode", "ParametricLIFNode"
SUPPORTED = {prefix + name: name for prefix in ("", "Simple", "MultiStep") for name in (IF, LIF, PLIF)}
REMEDY = f"use {IF}, {LIF} or {PLIF} (with a synaptic current CUBALIFNode, of 2.0.0), or {REGISTER}"


class NodeShell(StatefulShell):
    """A SpikingJelly node around a core: x[B, ...] ('s') or x[T, B, ...] ('m') to spikes of the same shape.

    The state is kept between calls until reset().
    """

    _carried = ("_v", "_v_seq")

    def __init__(self, core: NeuronCore, module: nn.Module) -> None:
        super().__init__(core)
        # Not `step_mode`: where the framework has it, it is a property of the framework's base class.
        self._step_mode = "m" if _multi_step(module) else "s"
        # Always kept by clock_driven multi-step nodes, at T times the memory; here it must be asked for.
        self.store_v_seq = bool(getattr(module, "store_v_seq", False))
        self._rest: float = _rest(module)
        self._second_generation = hasattr(module, "materialize_states")
        self._v_seq: Tensor | None = None

    @property
    def v(self) -> float | Tensor:
        """The state in SpikingJelly's units: a float before the first step, then [B, ...]."""
        return self._rest if self._v is None else self.core.state_value(self._v)

    @v.setter
    def v(self, value: float | Tensor) -> None:
        state = value if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float64)
        self._v = self.core.from_state_value(state)  # a number stays 0-dim until the first step

    @property
    def v_seq(self) -> Tensor | None:
        """States after each step [T, B, ...], if `store_v_seq` is set."""
        if not self.store_v_seq:
            # not AttributeError: nn.Module would swallow the message
            raise UnsupportedOperation(
                "v_seq is not kept: set store_v_seq = True on this neuron before it runs."
            )
        return self._v_seq

    def forward(self, x: Tensor) -> Tensor:
        multi = self._step_mode == "m"
        sample = x.shape[1:] if multi else x.shape
        if self._second_generation and self._v is not None and self._v.shape not in (sample, ()):
            self._v, self._t = None, 0  # 2.0.0 starts afresh on a new shape; before, it was an error
        spikes = self._run(x) if multi else self._step(x)
        self._t += x.shape[0] if multi else 1
        return spikes

    def _step(self, x: Tensor) -> Tensor:
        spikes, self._v, _ = self.core.step(x, self._v, self._t)
        if self.store_v_seq and self._second_generation:  # the first generation records in 'm' only
            state = self.core.state_value(self._v).unsqueeze(0)
            grows = self._v_seq is not None and self._v_seq.shape[1:] == state.shape[1:]
            self._v_seq = torch.cat((self._v_seq, state)) if grows and self._v_seq is not None else state
        return spikes

    def _run(self, x: Tensor) -> Tensor:
        if not self.store_v_seq:
            spikes, self._v = self.core.run(x, self._v, self._t)
            return spikes
        steps, states = [], []
        for i, x_t in enumerate(x.unbind(0)):
            s, self._v, _ = self.core.step(x_t, self._v, self._t + i)
            steps.append(s)
            states.append(self.core.state_value(self._v))
        self._v_seq = torch.stack(states)
        return torch.stack(steps)

    def reset(self) -> None:
        self._v, self._v_seq, self._t = None, None, 0

    def detach(self) -> None:
        """Called by functional.detach_net."""
        for name in self._carried:
            if (tensor := getattr(self, name)) is not None:
                setattr(self, name, tensor.detach())


@cache
def _shell_class(base: type) -> type[NodeShell]:
    """NodeShell that is also a MemoryModule of the model's SpikingJelly: reset_net warns about any other."""
    return type("SpikingJellyShell", (NodeShell, base), {})


def _kind(module: nn.Module) -> type | None:
    """The supported class that `module` is or derives from."""
    packages = ("spikingjelly.activation_based.neuron", "spikingjelly.clock_driven.neuron")
    classes = origins(module, "spikingjelly")
    return next((c for c in classes if c.__name__ in SUPPORTED and c.__module__.startswith(packages)), None)


def _multi_step(module: nn.Module) -> bool:
    kind = _kind(module)
    if kind is not None and kind.__name__.startswith("MultiStep"):
        return True
    return getattr(module, "step_mode", "s") == "m"  # clock_driven has no step_mode


def _rest(module: Any) -> float:
    v_reset = getattr(module, "v_reset", None)
    if v_reset is None:
        kind = _kind(module)
        wanders = kind is not None and SUPPORTED[kind.__name__] == IF
        return float(module._memories_rv["v"]) if wanders else 0.0
    return float(v_reset)


def _rate(module: Any, kind: str) -> Tensor:
    """1/tau in float64; 0 for a neuron without leak."""
    if kind == IF:
        return values(0.0)
    if kind == PLIF:
        return values(module.w).sigmoid()  # in float64, as a model in float64 computes it
    return 1.0 / values(module.tau)


def _objection(module: Any, kind: type) -> tuple[str, str] | None:
    """Why a node of a supported class still has no canonical form, and what to do; None if it has."""
    if (name := overridden(module, kind)) is not None:
        return f"it replaces {name}() of {kind.__name__}", REMEDY
    if getattr(module, "backend", "torch") == "lava":
        return "its backend 'lava' computes with Lava's own integers", "set its backend to 'torch'"
    parameters = ("v_threshold", "v_reset", "tau", "w", "c_decay", "v_decay")
    names = [n for n in parameters if getattr(module, n, None) is not None]
    if several := [n for n in names if values(getattr(module, n)).dim()]:
        return f"its {several[0]} is not one number", f"give it one number, or {REGISTER}"
    restored = module._memories_rv  # what reset() puts back; in clock_driven also v_threshold and v_reset
    for name in ("v_threshold", "v_reset"):
        if name in restored and restored[name] != getattr(module, name):
            return f"its {name} was set after construction and reset() undoes it", "construct it with it"
    if restored["v"] != _rest(module):
        return (
            f"its state starts at {restored['v']} and not at its resting potential {_rest(module)}",
            "construct it with the v_reset you mean and leave the initial v alone",
        )
    if float(module.v_threshold) <= _rest(module):
        return f"its state starts at {_rest(module):g}, where it fires", "start it below its threshold"
    if not fires_like(module.surrogate_function, ">=", _device(module)):
        return (
            "its surrogate_function does not return 1 where u >= 0 and 0 elsewhere",
            "use a surrogate of SpikingJelly with spiking=True",
        )
    return None


def _cuba_objection(node: Any) -> tuple[str, str] | None:
    if _rest(node) != 0:
        return f"it is reset to {_rest(node):g} and decays to 0", "use v_reset=0.0 or v_reset=None"
    if not all(0 <= float(decay) <= 1 for decay in (node.c_decay, node.v_decay)):
        return "its c_decay or v_decay is not in [0, 1]", "use one that is"
    return None


def _device(module: nn.Module) -> torch.device:
    parameter = next(module.parameters(), None)
    return torch.device("cpu") if parameter is None else parameter.device


class SpikingJellyAdapter:
    name = "spikingjelly"

    def matches(self, module: nn.Module) -> bool:
        stateful = {"neuron", "rnn"}  # folders or files of neurons and of spiking recurrent cells
        return any(stateful & set(c.__module__.split(".")) for c in origins(module, "spikingjelly"))

    def parts(self, module: nn.Module, path: str) -> Compound | None:
        classes = {c.__name__: c for c in origins(module, "spikingjelly")}
        part: Any = module
        if (kind := classes.get("CUBALIFNode")) is not None:
            if (objection := _objection(module, kind) or _cuba_objection(part)) is not None:
                raise refusal(path, module, *objection)
            return compound(Cuba, module)
        container = next((c for n, c in classes.items() if n.endswith("RecurrentContainer")), None)
        if container is None or overridden(module, container) is not None:
            return None  # followed as it is written
        if container.__name__ == "LinearRecurrentContainer":
            return compound(Linear, module)
        if container.__name__ == "ElementWiseRecurrentContainer" and self.matches(part.sub_module):
            if not is_addition(part.element_wise_function):
                why = "its element_wise_function is not an addition"
                raise refusal(path, module, why, "use one that adds, or LinearRecurrentContainer")
            return compound(ElementWise, module)
        return None

    def spec(self, module: nn.Module, path: str) -> NeuronSpec:
        kind = _kind(module)
        if kind is None:
            why = "it is not one state with a linear leak, a threshold and a reset"
            raise refusal(path, module, why, REMEDY)
        if (objection := _objection(module, kind)) is not None:
            raise refusal(path, module, *objection)
        node: Any = module
        rate = _rate(node, SUPPORTED[kind.__name__])
        surrogate = node.surrogate_function
        theta = values(node.v_threshold) - _rest(module)
        soft = node.v_reset is None
        return NeuronSpec(
            leak=1.0 - rate,
            gain=rate if getattr(node, "decay_input", False) else values(1.0),
            theta=theta,
            rho=values(node.v_threshold) if soft else theta,
            comparator=">=",
            reset="soft" if soft else "hard",
            surrogate=lambda u: surrogate(u),
            v_rest=_rest(module),
        )

    def steps(self, module: nn.Module, x: Tensor) -> int | None:
        return x.shape[0] if _multi_step(module) else None

    def reset(self, module: nn.Module) -> None:
        node: Any = module
        node.reset()

    def shell(self, module: nn.Module, core: NeuronCore) -> Shell:
        base = next(c for c in origins(module, "spikingjelly") if c.__name__ == "MemoryModule")
        return _shell_class(base)(core, module)
