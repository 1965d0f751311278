"""snnTorch's neurons of more than one state or with weights of their own: Synaptic, RLeaky, RSynaptic.

    I[t] = alpha I[t-1] + x[t] (+ W_rec S[t-1])      H[t] = beta V[t-1] + I[t]      (RLeaky: without I)

With reset_mechanism="zero" and reset_delay=True the membrane is 0 in the step behind a spike, whatever comes in
then: H[t] = beta V[t-1] + (1 - S[t-1]) I[t], V[t] = H[t] (1 - S[t]).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ptq4snn.frameworks.adapter import NeuronSpec, Reset, Surrogate
from ptq4snn.frameworks.compound import Before, Compound, OneToOne, Stage
from ptq4snn.frameworks.support import reference_current, values

__all__ = ["COMPOUNDS", "SnnTorchCompound"]

COMPOUNDS = ("Synaptic", "RLeaky", "RSynaptic")


class SnnTorchCompound(Compound):
    """forward(x, *states) -> (spikes, *states), states in the order of the class: spk, syn, mem."""

    def __init__(self, module: nn.Module, kind: str, reset: Reset, surrogate: Surrogate) -> None:
        super().__init__()
        snn: Any = module
        self.states = {"Synaptic": ("syn", "mem"), "RLeaky": ("spk", "mem")}.get(kind, ("spk", "syn", "mem"))
        self.init_hidden, self.output = bool(snn.init_hidden), bool(snn.output)
        leak, theta = values(snn.beta).clamp(0.0, 1.0), values(snn.threshold)
        delayed = bool(snn.reset_delay)
        rho = theta / leak if reset == "soft" and delayed else theta
        one = values(1.0)
        self.membrane = Stage(
            NeuronSpec(leak, one, theta, rho, ">", reset, surrogate), delayed or reset == "none"
        )
        self.synapse: Stage | None = None
        if "syn" in self.states:
            level = reference_current(theta, leak)
            alpha = values(snn.alpha).clamp(0.0, 1.0)
            self.synapse = Stage(NeuronSpec(alpha, one, level, level, ">", "none", surrogate, emits="current"))
        self.recurrent: nn.Module | None = None
        self.before = Before()
        self.pauses = delayed and reset == "hard"
        if "spk" in self.states:
            self.recurrent = snn.recurrent if snn.all_to_all else OneToOne(snn.V)
        self.last: tuple[Tensor, ...] = ()
        self.reset()

    def reset(self) -> None:
        super().reset()
        self.last = ()

    def reset_mem(self) -> tuple[Tensor, ...]:
        """Zeros of the last states' shapes."""
        zeros = tuple(torch.zeros_like(s) for s in self.last) or tuple(torch.zeros(0) for _ in self.states)
        self._rest()
        return zeros

    init_synaptic = init_rleaky = init_rsynaptic = reset_mem

    def _rest(self) -> None:
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
        return spikes if self.init_hidden and not self.output else (spikes, *self.last)

    def _take(self, states: list[Tensor | None]) -> None:
        """States that this neuron did not return itself begin another sequence."""
        handed = [s for s in states if s is not None]
        if not handed or all(any(s is mine for mine in self.last) for s in handed):
            return
        self._rest()
        named = dict(zip(self.states, states, strict=False))
        for name, begin in self._beginnings().items():
            value = named.get(name)
            if value is not None and value.numel() and bool((value != 0).any()):
                begin(value)

    def _beginnings(self) -> dict[str, Callable[[Tensor], None]]:
        def spk(value: Tensor) -> None:
            self.spikes = value

        found: dict[str, Callable[[Tensor], None]] = {"spk": spk, "mem": self.membrane.begin}
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
        spikes, read["mem"] = self.membrane(x)
        read["spk"] = self.spikes = spikes
        self.last = tuple(read[name] for name in self.states)
        return spikes
