"""The sections of the page in the order of reading; those without anything to show are left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ptq4snn.report import tables as page_tables
from ptq4snn.report.charts import distributions
from ptq4snn.report.charts.segmentation import KINDS
from ptq4snn.report.digest import widths
from ptq4snn.report.figures import FIGURES, figure_panels, of_experiment, of_report
from ptq4snn.report.finished_run import Run, whole
from ptq4snn.report.panel import Panel
from ptq4snn.report.payload import Payload

__all__ = ["Section", "Slot", "of_added", "of_run"]

Data = dict[str, Any]
LEADS = {  # by what bits were given
    "mpba": "Channels that fire often or matter much get more bits, the others fewer.",
    "benefit": "Channels whose states gain most from more bits get them, the others fewer.",
}


@dataclass(frozen=True)
class Slot:
    """A place for a chart: the panel that is shown first, and the labels of all it may show."""

    id: str
    panel: Panel
    labels: Sequence[str] = ()
    label: str = ""  # of the first


@dataclass
class Section:
    id: str
    short: str  # in the list of contents
    title: str
    lead: str = ""
    groups: list[list[Slot]] = field(default_factory=list)  # of charts side by side
    tables: list[page_tables.Table] = field(default_factory=list)
    folded: list[page_tables.Table] = field(default_factory=list)  # shown on demand
    note: str = ""
    pictures: Sequence[Data] = ()  # of a segmentation
    choice: str = ""  # what a select of all charts chooses

    def __bool__(self) -> bool:
        return any(self.groups) or bool(self.tables or self.note or self.pictures)


def of_run(report: Data, payload: Payload) -> list[Section]:
    """All that a report has to show; the accuracy comes first."""
    found = [
        accuracy(report),
        memory(report, payload),
        layers(report),
        channels(report, payload),
        bridge(report, payload),
        allocation(report, payload),
        behaviour(report, payload),
        cost(report, payload),
        Section("sweep", "Sweep", "Search for β and percentile", groups=[drawn(report, "sweep", payload)]),
        segmentation(report),
    ]
    return [section for section in found if section]


def accuracy(report: Data) -> Section:
    note = "" if report["evaluations"] else "No labelled data yet: ptq4snn evaluate adds a line here."
    return Section("accuracy", "Accuracy", "Accuracy", tables=[page_tables.accuracy(report)], note=note)


def memory(report: Data, payload: Payload) -> Section:
    return Section("memory", "Memory", "Memory before and after", groups=[drawn(report, "memory", payload)])


def layers(report: Data) -> Section:
    return Section(
        "layers",
        "Layers",
        "Layer by layer",
        "Every neuron in the order of execution; numbers (#) are those of the charts below.",
        tables=[page_tables.layers(report["neurons"])],
        folded=[page_tables.projections(report["projections"])],
    )


def channels(report: Data, payload: Payload) -> Section:
    return Section(
        "distributions",
        "Distributions",
        "Weights and states of single channels",
        "Float states beside the weights that feed them; below, what a stored state and weight can be.",
        groups=[chosen(report, payload)],
        choice="Neuron",
    )


def bridge(report: Data, payload: Payload) -> Section:
    return Section(
        "bridge",
        "Bridge",
        "The bridge between weight and state scales",
        "A state's scale is the weight's scale times 2 to the k. An observer would choose any scale.",
        groups=[drawn(report, "bridge-analysis", payload)],
    )


def allocation(report: Data, payload: Payload) -> Section:
    """One sentence where all channels have the same bits."""
    found = report["figures"].get("allocation") or {}
    section = Section(
        "allocation", "Bits", "Where the bits went", groups=[drawn(report, "allocation", payload)]
    )
    if found.get("by") == "uniform" and found.get("average_bits") is not None:
        section.note = f"All states in the budget have {found['average_bits']:g} bits: there is no ranking."
    others = "; ".join(widths(report))
    section.note = " ".join(filter(None, (section.note, others and f"Widths with a reason: {others}.")))
    if any(section.groups):
        section.lead = LEADS.get(found.get("by", ""), "")
    return section


def behaviour(report: Data, payload: Payload) -> Section:
    return Section(
        "behaviour",
        "Inside",
        "What changed inside",
        "States at the end of their range, flipped spikes, firing rates: of each layer, then of each step.",
        groups=[drawn(report, "layers", payload), drawn(report, "time", payload)],
    )


def cost(report: Data, payload: Payload) -> Section:
    return Section(
        "cost",
        "Cost",
        "What states cost",
        "Weights are stored once, states once for every sample, and they are moved in every time step.",
        groups=[drawn(report, "membrane-cost", payload)],
    )


def segmentation(report: Data) -> Section:
    found = of_report(report, "segmentation") or {"rows": ()}
    rows = [{key: r[key] for key in (*KINDS, "differs")} for r in found["rows"]]
    return Section("segmentation", "Examples", "Segmentation examples", pictures=rows)


def drawn(report: Data, name: str, payload: Payload) -> list[Slot]:
    data = of_report(report, name)
    return [] if data is None else slots(figure_panels(FIGURES[name], data), payload)


def slots(panels: Sequence[Panel], payload: Payload) -> list[Slot]:
    return [Slot(payload.add([("", p)]), p) for p in panels]


def chosen(report: Data, payload: Payload) -> list[Slot]:
    """Distributions: the places show the channels of one neuron, which the reader chooses."""
    data = of_report(report, "distributions")
    if data is None:
        return []
    names, first = distributions.neurons_of(data), distributions.middle(data)
    panels = {n: distributions.panels(data, [n]) for n in names}
    places = min(map(len, panels.values()))
    order = sorted(names, key=lambda n: n != first)  # the page shows the first
    found = [payload.add([(n, panels[n][i]) for n in order]) for i in range(places)]
    return [Slot(place, panels[first][i], names, first) for i, place in enumerate(found)]


def of_added(added: Sequence[Run], payload: Payload) -> list[Section]:
    """A section for each comparison and experiment."""
    sections = []
    for i, run in enumerate(added, 1):
        with whole(run):
            sections.append(of_one(run, f"added-{i}", payload))
    return sections


def of_one(run: Run, name: str, payload: Payload) -> Section:
    title = run.data.get("title") or "Comparison of methods"
    short = run.data.get("experiment") or "methods"
    section = Section(name, short.capitalize(), title[:1].upper() + title[1:], f"From {run.path.name}.")
    for figure in FIGURES.values():
        data = of_experiment({"experiment": "", **run.data}, figure.name)
        if data is not None:
            section.groups.append(slots(figure_panels(figure, data), payload))
    if "runs" in run.data and run.data["rows"]:
        section.tables.append(page_tables.methods(run.data))
    return section
