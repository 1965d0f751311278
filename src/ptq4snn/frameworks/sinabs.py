"""sinabs 3.1.3, without importing it (and never its backends, which install software when they are imported).

LIF, IAF, ExpLeak                           x[B, T, ...]; the state stays until reset_states()
LIFSqueeze, IAFSqueeze, ExpLeakSqueeze      x[B T, ...]
LIFRecurrent, IAFRecurrent                  spikes go back through rec_connect
spike_fn                                    SingleSpike; MultiSpike and MaxSpike count
SumPool2d                                   a mean times the size of its window
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ptq4snn.errors import UnsupportedNeuron
from ptq4snn.frameworks.compound import Compound, CompoundAdapter
from ptq4snn.frameworks.foreign import ADAPTIVE, REGISTER, origins, overridden, refusal, values
from ptq4snn.frameworks.sinabs_compound import Forget, SinabsCompound, SumPool

__all__ = ["SinabsAdapter"]

KINDS = (
    "LIF", "LIFRecurrent", "LIFSqueeze", "IAF", "IAFRecurrent", "IAFSqueeze", "ExpLeak", "ExpLeakSqueeze",
)  # fmt: skip
SPIKES = ("SingleSpike", "MultiSpike", "MaxSpike")


def _named(value: Any) -> str:
    """Of a class that is passed as such, or of an object."""
    return getattr(value, "__name__", type(value).__name__)


def _objection(layer: Any, kind: type) -> tuple[str, str] | None:
    """Why a layer of a known class still has no canonical form, and what to do; None if it has."""
    if (name := overridden(layer, kind)) is not None:
        return f"it replaces {name}() of {kind.__name__}", REGISTER
    if layer.min_v_mem is not None and bool((values(layer.min_v_mem) > 0).any()):
        return "its min_v_mem is above 0, where it rests", "use a min_v_mem of 0 or less"
    if getattr(layer, "batch_size", -1) > 0:
        return (
            f"its batch_size is fixed to {layer.batch_size}",
            "construct it with num_timesteps alone, so that it takes any number of samples",
        )
    if layer.spike_fn is not None and (objection := _firing(layer)) is not None:
        return objection
    connect = getattr(layer, "rec_connect", None)
    biases = [p for n, p in connect.named_parameters() if n.endswith("bias")] if connect is not None else []
    if any(bool((b != 0).any()) for b in biases):
        return (
            "its rec_connect has a bias, which sinabs leaves out of the first step",
            "construct rec_connect with bias=False and move the bias into the layer in front",
        )
    return None


def _firing(layer: Any) -> tuple[str, str] | None:
    fires, resets = layer.spike_fn, layer.reset_fn
    if _named(fires) not in SPIKES:
        return f"its spike_fn {_named(fires)} is not sinabs's own", f"use one of {', '.join(SPIKES)}"
    if bool((values(layer.spike_threshold) < 0).any()):
        return "its threshold is negative, so it fires at rest", "use a threshold of 0 or more"
    if _named(fires) != "SingleSpike" and not bool((values(layer.spike_threshold) > 0).all()):
        return f"its {_named(fires)} divides by a threshold of 0", "use a threshold above 0"
    if _named(resets) not in ("MembraneSubtract", "MembraneReset"):
        return f"its reset_fn {_named(resets)} is not sinabs's own", "use MembraneSubtract or MembraneReset"
    if getattr(resets, "reset_value", 0.0) != 0:
        return "its MembraneReset adds the reset_value at every step", "use a reset_value of 0"
    return None


class SinabsAdapter(CompoundAdapter):
    name = "sinabs"
    copies_badly = True  # __deepcopy__ builds a layer anew, which fails for recurrent ones

    def matches(self, module: nn.Module) -> bool:
        neuron = any(c.__name__ == "StatefulLayer" for c in origins(module, "sinabs"))
        return neuron and not isinstance(module, Forget)

    def parts(self, module: nn.Module, path: str) -> Compound | None:
        classes = origins(module, "sinabs")
        if classes and classes[0].__name__ == "SumPool2d" and type(module) is classes[0]:
            return SumPool(module)
        kind = next((c for c in classes if c.__name__ in KINDS), None)
        if kind is None:
            return None
        if (objection := _objection(module, kind)) is not None:
            raise refusal(path, module, *objection)
        return SinabsCompound(module)

    def refused(self, module: nn.Module, path: str) -> UnsupportedNeuron:
        adapts = any(c.__name__.startswith("ALIF") for c in origins(module, "sinabs"))
        why = ADAPTIVE if adapts else "it is not one of sinabs's LIF, IAF or ExpLeak layers"
        recurrent = any("Recurrent" in c.__name__ for c in origins(module, "sinabs"))
        return refusal(path, module, why, f"use {'LIFRecurrent' if recurrent else 'LIF'}, or {REGISTER}")

    def reset(self, module: nn.Module) -> None:
        layer: Any = module
        for name, state in list(layer.named_buffers(recurse=False)):
            layer.register_buffer(name, torch.zeros(0, device=state.device))
