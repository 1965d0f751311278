"""snnTorch's Leaky (1.0.0). Never imports snnTorch.

    R = U > threshold                                          (U: the membrane of the step before)
    U = clamp(beta, 0, 1) U + x - threshold R     subtract     clamp(beta, 0, 1) U (1 - R) + x     zero
    S = U > threshold

With reset_delay=True the membrane that is kept and returned is the one before the reset; the canonical state
is V = U - threshold/beta S (subtract) or U (1 - S) (zero). With reset_delay=False the reset is taken in the
same step, V = U - threshold S, and the membrane that is kept and returned is V.
"""

from __future__ import annotations

import warnings
import weakref
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from ptq4snn.frameworks.adapter import NeuronSpec, Reset, Shell, Surrogate
from ptq4snn.frameworks.compound import Compound
from ptq4snn.frameworks.core import FloatCore, NeuronCore
from ptq4snn.frameworks.foreign import (
    REGISTER,
    StatefulShell,
    fires_like,
    origins,
    overridden,
    refusal,
    values,
)
from ptq4snn.frameworks.snntorch_compound import COMPOUNDS, circuit, compound
from ptq4snn.models.neuron import fire

__all__ = ["SnnTorchAdapter"]

REMEDY = f"use Leaky, or {REGISTER}"
RESETS: dict[str, Reset] = {"_base_sub": "soft", "_base_zero": "hard", "_base_int": "none"}
CODES: dict[Reset, int] = {"soft": 0, "hard": 1, "none": 2}  # reset_mechanism_val


class Listener:
    """Stands for a shell in snnTorch's list of all neurons ever made, without keeping the shell alive."""

    def __init__(self, shell: LeakyShell) -> None:
        self.shell = weakref.ref(shell)
        self._kind = type(shell)

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # isinstance(listener, Leaky) is how snnTorch picks from its list
        return self._kind

    @property
    def mem(self) -> Tensor:
        shell = self.shell()
        return torch.zeros(0) if shell is None else shell.mem

    @mem.setter
    def mem(self, value: Tensor) -> None:
        if (shell := self.shell()) is not None:
            shell.mem = value


class LeakyShell(StatefulShell):
    """A Leaky around a core: forward(x[B, ...], mem) -> (spikes, mem), or spikes alone if init_hidden.

    A membrane that this shell did not return itself is taken in as the start of a new sequence.
    """

    _carried = ("_v", "_mem")
    instances: list[Any]

    def __init__(self, core: NeuronCore, module: nn.Module) -> None:
        nn.Module.__init__(self)  # Leaky's own constructor would register parameters that the core replaces
        self.core = core
        leaky: Any = module
        self.init_hidden, self.output = bool(leaky.init_hidden), bool(leaky.output)
        reset = _reset(leaky)
        self._keeps_potential = bool(leaky.reset_delay) or reset == "none"
        self._may_skip = reset == "soft" and not leaky.reset_delay
        self._warned = False
        self.reset()
        self._enlist()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._version = _version(self._mem)
        self._enlist()  # Leaky forgets this: utils.reset does not reach a deep copy of the original

    def _enlist(self) -> None:
        """Be found by Leaky.reset_hidden(), and so by utils.reset(net)."""
        alive = [i for i in self.instances if not (type(i) is Listener and i.shell() is None)]
        self.instances[:] = [*alive, Listener(self)]

    @property
    def mem(self) -> Tensor:
        """The membrane as Leaky keeps it; empty before the first step."""
        return self._mem

    @mem.setter
    def mem(self, value: Tensor) -> None:
        self._mem, self._version = value, _version(value)
        self._v, self._t = None, 0

    def reset(self) -> None:
        self.mem = torch.zeros(0)

    def reset_mem(self) -> Tensor:
        """Zeros of the last membrane's shape, as Leaky.reset_mem and init_leaky."""
        self.mem = torch.zeros_like(self._mem)
        return self._mem

    def forward(self, input_: Tensor, mem: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]:
        if mem is not None and self.init_hidden:
            raise TypeError("`mem` should not be passed as an argument while `init_hidden=True`")
        if mem is not None and mem is not self._mem:
            self.mem = mem
        if _version(self._mem) != self._version:
            self.mem = self._mem  # changed in place
        spikes = self._step(input_, self._state(input_))
        return (spikes, self._mem) if self.output or not self.init_hidden else spikes

    def _state(self, x: Tensor) -> Tensor | None:
        """The canonical state before this step: the one kept, or the one that the membrane stands for."""
        if self._mem.shape != x.shape:  # Leaky starts from zeros on any other shape
            self._t = 0
            return None
        if self._v is not None:
            return self._v
        if not self._keeps_potential:
            return self.core.from_state_value(self._mem)
        h = self.core.from_potential(self._mem)
        return self.core.settle(h, self.core.fire(h), 0)

    def _step(self, x: Tensor, v: Tensor | None) -> Tensor:
        t = self._t
        if self._may_skip and isinstance(self.core, FloatCore):
            spikes, v, h = self._step_that_may_skip(self.core, x, v)
        else:
            spikes, v, h = self.core.step(x, v, t)
        self.mem = self.core.potential(h) if self._keeps_potential else self.core.state_value(v)
        self._v, self._t = v, t + 1
        return spikes

    def _step_that_may_skip(
        self, core: FloatCore, x: Tensor, v: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """subtract with reset_delay=False: where V is left above threshold, Leaky next asks H > 2 threshold.

        That has no canonical form. The float model follows it, to stay the user's; an integer core fires.
        """
        h = core.charge(x, v)
        spikes = core.fire(h)
        if v is not None:
            followed = core.fire(core.settle(h, core.fire(v), self._t))
            if not self._warned and not torch.equal(followed, spikes):
                self._warned = True
                warnings.warn(SKIPS, stacklevel=2)
            spikes = followed
        v = core.settle(h, spikes, self._t)
        if core.probe is not None:
            core.probe(x, h, spikes, v, self._t)
        return spikes, v, h


SKIPS = (
    "A Leaky with reset_mechanism='subtract' and reset_delay=False skipped a spike because its membrane was "
    "above twice the threshold one step before; the quantized neuron fires there. Construct it with "
    "reset_delay=True to have both alike."
)


def _version(tensor: Tensor) -> int:
    """Changes when the tensor is written to in place (not tracked in inference mode)."""
    return 0 if tensor.is_inference() else tensor._version


@cache
def _shell_class(base: type) -> type[LeakyShell]:
    """LeakyShell that is also a Leaky of the model's snnTorch, or utils.reset would not see it."""
    return type("SnnTorchShell", (LeakyShell, base), {})


def _leaky(module: nn.Module) -> type | None:
    return next((c for c in origins(module, "snntorch") if c.__name__ == "Leaky"), None)


def _reset(leaky: Any) -> Reset | None:
    """The reset that forward() runs: chosen at construction, whatever reset_mechanism says later."""
    return RESETS.get(getattr(leaky.state_function, "__name__", ""))


def _surrogate(leaky: Any) -> Surrogate:
    if leaky.surrogate_disable:
        return lambda u: fire(u, 2.0)  # it has no gradient; Leaky's default is the arctangent with alpha = 2
    spike_grad = leaky.spike_grad
    return lambda u: spike_grad(u).to(u.dtype)  # snnTorch's spikes are float32 in every model


def _objection(leaky: Any, kind: type) -> tuple[str, str] | None:
    """Why a Leaky (or a compound) still has no canonical form, and what to do; None if it has."""
    if (name := overridden(leaky, kind)) is not None:
        return f"it replaces {name}() of {kind.__name__}", REMEDY
    reset = _reset(leaky)
    if reset is None or int(leaky.reset_mechanism_val) != CODES[reset]:
        return (
            f"its reset_mechanism ({leaky.reset_mechanism!r}) is not the one it was constructed with",
            "construct it with the reset_mechanism you mean before loading a checkpoint",
        )
    if leaky.inhibition:
        return "inhibition=True lets its neurons decide for each other", "construct it with inhibition=False"
    if leaky.state_quant:
        return "its state is already quantized by state_quant", "construct it with state_quant=False"
    if not bool((leaky.graded_spikes_factor == 1).all()):
        return "graded_spikes_factor is not 1", "move the factor into the weights of the next layer"
    if bool((leaky.threshold < 0).any()):
        return "its threshold is negative, so it fires at rest", "use a threshold of 0 or more"
    lapicque = kind.__name__ == "Lapicque"
    if lapicque and not bool(((circuit(leaky)[0] > 0) & (circuit(leaky)[0] <= 1)).all()):
        return (
            "its time_step is not below R C, so that it does not leak but swings",
            "use a smaller time_step",
        )
    if reset == "soft" and not lapicque and leaky.reset_delay and not bool((leaky.beta > 0).all()):
        return (
            "with beta = 0 a delayed subtraction is remembered by no state",
            "use beta > 0, reset_delay=False or reset_mechanism='zero'",
        )
    if kind.__name__ == "RSynaptic" and reset != "none" and not leaky.reset_delay:
        return (
            "with reset_delay=False it resets by the spikes that it is handed, not by those that it fires",
            "construct it with reset_delay=True",
        )
    if not fires_like(leaky.spike_grad, ">", leaky.threshold.device):
        return (
            "its spike_grad does not return 1 where u > 0 and 0 elsewhere",
            "use a surrogate of snntorch.surrogate",
        )
    return None


OTHERS = {
    "Alpha": "its two currents meet with opposite signs in one membrane",
    "SLSTM": "its gates multiply real numbers",
    "SConv2dLSTM": "its gates multiply real numbers",
}


def _other(module: nn.Module) -> tuple[str, str]:
    """Why a class that is not supported is not, and the nearest that is."""
    names = [c.__name__ for c in origins(module, "snntorch")]
    why = next((OTHERS[n] for n in names if n in OTHERS), "more states, recurrent weights or other dynamics")
    nearest = {"Alpha": "Synaptic", "SLSTM": "RSynaptic", "SConv2dLSTM": "RSynaptic"}.get(names[0], "Leaky")
    return f"it is not Leaky: {why}", f"use {nearest}, or {REGISTER}"


class SnnTorchAdapter:
    name = "snntorch"

    def matches(self, module: nn.Module) -> bool:
        if isinstance(module, (Shell, Compound)):
            return False  # a shell is a Leaky too, a compound what it stands for
        # the layer inside RLeaky and RSynaptic lives in the same folder but is no neuron
        classes = [c for c in origins(module, "snntorch") if c.__name__ != "RecurrentOneToOne"]
        return any(c.__module__.startswith("snntorch._neurons") for c in classes)

    def spec(self, module: nn.Module, path: str) -> NeuronSpec:
        kind = _leaky(module)
        if kind is None:
            raise refusal(path, module, *_other(module))
        if (objection := _objection(module, kind)) is not None:
            raise refusal(path, module, *objection)
        leaky: Any = module
        reset = _reset(leaky)
        leak, theta = values(leaky.beta).clamp(0.0, 1.0), values(leaky.threshold)
        return NeuronSpec(
            leak=leak,
            gain=values(1.0),
            theta=theta,
            rho=theta / leak if reset == "soft" and leaky.reset_delay else theta,
            comparator=">",
            reset=reset or "none",
            surrogate=_surrogate(leaky),
        )

    def parts(self, module: nn.Module, path: str) -> Compound | None:
        kind = next((c for c in origins(module, "snntorch") if c.__name__ in COMPOUNDS), None)
        if kind is None:
            return None
        if (objection := _objection(module, kind)) is not None:
            raise refusal(path, module, *objection)
        return compound(module, kind, _reset(module) or "none", _surrogate(module))

    def steps(self, module: nn.Module, x: Tensor) -> int | None:
        return None

    def reset(self, module: nn.Module) -> None:
        leaky: Any = module
        leaky.reset_mem()

    def shell(self, module: nn.Module, core: NeuronCore) -> Shell:
        kind = _leaky(module)
        if kind is None:
            raise refusal("", module, "it is not Leaky", REMEDY)
        return _shell_class(kind)(core, module)
