"""One neuron and one projection of the report."""

from __future__ import annotations

from collections.abc import Sequence

from ptq4snn.cost.accounting import WeightCost
from ptq4snn.cost.neuron_facts import neuron_facts, weight_bytes
from ptq4snn.discovery.info import ProjectionInfo
from ptq4snn.evaluation.fidelity import Fidelity
from ptq4snn.evaluation.meters import NeuronFidelity, OverTime
from ptq4snn.network.plan import NeuronPlan, ProjectionPlan
from ptq4snn.schema import report_types as schema

__all__ = ["neuron_row", "projection_row"]


def neuron_row(p: NeuronPlan, f: NeuronFidelity, stage: str) -> schema.Neuron:
    return {
        **neuron_facts(p, stage),
        "saturation": f.saturation,
        "flip_rate": f.flip_rate,
        "firing_rate": {"before": f.rate_before, "after": f.rate_after},
        "emd": f.emd,
        "silent_channels": {"before": f.silent_before, "after": f.silent_after},
        "divergence": list(f.over_time.divergence),
        "over_time": _over_time(f.over_time),
    }


def _over_time(o: OverTime) -> schema.OverTime:
    steps = len(o.rates_after)
    return {
        "flip_rate": _filled(o.flips, steps),
        "saturation": _filled([100 * s for s in o.saturation], steps),
        "firing_rate": {"before": list(o.rates_before), "after": list(o.rates_after)},
    }


def _filled(values: Sequence[float], steps: int) -> list[float | None]:
    """None for the steps that were not measured."""
    return [*values, *[None] * (steps - len(values))]


def projection_row(
    p: ProjectionPlan, info: ProjectionInfo, w: WeightCost, found: Fidelity, dead: int | None
) -> schema.Projection:
    spiking = p.name in found.firing_before
    return {
        "name": p.name,
        "role": p.role,
        "reads": info.reads,
        "bits": p.bits,
        "macs": info.macs,
        "synops": {
            "before": info.macs * found.firing_before[p.name],
            "after": info.macs * found.firing_after[p.name],
        }
        if spiking
        else None,
        "weight_bytes": weight_bytes(w),
        "bound": p.bound,
        "shift": p.shift,
        "dead_gptq_columns": dead,
    }
