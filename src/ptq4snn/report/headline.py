"""The story in a sentence, three numbers, and what must not be overlooked."""

from __future__ import annotations

from dataclasses import dataclass

from ptq4snn.report.units import change, percent, significant, size, smaller, weight_bits
from ptq4snn.schema.report_types import Evaluation, Report, Summary

__all__ = ["Card", "cards", "chosen_on", "lead", "score_of", "setting", "title", "warnings"]


@dataclass(frozen=True)
class Card:
    label: str
    value: str
    note: str
    small: str
    lengths: tuple[float, float] | None = None  # of the bars of both networks, as shares


def title(summary: Summary) -> str:
    """4-bit weights, 4-bit membrane states."""
    recipe = summary["recipe"]
    weights = "float weights" if recipe["weights"] is None else f"{weight_bits(recipe)}-bit weights"
    states = "32-bit" if recipe["coupling"] == "none" else f"{recipe['membrane']:g}-bit"
    return f"{weights.capitalize()}, {states} membrane states"


def setting(summary: Summary) -> list[str]:
    """How it was made, in a few words each."""
    recipe = summary["recipe"]
    return [
        f"T = {summary['steps']}",
        f"{summary['arithmetic']} arithmetic",
        f"coupling {recipe['coupling']}",
        f"allocation {recipe['allocation']}",
        f"rounding {recipe['rounding']}",
        f"{summary['samples']:,} calibration samples",
    ]


def score_of(evaluation: Evaluation) -> tuple[str, float | None, float | None]:
    """Metric, score of the float network, score of the quantized one; in %."""
    maps = evaluation["task"] == "segmentation"
    sides = (evaluation.get("float") or {}, evaluation.get("quantized") or {})
    before, after = (side.get("mIoU") if maps else side.get("accuracy") for side in sides)
    return "mIoU" if maps else "accuracy", before, after


def lead(report: Report) -> str:
    s = report["summary"]
    before, after = totals(report)
    same = f"The quantized network decides like the float one on {percent(s['agreement'])} of {held_out(s)}"
    ratio = smaller(before, after)
    if ratio is None:
        return f"{same}."
    sizes = f"{size(after)} instead of {size(before)}"
    return f"{same}, and needs {sizes} for weights and states: {ratio} less memory."


def held_out(summary: Summary) -> str:
    if summary["task"] == "segmentation":
        return f"the pixels of {summary['held_out']:,} held-out images"
    return f"{summary['held_out']:,} held-out samples"


def totals(report: Report) -> tuple[float, float]:
    """Bytes for one sample, before and after."""
    s = report["summary"]
    drawn = report["figures"].get("memory")
    if drawn and drawn.get("rows"):
        before, after = (sum(r[key] or 0 for r in drawn["rows"]) for key in ("before", "after"))
        return before, after
    w, b = s["weight_bytes"], s["state_bytes"]
    before, after = w["float"] + b["float"], w["quantized"] + w["scales"] + b["packed"]
    return before + w["biases"], after + w["biases"]


def cards(report: Report) -> list[Card]:
    s = report["summary"]
    w, b = s["weight_bytes"], s["state_bytes"]
    scales = w["scales"] + w["biases"]
    energy = (
        f"; {percent(s['state_energy'])} of the energy to read and write 32-bit states"
        if s["state_energy"]
        else ""
    )
    return [
        quality(report),
        saving(
            "Membrane state",
            b["float"],
            b["packed"],
            f"{bits_of(s)}{energy}" if b["float"] else "no state is kept",
        ),
        saving("Weights", w["float"], w["quantized"], f"and {size(scales)} of scales and biases"),
    ]


def bits_of(s: Summary) -> str:
    """Average bits of the budget, and of all states where protected layers make a difference."""
    text, total = f"{significant(s['average_bits'])} bits on average", s.get("average_bits_all")
    if total is None or abs(total - s["average_bits"]) < 0.005:
        return text
    return f"{text}, {significant(total)} with the layers that keep more"


def quality(report: Report) -> Card:
    """Accuracy where it was measured, or agreement with the float network."""
    s = report["summary"]
    agreement = f"{percent(s['agreement'])} agreement with float on {held_out(s)}"
    for evaluation in reversed(report["evaluations"]):
        metric, before, after = score_of(evaluation)
        if after is None:
            continue
        note = "" if before is None else f"from {before:.2f} % ({change(after - before)} points)"
        data = f"on {evaluation['samples']:,} samples of {evaluation['data']}; {agreement}"
        lengths = None if before is None else (before / 100, after / 100)
        return Card(
            metric.capitalize() if metric.islower() else metric, f"{after:.2f} %", note, data, lengths
        )
    flips = "" if s["flip_rate"] is None else f"; {percent(s['flip_rate'])} of the spikes flipped"
    small = f"KL to the float network {significant(s['kl'])}{beside_noise(s)}{flips}"
    return Card(
        "Same decisions as float",
        percent(s["agreement"]),
        f"of {held_out(s)}",
        small,
        (1.0, s["agreement"] or 0.0),
    )


def chosen_on(s: Summary) -> str:
    """Whether the samples behind the figures also chose what was to be chosen."""
    if "choosing" not in s:  # of an older version
        return ""
    if s["choosing_reports"]:
        return f"the {s['held_out']:,} held-out samples made the choices, too: too few to keep both apart"
    return f"choices were made on {s['choosing']:,} other held-out samples"


def beside_noise(s: Summary) -> str:
    """What a change of no meaning does to the float network itself."""
    noise = s.get("noise_floor")
    if noise is None:  # of an older version
        return ""
    same = percent(noise["agreement"])
    return f" (0.01 % of weight noise alone: {significant(noise['kl'])}, {same} agreement)"


def saving(label: str, before: float, after: float, small: str) -> Card:
    ratio = smaller(before, after)
    note = f"from {size(before)}" + (f", {ratio} smaller" if ratio else "")
    return Card(label, size(after), note, small, (1.0, after / before) if before else None)


def warnings(report: Report) -> list[str]:
    """What the reader must know before the numbers."""
    silent = report["silent"]
    found = []
    if silent["lost"]:
        first, *more = silent["lost"]
        also = f" and {len(more)} more layer{'s' if len(more) > 1 else ''}" if more else ""
        found.append(
            f"The quantized network goes silent at {first}{also}: not one spike on the held-out samples, "
            "though it fires in the float network. Give it more bits, or more calibration samples."
        )
    if silent["before"]:
        found.append(
            f"The float network itself is silent at {silent['before']}: check the checkpoint and the data."
        )
    if excluded := report["summary"].get("excluded"):
        found.append(
            f"{', '.join(excluded)} stay float ({sum(excluded.values()):,} parameters) and are in none of "
            "the bytes below; the model cannot be run without torch."
        )
    if report["summary"]["arithmetic"] == "float":
        found.append("This is a simulation in float arithmetic: it is not what an integer device computes.")
    return found
