"""Norse 1.1.0, without importing it. Its neurons keep no state: it is an argument and a result of forward.

LIF, LIFCell, LIFRecurrent, LIFRecurrentCell    a synaptic current and a membrane
LIFBoxCell, IAF, IAFCell                        a membrane
LI, LICell, LILinearCell, LIBoxCell             the same without a threshold: the potential is the output
"""

from __future__ import annotations

from typing import Any

from torch import nn

from ptq4snn.errors import UnsupportedNeuron
from ptq4snn.frameworks.compound import Compound, CompoundAdapter
from ptq4snn.frameworks.foreign import ADAPTIVE, REGISTER, origins, overridden, refusal, values
from ptq4snn.frameworks.norse_compound import KINDS, STEPS, NorseCompound, rest_of
from ptq4snn.frameworks.norse_containers import RecurrentSequence

__all__ = ["NorseAdapter"]

HOME = "norse.torch.module."
FILES = {
    "coba_lif", "iaf", "izhikevich", "leaky_integrator", "leaky_integrator_box", "lif", "lif_adex",
    "lif_adex_refrac", "lif_box", "lif_correlation", "lif_ex", "lif_mc", "lif_mc_refrac", "lif_refrac",
    "lsnn", "snn",
}  # fmt: skip
REASONS = {  # by the start of the class's name, the longest first
    "LSNN": ADAPTIVE,
    "LIFAdEx": "it has an exponential term and adapts",
    "LIFEx": "it has an exponential term",
    "LIFRefrac": "it counts the steps of a refractory period",
    "LIFMC": "it has several compartments",
    "LIFCorrelation": "it learns while it runs",
    "CobaLIF": "its conductances multiply its membrane",
    "Izhikevich": "its dynamics are quadratic",
}


def _objection(neuron: Any, kind: type) -> tuple[str, str] | None:
    """Why a neuron of a known class still has no canonical form, and what to do; None if it has."""
    if (name := overridden(neuron, kind)) is not None:
        return f"it replaces {name}() of {kind.__name__}", REGISTER
    step = getattr(getattr(neuron, "activation", None), "__name__", None)
    if step is not None and step not in STEPS:
        return f"its activation is {step}() and not Norse's own", REGISTER
    p = neuron.p
    rates = [values(neuron.dt * getattr(p, n)) for n in ("tau_mem_inv", "tau_syn_inv") if hasattr(p, n)]
    if any(bool(((r <= 0) | (r > 1)).any()) for r in rates):
        return "dt times an inverse time constant is not in (0, 1]", "use a smaller dt"
    for name in ("v_leak", "v_reset"):
        if values(getattr(p, name, 0.0)).dim():
            return f"its {name} is not one number", f"give it one number, or {REGISTER}"
    hard = getattr(getattr(p, "reset_method", None), "__name__", "reset_value")
    if hard not in ("reset_value", "reset_subtract"):
        return f"its reset_method {hard}() is not Norse's own", "use reset_value or reset_subtract"
    if hasattr(p, "v_reset") and hard == "reset_value" and float(p.v_reset) != rest_of(p):
        return (
            f"it is reset to {float(p.v_reset):g} and leaks to {rest_of(p):g}",
            "give it the same v_reset and v_leak",
        )
    if hasattr(p, "v_th") and bool((values(p.v_th) < rest_of(p)).any()):
        return "its threshold is below its resting potential, so it fires at rest", "use a higher v_th"
    weights = [getattr(neuron, n) for n in ("input_weights", "recurrent_weights") if hasattr(neuron, n)]
    if not all(isinstance(w, nn.Parameter) for w in weights):
        return (
            "its weights are tensors that .to() and checkpoints do not reach",
            "wrap them into nn.Parameter",
        )
    return None


class NorseAdapter(CompoundAdapter):
    name = "norse"

    def matches(self, module: nn.Module) -> bool:
        homes = [c.__module__ for c in origins(module, "norse")]
        return any(h.startswith(HOME) and h.removeprefix(HOME) in FILES for h in homes)

    def parts(self, module: nn.Module, path: str) -> Compound | None:
        if any(c.__name__ == "RecurrentSequential" for c in origins(module, "norse")):
            return RecurrentSequence.of(module)
        kind = next((c for c in origins(module, "norse") if c.__name__ in KINDS), None)
        if kind is None:
            return None
        if (objection := _objection(module, kind)) is not None:
            raise refusal(path, module, *objection)
        return NorseCompound(module, KINDS[kind.__name__])

    def refused(self, module: nn.Module, path: str) -> UnsupportedNeuron:
        names = [c.__name__ for c in origins(module, "norse")]
        known = (why for start, why in REASONS.items() for n in names if n.startswith(start))
        why = next(known, "it is not one of Norse's LIF, LIFBox, IAF or LI neurons")
        nearest = "LIFRecurrent" if any("Recurrent" in n for n in names) else "LIF"
        nearest += "Cell" if any(n.endswith("Cell") for n in names) else ""
        return refusal(path, module, why, f"use {nearest}, or {REGISTER}")
