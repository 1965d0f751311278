"""The data behind the paper's figures, as JSON-able values; every figure also has flat rows for CSV."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from ptq4snn.allocation.mixed import reference_sensitivity
from ptq4snn.allocation.scores import scores
from ptq4snn.api import inspect
from ptq4snn.bridge.weights import per_channel
from ptq4snn.experiments.compare import Bench
from ptq4snn.observation.statistics import bin_edges
from ptq4snn.pipeline import Prepared, run
from ptq4snn.plan import NeuronPlan, Plan
from ptq4snn.recipe import Recipe

__all__ = ["FIGURES", "MAKERS"]

# the exponents and scores hang on weight scales and float statistics, not on how weights are rounded
FIGURES = Recipe.parse("paper+nearest+w4m4").replace(beta=0.8)
BATCHES, STEPS = (1, 2, 4, 8, 16, 32, 64), (1, 2, 4, 8, 16, 32)
WEIGHT_BITS, FLOAT_BITS, STATE_BITS = 4, 32, 4
BINS = 32
SHARES = {"narrow": 0.1, "middle": 0.5, "wide": 0.9}  # which channels, ranked by their range of states

Data = dict[str, Any]


def membrane_cost(bench: Bench, recipe: Recipe) -> Data:
    """Bytes of weights and states against the batch size, and of state traffic against T at batch 1.

    Weights ideally packed to 4 bits; a step reads and writes every state once.
    """
    few = next(iter(bench.drawn(recipe)))
    found = inspect(bench.model, few, bench.batch_axis)
    sizes = {n: i.layout.channels * i.layout.elements for n, i in found.neurons.items()}
    carried = sum(sizes[n] for n, i in found.neurons.items() if i.carries_state)
    states = sum(sizes.values())
    modules: dict[str, Any] = dict(bench.model.named_modules())
    weights = sum(int(modules[n].weight.numel()) for n in found.projections)
    packed = weights * WEIGHT_BITS // 8
    wide, narrow = (states * bits // 8 for bits in (FLOAT_BITS, STATE_BITS))
    rows: list[Data] = [
        {"axis": "batch", "value": b, "weights": packed, "m32": packed + b * wide, "m4": packed + b * narrow}
        for b in BATCHES
    ]
    rows += [
        {"axis": "T", "value": t, "weights": None, "m32": 2 * t * wide, "m4": 2 * t * narrow} for t in STEPS
    ]
    return {"weights": weights, "states": states, "carried_states": carried, "rows": rows}


def distributions(bench: Bench, recipe: Recipe) -> Data:
    """Weights and float states of three channels of every pair, in theta, with their scale and exponent."""
    prepared = bench.prepared(recipe)
    plan = run(prepared, recipe).plan
    inner, outer = bin_edges()
    rows = []
    for name, info in prepared.folded.discovery.neurons.items():
        if info.kind != "pair" or len(info.projections) != 1 or not plan.neurons[name].in_budget:
            continue
        statistics = prepared.seen.neurons[name]
        reach = torch.maximum(statistics.low.abs(), statistics.high.abs())
        order = reach.argsort(stable=True).tolist()
        for title, share in SHARES.items():
            c = order[int(share * (len(order) - 1))]
            weight = _channel_weights(prepared, name, c)
            used = statistics.histogram[c].nonzero().flatten()
            rows.append(
                {
                    "neuron": name, "channel": c, "which": title, **_chosen(plan.neurons[name], c),
                    "weights": _histogram(weight),
                    "states": {
                        "inner": inner[used].tolist(), "outer": outer[used].tolist(),
                        "counts": statistics.histogram[c][used].tolist(),
                    },
                    "largest_weight": float(weight.abs().max()), "largest_state": float(reach[c]),
                }
            )  # fmt: skip
    return {"units": "states in theta, weights folded, in theta", "rows": rows}


def bridge_analysis(bench: Bench, recipe: Recipe) -> Data:
    """Exponents k of all channels in the budget, and their scales beside those of an observer of its own."""
    prepared = bench.prepared(recipe)
    bridged = run(prepared, recipe).plan
    settled = {"beta": bridged.beta, "percentile": bridged.percentile}  # the same bits for both
    observed = run(prepared, recipe.replace(coupling="independent", **settled)).plan
    rows = []
    for name, a in _in_budget(bridged).items():
        b = observed.neurons[name]
        for c in range(a.channels):
            rows.append(
                {
                    "neuron": name, "channel": c, "bits": a.bits[c], "k": a.k[c], "bridged": a.scales[c],
                    "observer": b.scales[c],
                }
            )  # fmt: skip
    ks = [k for n in _in_budget(bridged).values() for k in n.k if k is not None]
    return {"k": {str(k): ks.count(k) for k in sorted(set(ks))}, "rows": rows, **settled}


def allocation(bench: Bench, recipe: Recipe) -> Data:
    """Every channel in the budget by its score, and the states of 2, 4 and 8 bits in every stage."""
    prepared = bench.prepared(recipe)
    plan = run(prepared, recipe).plan
    neurons = _in_budget(plan)
    if not neurons or plan.beta is None:
        return {"beta": None, "percentile": None, "average_bits": None, "stages": {}, "rows": []}
    rate = torch.cat([prepared.seen.neurons[n].firing_rate() for n in neurons])
    g = reference_sensitivity(prepared, recipe)
    sensitivity = torch.cat([g[n] for n in neurons])
    a = scores(rate, sensitivity, plan.beta)
    channels = [(n, c) for n, p in neurons.items() for c in range(p.channels)]
    rows: list[Data] = [
        {
            "neuron": n, "channel": c, "stage": stage, "score": float(a[i]), "rate": float(rate[i]),
            "sensitivity": float(sensitivity[i]), "bits": neurons[n].bits[c], "elements": neurons[n].elements,
        }
        for i, ((n, c), stage) in enumerate(zip(channels, _stages([n for n, _ in channels]), strict=True))
    ]  # fmt: skip
    stages = _composition(rows)
    rows.sort(key=lambda r: -float(r["score"]))
    chosen = {"beta": plan.beta, "percentile": plan.percentile, "average_bits": plan.average_bits()}
    return {**chosen, "stages": stages, "rows": rows}


def _in_budget(plan: Plan) -> dict[str, NeuronPlan]:
    return {n: p for n, p in plan.neurons.items() if p.in_budget}


def _channel_weights(prepared: Prepared, neuron: str, channel: int) -> Tensor:
    """Folded weights behind a channel's current, gain included, in theta."""
    folded = prepared.folded
    info, spec = folded.discovery.neurons[neuron], folded.specs[neuron]
    weight = folded.weight(info.projections[0])[int(info.source_channel[channel])].double().flatten().cpu()
    gain, theta = (per_channel(folded, neuron, v, "gain") for v in (spec.gain, spec.theta))
    return weight * float(gain[channel] / theta[channel])


def _chosen(p: NeuronPlan, c: int) -> Data:
    return {"bits": p.bits[c], "k": p.k[c], "scale": p.scales[c]}


def _histogram(values: Tensor) -> Data:
    """Counts in BINS equal bins between the extremes."""
    low, high = float(values.min()), float(values.max())
    high = high if high > low else low + 1.0
    edges = torch.linspace(low, high, BINS + 1, dtype=torch.float64)
    counts = torch.histogram(values, edges).hist
    return {"edges": edges.tolist(), "counts": counts.long().tolist()}


def _stages(names: list[str]) -> list[str]:
    """The part of the model that a neuron belongs to: as much of its name as tells some of them apart."""
    split = [n.split(".") for n in names]
    depth = next((d for d in (1, 2, 3) if len({tuple(s[:d]) for s in split}) > 1), 1)
    return [".".join(s[:depth]) for s in split]


def _composition(rows: list[Data]) -> dict[str, dict[str, float]]:
    """Share of the states of each width, by stage in the order of the network."""
    total: dict[str, dict[str, int]] = {}
    for r in rows:
        widths = total.setdefault(r["stage"], {})
        widths[str(r["bits"])] = widths.get(str(r["bits"]), 0) + r["elements"]
    return {s: {b: n / sum(w.values()) for b, n in sorted(w.items())} for s, w in total.items()}


MAKERS: Mapping[str, Callable[[Bench, Recipe], Data]] = {
    "membrane-cost": membrane_cost,
    "distributions": distributions,
    "bridge-analysis": bridge_analysis,
    "allocation": allocation,
}
