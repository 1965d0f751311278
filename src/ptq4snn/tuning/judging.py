"""How near a plan's network comes to the float one: outputs on held-out samples, flips by replay."""

from __future__ import annotations

import torch

from ptq4snn.allocation.search import Verdict
from ptq4snn.assemble import Assembly
from ptq4snn.bridge.replay import ChannelCosts
from ptq4snn.modules.quantized import QuantizedModel
from ptq4snn.modules.readout import divergences, mean_divergence, temperature
from ptq4snn.network.plan import NeuronPlan, Plan
from ptq4snn.numerics.grid import signed_range
from ptq4snn.observation.traces import Trace
from ptq4snn.prepared import Prepared, join
from ptq4snn.tuning.tuning_traces import float_traces

__all__ = ["expected_flips", "judge", "plan_levels"]


def judge(prepared: Prepared, assembly: Assembly, model: QuantizedModel, plan: Plan) -> Verdict:
    """The model computes `plan` from now on."""
    model.use(plan)
    expected = prepared.float_logits()
    batches = join(prepared.held_out, prepared.batch_axis)
    found = list(prepared.logits(model, batches))
    kl, agreement = mean_divergence(zip(expected, found, strict=True))
    warmth = temperature(expected)
    apart = torch.cat([divergences(a, b, warmth) for a, b in zip(expected, found, strict=True)])
    return Verdict(kl, agreement, expected_flips(prepared, assembly, plan), apart)


def expected_flips(prepared: Prepared, assembly: Assembly, plan: Plan) -> float:
    """Mean over the neurons in the budget of what replay of their recorded currents costs; 0 without any."""
    traces = float_traces(prepared)
    costs = []
    for n in plan.neurons.values():
        lattice = assembly.lattice.neurons[n.name]
        if n.in_budget and n.name in traces and bool((lattice.theta > 0).all()):
            costs.append(_flips(assembly, n, traces[n.name]))
    return sum(costs) / max(1, len(costs))


def _flips(assembly: Assembly, plan: NeuronPlan, trace: Trace) -> float:
    known = assembly.flips.get(plan.name)
    if known is None or known.trace is not trace:
        dynamics = assembly.dynamics(assembly.lattice.neurons[plan.name])
        known = assembly.flips[plan.name] = ChannelCosts(dynamics, trace)
    step = torch.tensor(plan.scales, dtype=torch.float64)
    return float(known.of(step, plan_levels(plan)).mean())


def plan_levels(plan: NeuronPlan) -> tuple[torch.Tensor, ...]:
    """Least and largest level [C, 1] of a neuron's state."""
    ranges = [signed_range(b) for b in plan.bits]
    return tuple(
        torch.tensor([float(r[i] + z) for r, z in zip(ranges, plan.zero, strict=True)])[:, None]
        for i in (0, 1)
    )
