"""States tuned neuron by neuron in execution order, behind what is quantized already."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from ptq4snn.assemble import Assembly
from ptq4snn.modules.quantized import QuantizedModel
from ptq4snn.network.plan import Plan
from ptq4snn.observation.traces import Trace
from ptq4snn.prepared import Prepared
from ptq4snn.tuning.correction import corrected_threshold
from ptq4snn.tuning.one_pass import traces_in_order

__all__ = ["tune_states"]


def tune_states(
    prepared: Prepared, assembly: Assembly, model: QuantizedModel, bits: Mapping[str, Tensor]
) -> Plan:
    """The plan for `bits` with every neuron's scale chosen on the currents that reach it, and its threshold.

    With `sequential` these are the currents of the quantized network, else those of the float one. Thresholds
    make up for what the weights lost, so they always see the currents of the quantized network.
    """
    scaled, moved = _scaled(assembly), _moved(assembly)
    names = [n for n in assembly.lattice.neurons if n in scaled or n in moved]
    if not names:
        return assembly.plan(bits)
    plan = _beginning(assembly, scaled).plan(bits)

    def tune(name: str, trace: Trace) -> None:
        nonlocal plan
        if name in scaled:
            assembly.retrace(name, trace)
            plan = assembly.replanned(plan, name, bits)
        if name in moved:
            assembly.thresholds[name] = corrected_threshold(assembly, plan.neurons[name], trace)
            plan = assembly.replanned(plan, name, bits)
        model.use(plan)

    model.use(plan)
    traces_in_order(prepared, model, names, tune)
    return plan


def _beginning(assembly: Assembly, scaled: set[str]) -> Assembly:
    """What is put in front of the tuned states until their turn comes: scales by squared error, at once."""
    others = {n: trace for n, trace in assembly.traces.items() if n not in scaled}
    return Assembly(assembly.lattice, others, dict(assembly.thresholds))


def _scaled(assembly: Assembly) -> set[str]:
    """Neurons whose scale is chosen behind what is quantized already."""
    if not (assembly.recipe.sequential and assembly.traces):
        return set()
    return {n for n in assembly.lattice.neurons if assembly.in_budget(n) and assembly.bridged(n)}


def _moved(assembly: Assembly) -> set[str]:
    """Neurons whose threshold may move: those that fire, also where the state keeps all its bits."""
    if assembly.recipe.corrects != "threshold":
        return set()
    return {name for name in assembly.lattice.neurons if _may_move(assembly, name)}


def _may_move(assembly: Assembly, name: str) -> bool:
    n, spec = assembly.lattice.neurons[name], assembly.folded.specs[name]
    fires = n.info.carries_state and spec.emits == "spikes" and bool((n.theta > 0).all())
    free = not assembly.protected(name) and assembly.coupling(name) in ("bridge", "none")
    return fires and free
