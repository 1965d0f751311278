"""snnTorch's neurons of more than one state or with weights of their own: Synaptic, RLeaky, RSynaptic; and
Lapicque, which is RLeaky without the recurrence and with leak 1 - dt / (R C) and gain dt / C.

    I[t] = alpha I[t-1] + x[t] (+ W_rec S[t-1])      H[t] = beta V[t-1] + I[t]      (RLeaky: without I)

With reset_mechanism="zero" and reset_delay=True the membrane is 0 in the step behind a spike, whatever comes
in then: H[t] = beta V[t-1] + (1 - S[t-1]) I[t], V[t] = H[t] (1 - S[t]).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from ptq4snn.frameworks.adapter import NeuronSpec, Reset, Surrogate
from ptq4snn.frameworks.compound import Before, Compound, OneToOne, Stage
from ptq4snn.frameworks.foreign import reference_current, values

__all__ = ["COMPOUNDS", "SnnTorchCompound", "circuit", "compound"]

COMPOUNDS = ("Synaptic", "RLeaky", "RSynaptic", "Lapicque")
STATES = {"Synaptic": ("syn", "mem"), "RLeaky": ("spk", "mem"), "Lapicque": ("mem",)}


class Listener:
    """Stands for a compound in snnTorch's list of all neurons ever made, without keeping it alive: a state
    that is set there (by reset_hidden) ends the sequence."""

    def __init__(self, compound: SnnTorchCompound) -> None:
        self.__dict__.update(compound=weakref.ref(compound), kind=type(compound))

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # isinstance(listener, Synaptic) is how snnTorch picks from its list
        found: type = self.__dict__["kind"]
        return found

    def __getattr__(self, name: str) -> Any:
        if name in ("spk", "syn", "mem"):
            return torch.zeros(0)
        if not name.startswith(("init_", "reset_")):
            raise AttributeError(name)
        compound = self.__dict__["compound"]()
        states = {"init_rleaky": 2, "init_synaptic": 2}.get(name, 3)
        return (lambda: (torch.zeros(0),) * states) if compound is None else compound.reset_mem

    def __setattr__(self, name: str, value: Any) -> None:
        if (compound := self.__dict__["compound"]()) is not None:
            compound.rest()


@cache
def _class(base: type) -> type[SnnTorchCompound]:
    """A compound that is also a neuron of the model's snnTorch, or utils.reset would not see it."""
    return type("SnnTorchCompound", (SnnTorchCompound, base), {})


def compound(module: nn.Module, base: type, reset: Reset, surrogate: Surrogate) -> SnnTorchCompound:
    """What stands in the place of `module`, a Synaptic, RLeaky, RSynaptic or Lapicque (`base`)."""
    return _class(base)(module, base.__name__, reset, surrogate)


def circuit(lapicque: Any) -> tuple[Tensor, Tensor]:
    """Leak and gain of an RC circuit, as a model in float64 has them: whole numbers stay float32 there."""
    r, c, dt = (
        t.detach().double() if t.is_floating_point() else t
        for t in (lapicque.R, lapicque.C, lapicque.time_step)
    )
    return values(1 - dt / (r * c)), values(r.double() * (1 / (r * c)) * dt.double())


class SnnTorchCompound(Compound):
    """forward(x, *states) -> (spikes, *states), states in the order of the class: spk, syn, mem."""

    instances: list[Any]

    def __init__(self, module: nn.Module, kind: str, reset: Reset, surrogate: Surrogate) -> None:
        nn.Module.__init__(self)  # the neuron's own constructor would register what the parts replace
        snn: Any = module
        self.states: tuple[str, ...] = STATES.get(kind, ("spk", "syn", "mem"))
        self.init_hidden, self.output = bool(snn.init_hidden), bool(snn.output)
        one, theta = values(1.0), values(snn.threshold)
        leak, gain = circuit(snn) if kind == "Lapicque" else (values(snn.beta).clamp(0.0, 1.0), one)
        delayed = bool(getattr(snn, "reset_delay", True))
        rho = theta / leak if reset == "soft" and delayed else theta
        self.membrane = Stage(
            NeuronSpec(leak, gain, theta, rho, ">", reset, surrogate), delayed or reset == "none"
        )
        self.synapse: Stage | None = None
        if "syn" in self.states:
            level = reference_current(theta, leak)
            alpha = values(snn.alpha).clamp(0.0, 1.0)
            self.synapse = Stage(
                NeuronSpec(alpha, one, level, level, ">", "none", surrogate, emits="current")
            )
        self.recurrent: nn.Module | None = None
        self.before = Before()
        self.pauses = delayed and reset == "hard"
        if "spk" in self.states:
            self.recurrent = snn.recurrent if snn.all_to_all else OneToOne(snn.V)
        self.last: tuple[Tensor, ...] = ()
        self.reset()
        self._enlist()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._enlist()

    def _enlist(self) -> None:
        """Be found by reset_hidden(), and so by utils.reset(net)."""
        gone = [i for i in self.instances if type(i) is Listener and i.__dict__["compound"]() is None]
        self.instances[:] = [*(i for i in self.instances if i not in gone), Listener(self)]

    def reset(self) -> None:
        super().reset()
        self.last = ()

    def reset_mem(self) -> Tensor | tuple[Tensor, ...]:
        """Zeros of the last states' shapes."""
        zeros = tuple(torch.zeros_like(s) for s in self.last) or tuple(torch.zeros(0) for _ in self.states)
        self.rest()
        return zeros if len(zeros) > 1 else zeros[0]

    init_synaptic = init_rleaky = init_rsynaptic = init_lapicque = reset_mem

    def rest(self) -> None:
        """Forget everything: the next call begins a sequence."""
        self.reset()
        for part in (self.synapse, self.membrane):
            if part is not None:
                part.reset()

    def forward(self, input_: Tensor, *given: Tensor | None, **named: Tensor | None) -> Any:
        states = [*given, *(named.get(n) for n in self.states[len(given) :])]
        if self.init_hidden and any(s is not None for s in states):
            raise TypeError("states should not be passed as arguments while `init_hidden=True`")
        self._take(states)
        spikes = self._step(input_)
        shown = (state for name, state in zip(self.states, self.last, strict=True) if name != "spk")
        return spikes if self.init_hidden and not self.output else (spikes, *shown)

    def _take(self, states: list[Tensor | None]) -> None:
        """States that this neuron did not return itself begin another sequence."""
        handed = [s for s in states if s is not None]
        if not handed or all(any(s is mine for mine in self.last) for s in handed):
            return
        self.rest()
        named = dict(zip(self.states, states, strict=False))
        for name, begin in self._beginnings().items():
            value = named.get(name)
            if value is not None and value.numel() and bool((value != 0).any()):
                begin(value)

    def _beginnings(self) -> dict[str, Callable[[Tensor], None]]:
        def spk(value: Tensor) -> None:
            self.spikes = value

        def mem(value: Tensor) -> None:
            self.membrane.begin(value)
            if self.pauses and "spk" not in self.states:
                core = self.membrane.core
                self.spikes = core.fire(core.from_potential(value))

        found: dict[str, Callable[[Tensor], None]] = {"spk": spk, "mem": mem}
        return found if self.synapse is None else found | {"syn": self.synapse.begin}

    def _step(self, x: Tensor) -> Tensor:
        before = self.before(self.last_spikes(x)) if self.recurrent is not None or self.pauses else x
        if self.recurrent is not None:
            x = x + self.recurrent(before)
        read = {}
        if self.synapse is not None:
            x, read["syn"] = self.synapse(x)
        if self.pauses:
            x = x * (1 - before)
        spikes: Tensor
        spikes, read["mem"] = self.membrane(x)
        read["spk"] = self.spikes = spikes
        self.last = tuple(read[name] for name in self.states)
        return spikes
