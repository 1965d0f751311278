"""States tuned neuron by neuron in execution order, behind what is quantized already."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from ptq4snn.assemble import Assembly
from ptq4snn.modules.quantized import QuantizedModel
from ptq4snn.network.plan import Plan
from ptq4snn.prepare import Prepared
from ptq4snn.tuning.correction import corrected_threshold
from ptq4snn.tuning.tuning_traces import float_traces, quantized_trace

__all__ = ["tune_states"]


def tune_states(
    prepared: Prepared, assembly: Assembly, model: QuantizedModel, bits: Mapping[str, Tensor]
) -> Plan:
    """The plan for `bits` with every neuron's scale (and threshold) chosen on the currents that reach it.

    With `sequential` these are the currents of the quantized network, else those of the float one.
    """
    recipe = assembly.recipe
    names = [n for n in assembly.lattice.neurons if assembly.in_budget(n) and assembly.bridged(n)]
    plan = assembly.plan(bits)
    if not ((recipe.sequential and assembly.traces) or recipe.correction == "threshold"):
        return plan
    model.use(plan)
    for name in prepared.progress.track(names, len(names), "tuning states"):
        if recipe.sequential and assembly.traces:
            assembly.retrace(name, quantized_trace(prepared, model, name))
            plan = assembly.plan(bits)
        if recipe.correction == "threshold" and plan.neurons[name].emits == "spikes":
            trace = assembly.traces.get(name) or float_traces(prepared)[name]
            assembly.thresholds[name] = corrected_threshold(assembly, plan.neurons[name], trace)
            plan = assembly.plan(bits)
        model.use(plan)
    return plan
