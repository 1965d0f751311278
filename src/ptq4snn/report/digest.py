"""What a report says first, for the terminal and the notebook alike. All of it comes from the report's JSON.

A report that lacks a key (an older one, or that of a plan alone) lacks what is made of it, nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from ptq4snn.report.headline import chosen_on, score_of
from ptq4snn.report.units import size, weight_bits
from ptq4snn.schema.report_types import Neuron, Report, Summary

__all__ = [
    "Accuracy", "Change", "accuracies", "average_bits", "beside_weights", "composition", "exponents",
    "headline", "memory", "most_telling", "notes", "shape", "widths",
]  # fmt: skip

ALL = "all layers"  # the stage of neurons that have none


class Change(NamedTuple):
    """Bytes before and after."""

    before: float
    after: float


class Accuracy(NamedTuple):
    """Scores in %, of the float model where it was measured too."""

    metric: str
    before: float | None
    after: float
    samples: int
    data: str


def headline(summary: Summary) -> list[str]:
    """The recipe in words: bits, coupling, allocation, rounding, arithmetic, T."""
    r = summary.get("recipe") or {}
    weights = "float weights" if r.get("weights") is None else f"W{weight_bits(r)}"
    membrane = "M32" if r.get("coupling") == "none" else f"M{r.get('membrane', 0):g}"
    allocation = f"allocation {r.get('allocation')}"
    if summary.get("beta") is not None:
        allocation += f" (beta {summary['beta']:g}, P{summary['percentile']:g})"
    words = [f"{weights}/{membrane}", f"coupling {r.get('coupling')}", allocation]
    words += [f"rounding {r['rounding']}"] if "rounding" in r else []
    words.append(f"{summary.get('arithmetic') or r.get('arithmetic')} arithmetic")
    return words + ([f"T = {summary['steps']}"] if summary.get("steps") else [])


def memory(summary: Summary) -> dict[str, Change]:
    """Bytes of one sample: states with padding and metadata, weights without scales and biases.

    A network that runs for one step only has no states to keep.
    """
    found = {}
    s, w = summary.get("state_bytes"), summary.get("weight_bytes")
    if s and s.get("float"):
        found["states"] = Change(s["float"], s["packed"])
    if w and w.get("float"):
        found["weights"] = Change(w["float"], w["quantized"])
    return found


def beside_weights(summary: Summary) -> int:
    """Bytes of scales and biases."""
    w = summary.get("weight_bytes")
    return w.get("scales", 0) + w.get("biases", 0) if w else 0


def accuracies(report: Report) -> list[Accuracy]:
    """What `ptq4snn evaluate` measured, in its order; without labels nothing was."""
    rows = []
    for e in report.get("evaluations") or []:
        metric, before, after = score_of(e)
        if after is not None:
            rows.append(Accuracy(metric, before, after, e["samples"], e["data"]))
    return rows


def states(neuron: Neuron) -> int:
    return int(neuron["channels"]) * int(neuron["elements"])


def average_bits(neuron: Neuron) -> float:
    """Over the channels, which have equally many states each."""
    return float(sum(int(b) * n for b, n in neuron["bits"].items()) / neuron["channels"])


def composition(neurons: Sequence[Neuron]) -> dict[str, dict[int, int]]:
    """Resident states of each width, by stage in the order of the network."""
    stages: dict[str, dict[int, int]] = {}
    for n in neurons:
        if n["carries_state"]:
            widths = stages.setdefault(n.get("stage", ALL), {})
            for b, channels in n["bits"].items():
                widths[int(b)] = widths.get(int(b), 0) + channels * n["elements"]
    return {s: dict(sorted(w.items())) for s, w in stages.items()}


def most_telling(neurons: Sequence[Neuron], most: int) -> tuple[list[Neuron], str]:
    """At most so many layers in the order of the network, and why these."""
    if len(neurons) <= most:
        return list(neurons), ""
    measured = any(n.get("flip_rate") is not None for n in neurons)

    def weight(i: int) -> float:
        return (neurons[i].get("flip_rate") or 0.0) if measured else states(neurons[i])

    first = sorted(range(len(neurons)), key=lambda i: -weight(i))[:most]
    return [neurons[i] for i in sorted(first)], "flips" if measured else "states"


def shape(neuron: Neuron) -> str:
    return "x".join(map(str, neuron["shape"]))


def exponents(neuron: Neuron) -> str:
    k = neuron.get("k")
    if not k:
        return "-"
    return f"{k['min']}" if k["min"] == k["max"] else f"{k['min']}..{k['max']}"


def widths(report: Report) -> list[str]:
    """States whose width is not the budget's, and why; first and last ones that have the budget's."""
    rules = ((report.get("summary") or {}).get("recipe") or {}).get("overrides") or {}
    kept = [n for n in report.get("neurons") or [] if n["carries_state"]]
    why: dict[str, list[Neuron]] = {}
    for n in kept:
        if not n["in_budget"]:
            why.setdefault(_reason(n, rules), []).append(n)
    found = [f"{_bits(ns)} bits ({reason}): {_names(ns)}" for reason, ns in why.items()]
    ends = [n for n in kept if n["in_budget"] and (n["stem"] or n["readout"])]
    if ends:  # only where nothing lies between them
        found.append(f"{_bits(ends)} bits as asked, no layer between first and last: {_names(ends)}")
    returned = [n for n in ends if n["readout"]]
    if returned:
        found.append(f"{_bits(returned)} bits also where the model returns the membrane: {_names(returned)}")
    return found


def _reason(n: Neuron, rules: Iterable[str]) -> str:
    if any(fnmatchcase(n["name"], pattern) for pattern in rules):
        return "an override"
    return "its membrane is the output" if n["readout"] else "first layer" if n["stem"] else "no coupling"


def _bits(neurons: Sequence[Neuron]) -> str:
    found = sorted({int(b) for n in neurons for b in n["bits"]})
    return str(found[0]) if len(found) == 1 else f"{found[0]} to {found[-1]}"


def _names(neurons: Sequence[Neuron]) -> str:
    return ", ".join(n["name"] for n in neurons)


def notes(report: Report) -> list[str]:
    """What is unusual about the network; the warnings begin with that word."""
    neurons: list[Neuron] = report.get("neurons") or []
    found = []
    stateless = [n["name"] for n in neurons if not n["carries_state"]]
    if stateless:
        found.append(f"carries no state: {', '.join(stateless)}")
    found += widths(report)
    states = report.get("summary", {}).get("state_bytes")
    if states and 2 * states["metadata"] > states["packed"]:  # as in fully connected networks
        found.append(
            f"{size(states['metadata'])} of the states' {size(states['packed'])} are zero points, tags and "
            "shifts of channels, which are there once for all samples"
        )
    worst = max(neurons, key=lambda n: n["leak_error"], default=None)
    if worst is not None and worst["leak_error"]:
        found.append(f"the leak is not dyadic: off by up to {worst['leak_error']:.2g} at {worst['name']}")
    excluded = report.get("summary", {}).get("excluded") or {}
    if excluded:
        found.append(
            f"kept in float, and counted nowhere here: {', '.join(excluded)} ({sum(excluded.values()):,} "
            "parameters)"
        )
    summary = report.get("summary", {})
    if summary.get("choosing_reports"):
        found.append(chosen_on(summary))
    silent = report.get("silent")
    if silent and silent.get("before"):
        found.append(f"WARNING: silent in the float network already, first at {silent['before']}")
    if silent and silent.get("lost"):
        found.append(f"WARNING: silent after quantization, first at {silent['lost'][0]}; give it more bits")
    return found
