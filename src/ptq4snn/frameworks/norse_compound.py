"""Norse's neurons as canonical ones.

    i[t] = (1 - dt/tau_syn) i[t-1] + x[t] (+ W_rec z[t-1])        (Box, IAF: i = x)
    H[t] = V[t-1] + dt/tau_mem (v_leak - V[t-1] + i[t])           (IAF: V[t-1] + i[t])
    z[t] = H > v_th,    V = v_reset where z, or H - v_th z        (LI: neither; H is the output)

The synapse keeps dt/tau_mem i, so that the membrane adds it as it is. Norse hands out the current behind its
decay, (1 - dt/tau_syn) i[t].
"""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from importlib import import_module
from operator import is_
from typing import Any

import torch
from torch import Tensor, nn

from ptq4snn.frameworks.adapter import NeuronSpec, Surrogate
from ptq4snn.frameworks.compound import Before, Compound, Stage, plain_linear
from ptq4snn.frameworks.foreign import reference_current, values
from ptq4snn.models.neuron import fire

__all__ = ["KINDS", "STEPS", "NorseCompound", "rest_of"]


@dataclass(frozen=True)
class Kind:
    fires: bool
    over_time: bool  # a call is x[T, B, ...]; else one step x[B, ...]
    state: Any  # the names of what is handed from step to step, as Norse has them


# made to look like Norse's own
LIFFeedForwardState = namedtuple("LIFFeedForwardState", "v i")
LIFState = namedtuple("LIFState", "z v i")
LIState = namedtuple("LIState", "v i")
LIFBoxFeedForwardState = namedtuple("LIFBoxFeedForwardState", "v")
LIBoxState = namedtuple("LIBoxState", "v")
IAFFeedForwardState = namedtuple("IAFFeedForwardState", "v")

KINDS = {
    "LIF": Kind(True, True, LIFFeedForwardState),
    "LIFCell": Kind(True, False, LIFFeedForwardState),
    "LIFRecurrent": Kind(True, True, LIFState),
    "LIFRecurrentCell": Kind(True, False, LIFState),
    "LIFBoxCell": Kind(True, False, LIFBoxFeedForwardState),
    "IAF": Kind(True, True, IAFFeedForwardState),
    "IAFCell": Kind(True, False, IAFFeedForwardState),
    "LI": Kind(False, True, LIState),
    "LICell": Kind(False, False, LIState),
    "LILinearCell": Kind(False, False, LIState),
    "LIBoxCell": Kind(False, False, LIBoxState),
}
STEPS = {
    "lif_feed_forward_step", "lif_step", "lif_box_feed_forward_step", "iaf_feed_forward_step",
    "li_feed_forward_step", "li_box_feed_forward_step",
}  # fmt: skip


def rest_of(p: Any) -> float:
    """Where the membrane starts and leaks to; an IAF neuron, which does not leak, starts from its reset."""
    return float(p.v_leak if hasattr(p, "v_leak") else p.v_reset)


class NorseCompound(Compound):
    """forward(x, state or None) -> (spikes or potentials, state)."""

    def __init__(self, module: nn.Module, kind: Kind) -> None:
        super().__init__()
        neuron: Any = module
        p = neuron.p
        self.kind, self.record_states = kind, bool(getattr(neuron, "record_states", False))
        one = values(1.0)
        gain = values(neuron.dt * p.tau_mem_inv) if hasattr(p, "tau_mem_inv") else one
        leak = 1 - gain if hasattr(p, "tau_mem_inv") else one
        rest = rest_of(p)
        theta = values(p.v_th) - rest if kind.fires else one  # what never fires is measured in ones
        soft = getattr(getattr(p, "reset_method", None), "__name__", "") == "reset_subtract"
        reset: Any = "none" if not kind.fires else "soft" if soft else "hard"
        rho, surrogate = values(p.v_th) if soft else theta, _surrogate(p)
        synaptic = "i" in kind.state._fields
        self.membrane = Stage(
            NeuronSpec(leak, one if synaptic else gain, theta, rho, ">", reset, surrogate, rest),
            reads_potential=not kind.fires,
        )
        self.synapse: Stage | None = None
        if synaptic:
            decay, level = 1 - values(neuron.dt * p.tau_syn_inv), reference_current(theta, leak)
            spec = NeuronSpec(decay, gain, level, level, ">", "none", surrogate, emits="current")
            self.synapse = Stage(spec, factor=decay / gain)
        weights = (getattr(neuron, n, None) for n in ("input_weights", "recurrent_weights"))
        self.input, self.recurrent = (None if w is None else plain_linear(w) for w in weights)
        self.before = Before()
        self.last: Any = None
        self.reset()

    def reset(self) -> None:
        super().reset()
        self.last = None

    def forward(self, input_tensor: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        self._take(state)
        if not self.kind.over_time:
            return self._step(input_tensor), self.last
        outputs, states = [], []
        for x in input_tensor.unbind(0):
            outputs.append(self._step(x))
            states.append(self.last)
        if self.record_states:
            return torch.stack(outputs), self.kind.state(*(torch.stack(s) for s in zip(*states, strict=True)))
        return torch.stack(outputs), self.last

    def _take(self, state: Any) -> None:
        """No state begins another sequence, and so does one that this neuron did not return last."""
        if state is not None and self.last is not None and all(map(is_, state, self.last)):
            return
        self.rest()
        if state is None:
            return
        self.membrane.begin(torch.as_tensor(state.v))
        if self.synapse is not None:
            self.synapse.begin(torch.as_tensor(state.i))
        self.spikes = getattr(state, "z", None)

    def _step(self, x: Tensor) -> Tensor:
        if self.input is not None:
            x = self.input(x)
        if self.recurrent is not None:
            x = x + self.recurrent(self.before(self.last_spikes(x)))
        found: dict[str, Tensor] = {}
        if self.synapse is not None:
            x, found["i"] = self.synapse(x)
        spikes, found["v"] = self.membrane(x)
        found["z"] = self.spikes = spikes
        self.last = self.kind.state(*(found[name] for name in self.kind.state._fields))
        return spikes if self.kind.fires else found["v"]


def _surrogate(p: Any) -> Surrogate:
    if not hasattr(p, "method"):  # a readout
        return lambda u: fire(u, 2.0)
    method, alpha = p.method, p.alpha
    return lambda u: import_module("norse.torch.functional.threshold").threshold(u, method, alpha)
