"""What a plan tells of its neurons, as rows of a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from statistics import median

from ptq4snn.cost.accounting import StateCost, WeightCost
from ptq4snn.network.plan import NeuronPlan
from ptq4snn.schema.report_types import Neuron, StateBytes, WeightBytes

__all__ = ["neuron_facts", "stages_of", "state_bytes", "weight_bytes"]

STAGES, DEEPEST = 24, 4  # parts of a model at most, and of a name


def weight_bytes(w: WeightCost) -> WeightBytes:
    return {"float": w.float32, "quantized": w.packed, "scales": w.scales, "biases": w.biases}


def state_bytes(s: StateCost) -> StateBytes:
    return {
        "float": s.float32,
        "logical": s.logical,
        "payload": s.payload,
        "metadata": s.metadata,
        "packed": s.packed,
        "shifts": s.shifts,
        "packed_with_shifts": s.packed_with_shifts,
    }


def neuron_facts(p: NeuronPlan, stage: str) -> Neuron:
    """A neuron as far as its plan tells."""
    k = [v for v in p.k if v is not None]
    return {
        "name": p.name,
        "stage": stage,
        "kind": p.kind,
        "coupling": p.coupling,
        "shape": list(p.layout.shape),
        "channels": p.channels,
        "elements": p.elements,
        "steps": p.steps,
        "bits": {str(b): p.bits.count(b) for b in sorted(set(p.bits))},
        "average_bits": sum(p.bits) / p.channels,
        "k": {"min": min(k), "median": median(k), "max": max(k)} if k else None,
        "leak_error": p.leak_error,
        "zero_state": p.zero_state,
        "carries_state": p.carries_state,
        "in_budget": p.in_budget,
        "readout": p.readout,
        "stem": p.stem,
    }


def stages_of(names: Iterable[str]) -> dict[str, str]:
    """The part of the model that a neuron belongs to: the beginning of its name, longer where otherwise one
    part would hold more than half of the neurons."""
    split = {n: n.split(".") for n in names}
    stages = {n: s[0] for n, s in split.items()}
    for depth in range(2, DEEPEST + 1):
        sizes = Counter(stages.values())
        large = {s for s, count in sizes.items() if 2 * count > len(stages)}
        finer = {n: ".".join(split[n][:depth]) if s in large else s for n, s in stages.items()}
        if len(set(finer.values())) > STAGES:
            break
        stages = finer
    return stages
