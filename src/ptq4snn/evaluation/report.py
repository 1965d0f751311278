"""What quantization cost, as one JSON-able value.

Numbers are per sample; None stands for what does not exist. `saturation` is in per cent, all other rates
are shares from 0 to 1. before: the float network, after: the quantized one.

summary      version (of ptq4snn), arithmetic, steps (T), task (classification or segmentation),
             samples, held_out (samples behind every figure here), recipe, beta, percentile,
             agreement (share of equal decisions), kl (to the float model),
             average_bits (states in the budget), average_bits_all (all resident states),
             bits_split ({bits: share} of the states outside the stem),
             saturation, flip_rate, emd (mean over channels), firing_rate {before, after},
             objective (what the states were judged by),
             channels, silent_channels {before, after}, leak_error (largest),
             excluded ({module that stays float: its parameters}, in none of the bytes here),
             weight_bytes {float, quantized, scales, biases},
             state_bytes {float, logical, payload, metadata, packed, shifts, packed_with_shifts},
             state_energy and state_energy_with_shifts (packed words over the M32 row's),
             state_words {m32, packed} (32-bit words that a step reads, and writes),
             state_packets (the same in the paper's channel-major packets: payload, packed,
             packed_with_shifts, energy, energy_with_shifts, words {m32, packed}), stream_bytes,
             macs (of projections that read data or chains), synops {before, after},
             energy_pj {before, after}
neurons      name, stage (the part of the model), kind, coupling, shape, channels, elements, steps,
             bits ({bits: channels}), average_bits, k {min, median, max}, saturation, flip_rate,
             firing_rate {before, after}, emd, silent_channels {before, after},
             divergence (per time step, RMS in theta),
             over_time {flip_rate, saturation, firing_rate {before, after}} (per time step), leak_error,
             zero_state, carries_state, in_budget, readout, stem
projections  name, role, reads, bits, macs, synops {before, after} (None: reads no spikes),
             weight_bytes {float, quantized, scales, biases}, bound, shift,
             dead_gptq_columns (inputs without a spike; None: not rounded by GPTQ)
trials       beta, percentile, kl, agreement, average_bits
silent       before, after (first layer without a spike), lost (layers that fell silent)
figures      data of the paper's figures by name, each with rows (docs/format.md); floats of six digits
evaluations  data, samples, limit, task, float, quantized (metrics): what `ptq4snn evaluate` measured
"""

from __future__ import annotations

import math
import warnings
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ptq4snn import __version__
from ptq4snn.allocation.search import Trial
from ptq4snn.assemble import Assembly
from ptq4snn.cost.accounting import StateCost, operations, stream_bytes
from ptq4snn.cost.neuron_facts import stages_of, weight_bytes
from ptq4snn.cost.traffic import PlanCost, plan_cost
from ptq4snn.discovery.discover import Discovery
from ptq4snn.errors import SilentNetworkWarning
from ptq4snn.evaluation.fidelity import Fidelity, compare
from ptq4snn.evaluation.figures import make_figures
from ptq4snn.evaluation.rows import neuron_row, projection_row
from ptq4snn.modules.quantized import QuantizedModel
from ptq4snn.network.plan import Plan
from ptq4snn.rounding.stage import dead_columns

if TYPE_CHECKING:
    from ptq4snn.prepare import Prepared

__all__ = ["make_report"]


def make_report(
    prepared: Prepared, assembly: Assembly, model: QuantizedModel, trials: list[Trial]
) -> dict[str, Any]:
    """Compare float and quantized model on the held-out samples and count what the plan costs; keys above."""
    found = compare(prepared, model)
    plan, d = model.plan, prepared.folded.discovery
    sizes = {n: p.weight.integers.numel() for n, p in assembly.lattice.projections.items()}
    cost = plan_cost(plan, sizes, stream_bytes(d), model.program)
    dead = dead_columns(prepared, assembly.lattice, assembly.recipe)
    stages = stages_of(d.neurons)
    report = {
        "summary": {
            **_summary(prepared, plan, found),
            "objective": "replay" if assembly.traces else "squared_error",
            **_totals(cost),
            **_operation_totals(d, found),
        },
        "neurons": [neuron_row(plan.neurons[n], found.neurons[n], stages[n]) for n in d.neurons],
        "projections": [
            projection_row(plan.projections[n], p, cost.projections[n], found, dead.get(n))
            for n, p in d.projections.items()
        ],
        "trials": [asdict(t) for t in trials],
        "silent": _silent(plan, found),
        "figures": make_figures(prepared, assembly, plan, found, trials, cost),
        "evaluations": [],
    }
    _warn(report["silent"])  # type: ignore[arg-type]
    clean: dict[str, Any] = _finite(report)
    return clean


def _finite(x: Any) -> Any:
    """The same value with None for NaN and infinities, which JSON does not have."""
    if isinstance(x, dict):
        return {str(k): _finite(v) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return [_finite(v) for v in x]
    return None if isinstance(x, float) and not math.isfinite(x) else x


def _summary(prepared: Prepared, plan: Plan, found: Fidelity) -> dict[str, Any]:
    neurons = list(found.neurons.values())
    return {
        "version": __version__,
        "arithmetic": plan.arithmetic,
        "steps": plan.steps,
        "task": found.task,
        "samples": prepared.samples,
        "held_out": found.samples,
        "recipe": plan.recipe,
        "beta": plan.beta,
        "percentile": plan.percentile,
        "agreement": found.agreement,
        "kl": found.kl,
        "average_bits": plan.average_bits(),
        "saturation": found.saturation,
        "flip_rate": found.flip_rate,
        "emd": found.emd,
        "firing_rate": _firing_rate(plan, found),
        "channels": sum(n.rates_before.numel() for n in neurons),
        "silent_channels": {
            "before": sum(n.silent_before for n in neurons),
            "after": sum(n.silent_after for n in neurons),
        },
        "leak_error": max(n.leak_error for n in plan.neurons.values()),
        "excluded": {
            name: sum(p.numel() for p in prepared.model.get_submodule(name).parameters())
            for name in plan.excluded
        },
    }


def _totals(cost: PlanCost) -> dict[str, Any]:
    """Bytes and words."""
    state = cost.state
    return {
        "weight_bytes": weight_bytes(cost.weights),
        "average_bits_all": state.average_bits,
        "bits_split": state.split,
        "state_bytes": {
            "float": state.float32,
            "logical": state.logical,
            "payload": state.payload,
            "metadata": state.metadata,
            "packed": state.packed,
            "shifts": state.shifts,
            "packed_with_shifts": state.packed_with_shifts,
        },
        "state_energy": state.energy,
        "state_energy_with_shifts": state.energy_with_shifts,
        "state_words": {"m32": state.m32_words, "packed": state.words},
        "state_packets": _packets(cost.packets),
        "stream_bytes": cost.streams,
    }


def _packets(state: StateCost) -> dict[str, Any]:
    return {
        "payload": state.payload,
        "packed": state.packed,
        "packed_with_shifts": state.packed_with_shifts,
        "energy": state.energy,
        "energy_with_shifts": state.energy_with_shifts,
        "words": {"m32": state.m32_words, "packed": state.words},
    }


def _operation_totals(discovery: Discovery, found: Fidelity) -> dict[str, Any]:
    macs = {n: p.macs for n, p in discovery.projections.items()}
    before, after = operations(macs, found.firing_before), operations(macs, found.firing_after)
    return {
        "macs": before.macs,
        "synops": {"before": before.synops, "after": after.synops},
        "energy_pj": {"before": before.energy_pj, "after": after.energy_pj},
    }


def _firing_rate(plan: Plan, found: Fidelity) -> dict[str, float]:
    """Mean over all spike positions of the network."""
    sizes = {n: p.elements * p.channels * p.steps for n, p in plan.neurons.items()}
    total = sum(sizes.values())
    return {
        "before": sum(f.rate_before * sizes[n] for n, f in found.neurons.items()) / total,
        "after": sum(f.rate_after * sizes[n] for n, f in found.neurons.items()) / total,
    }


def _silent(plan: Plan, found: Fidelity) -> dict[str, Any]:
    """First layer, in execution order, without a single spike on the held-out samples.

    A neuron whose membrane is the output need not fire; it only counts where it did so before.
    """
    before = [n for n, f in found.neurons.items() if f.rate_before == 0]
    after = [n for n, f in found.neurons.items() if f.rate_after == 0]
    lost = [n for n in after if n not in before]

    def first(names: list[str]) -> str | None:
        return next((n for n in names if n in lost or not plan.neurons[n].readout), None)

    return {"before": first(before), "after": first(after), "lost": lost}


def _warn(silent: dict[str, Any]) -> None:
    if not silent["lost"]:
        return
    first, *more = silent["lost"]
    also = f" (and {len(more)} more after it)" if more else ""
    warnings.warn(
        f"the quantized network goes silent at '{first}'{also}: it fires in the float network, but not once "
        f"after quantization on the held-out samples; try more membrane or weight bits there "
        f"(overrides={{'{first}': {{'membrane': 8}}}}), coupling 'bridge', or more calibration samples",
        SilentNetworkWarning,
        stacklevel=5,
    )
