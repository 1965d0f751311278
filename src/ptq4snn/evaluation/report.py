"""What quantization cost, as one JSON-able value; schema/report_types.py and docs/format.md tell its keys."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

from ptq4snn import __version__
from ptq4snn.allocation.mixed import score_reliability
from ptq4snn.allocation.search import Trial
from ptq4snn.assemble import Assembly
from ptq4snn.cost.accounting import Operations, StateCost, operations, stream_bytes
from ptq4snn.cost.neuron_facts import stages_of, state_bytes, weight_bytes
from ptq4snn.cost.traffic import PlanCost, plan_cost
from ptq4snn.discovery.discover import Discovery
from ptq4snn.errors import SilentNetworkWarning
from ptq4snn.evaluation.fidelity import Fidelity, compare
from ptq4snn.evaluation.figure_sources import make_figures
from ptq4snn.evaluation.neurobench import counted, neurobench_counts
from ptq4snn.evaluation.noise import noise_floor
from ptq4snn.evaluation.rows import neuron_row, projection_row
from ptq4snn.modules.quantized import QuantizedModel
from ptq4snn.network.plan import Plan
from ptq4snn.observation.reliability import Reliability
from ptq4snn.rounding.stage import dead_columns
from ptq4snn.schema.report_types import (
    BeforeAfter,
    Report,
    Silent,
    SplitHalf,
    StatePackets,
    Summary,
    TrialRow,
)

if TYPE_CHECKING:
    from ptq4snn.prepared import Prepared

__all__ = ["make_report"]


def make_report(prepared: Prepared, assembly: Assembly, model: QuantizedModel, trials: list[Trial]) -> Report:
    """Compare float and quantized model on the samples that report and count what the plan costs."""
    with counted(prepared, model) as meters:
        found = compare(prepared, model, [*meters[0].values(), *meters[1].values()])
    plan, d = model.plan, prepared.folded.discovery
    sizes = {n: p.weight.kept.numel() for n, p in assembly.lattice.projections.items()}
    cost = plan_cost(plan, sizes, stream_bytes(d), model.program)
    dead = dead_columns(prepared, assembly.lattice, assembly.recipe)
    stages = stages_of(d.neurons)
    summary = _summary(prepared, assembly, plan, found, cost)
    summary["neurobench"] = neurobench_counts(prepared, plan, meters, found, cost)
    report: Report = {
        "summary": summary,
        "neurons": [neuron_row(plan.neurons[n], found.neurons[n], stages[n]) for n in d.neurons],
        "projections": [
            projection_row(plan.projections[n], p, cost.projections[n], found, dead.get(n))
            for n, p in d.projections.items()
        ],
        "trials": [_trial(t) for t in trials],
        "silent": _silent(plan, found),
        "figures": make_figures(prepared, assembly, plan, found, trials, cost),
        "evaluations": [],
    }
    _warn(report["silent"])
    clean: Report = _finite(report)
    return clean


def _finite(x: Any) -> Any:
    """The same value with None for NaN and infinities, which JSON does not have."""
    if isinstance(x, dict):
        return {str(k): _finite(v) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return [_finite(v) for v in x]
    return None if isinstance(x, float) and not math.isfinite(x) else x


def _summary(prepared: Prepared, assembly: Assembly, plan: Plan, found: Fidelity, cost: PlanCost) -> Summary:
    neurons, state = list(found.neurons.values()), cost.state
    before, after = _operations(prepared.folded.discovery, found)
    noise = noise_floor(prepared)
    return {
        "version": __version__,
        "arithmetic": plan.arithmetic,
        "steps": plan.steps,
        "task": found.task,
        "samples": prepared.samples,
        "held_out": found.samples,
        "choosing": sum(x.shape[prepared.batch_axis] for x in prepared.held_out),
        "choosing_reports": not prepared.reporting,
        "recipe": plan.recipe,
        "beta": plan.beta,
        "percentile": plan.percentile,
        "agreement": found.agreement,
        "kl": found.kl,
        "average_bits": plan.average_bits(),
        "noise_floor": {"kl": noise[0], "agreement": noise[1]},
        "saturation": found.saturation(n.name for n in plan.budgeted()),
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
        "sensitivity": _split_half(score_reliability(prepared, assembly)),
        "objective": "replay" if assembly.traces else "squared_error",
        "weight_bytes": weight_bytes(cost.weights),
        "average_bits_all": state.average_bits,
        "bits_split": {str(b): share for b, share in state.split.items()},
        "state_bytes": state_bytes(state),
        "state_energy": state.energy,
        "state_energy_with_shifts": state.energy_with_shifts,
        "state_words": {"m32": state.m32_words, "packed": state.words},
        "state_packets": _packets(cost.packets),
        "stream_bytes": cost.streams,
        "macs": before.macs,
        "synops": {"before": before.synops, "after": after.synops},
        "energy_pj": {"before": before.energy_pj, "after": after.energy_pj},
    }


def _split_half(found: Reliability | None) -> SplitHalf | None:
    if found is None:
        return None
    return {"batches": found.batches, "overall": found.overall, "within_layers": found.within}


def _packets(state: StateCost) -> StatePackets:
    return {
        "payload": state.payload,
        "packed": state.packed,
        "packed_with_shifts": state.packed_with_shifts,
        "energy": state.energy,
        "energy_with_shifts": state.energy_with_shifts,
        "words": {"m32": state.m32_words, "packed": state.words},
    }


def _operations(discovery: Discovery, found: Fidelity) -> tuple[Operations, Operations]:
    """Of the float network and of the quantized one."""
    macs = {n: p.macs for n, p in discovery.projections.items()}
    return operations(macs, found.firing_before), operations(macs, found.firing_after)


def _trial(t: Trial) -> TrialRow:
    return {
        "beta": t.beta,
        "percentile": t.percentile,
        "kl": t.kl,
        "agreement": t.agreement,
        "flips": t.flips,
        "average_bits": t.average_bits,
        "name": t.name,
    }


def _firing_rate(plan: Plan, found: Fidelity) -> BeforeAfter:
    """Mean over all spike positions of the network."""
    sizes = {n: p.elements * p.channels * p.steps for n, p in plan.neurons.items()}
    total = sum(sizes.values())
    return {
        "before": sum(f.rate_before * sizes[n] for n, f in found.neurons.items()) / total,
        "after": sum(f.rate_after * sizes[n] for n, f in found.neurons.items()) / total,
    }


def _silent(plan: Plan, found: Fidelity) -> Silent:
    """First layer, in execution order, without a single spike on the held-out samples.

    A neuron whose membrane is the output need not fire; it only counts where it did so before.
    """
    before = [n for n, f in found.neurons.items() if f.rate_before == 0]
    after = [n for n, f in found.neurons.items() if f.rate_after == 0]
    lost = [n for n in after if n not in before]

    def first(names: list[str]) -> str | None:
        return next((n for n in names if n in lost or not plan.neurons[n].readout), None)

    return {"before": first(before), "after": first(after), "lost": lost}


def _warn(silent: Silent) -> None:
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
