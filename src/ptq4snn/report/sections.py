"""The sections of the page in the order of reading; those without anything to show are left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ptq4snn.report import tables as page_tables
from ptq4snn.report.deployment import Deployment, deployment_tables
from ptq4snn.report.digest import widths
from ptq4snn.report.figures import FIGURES, allocation, distributions, figure_panels
from ptq4snn.report.finished_run import Run, whole
from ptq4snn.report.headline import chosen_on
from ptq4snn.report.panel import Panel
from ptq4snn.report.payload import Payload
from ptq4snn.report.units import significant
from ptq4snn.schema.figure_types import SegmentationRow
from ptq4snn.schema.report_types import Report

__all__ = ["Section", "Slot", "deployment", "of_added", "of_run"]


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
    pictures: Sequence[SegmentationRow] = ()  # of a segmentation
    choice: str = ""  # what a select of all charts chooses

    def __bool__(self) -> bool:
        return any(self.groups) or bool(self.tables or self.note or self.pictures)


def of_run(report: Report, payload: Payload) -> list[Section]:
    """All that a report has to show; the accuracy comes first."""
    found = [
        accuracy(report),
        figure("frontier", report, payload),
        figure("memory", report, payload),
        layers(report),
        channels(report, payload),
        figure("bridge-analysis", report, payload),
        allocated(report, payload),
        figure("layers", report, payload, "time"),
        figure("membrane-cost", report, payload),
        neurobench(report),
        figure("sweep", report, payload),
        examples(report),
    ]
    return [section for section in found if section]


def titled(name: str) -> Section:
    """The section of a figure, with its words."""
    words = FIGURES[name].heading
    assert words is not None, name
    return Section(words.id, words.short, words.title, words.lead)


def figure(name: str, report: Report, payload: Payload, *more: str) -> Section:
    """A figure, and others in the same section."""
    section = titled(name)
    section.groups = [drawn(report, n, payload) for n in (name, *more)]
    return section


def accuracy(report: Report) -> Section:
    notes = [] if report["evaluations"] else ["No labelled data yet: ptq4snn evaluate adds a line here."]
    if apart := chosen_on(report["summary"]):
        notes.append(f"{apart[0].upper()}{apart[1:]}.")
    note = " ".join(notes)
    return Section("accuracy", "Accuracy", "Accuracy", tables=[page_tables.accuracy(report)], note=note)


def layers(report: Report) -> Section:
    return Section(
        "layers",
        "Layers",
        "Layer by layer",
        "Every neuron in the order of execution; numbers (#) are those of the charts below.",
        tables=[page_tables.layers(report["neurons"])],
        folded=[page_tables.projections(report["projections"])],
    )


def neurobench(report: Report) -> Section:
    return Section(
        "neurobench",
        "NeuroBench",
        "In NeuroBench's terms",
        "By the definitions of NeuroBench's algorithm track, on the held-out samples. Effective are "
        "operations with a weight and an input that are not zero: accumulates (ACs) where inputs are spikes.",
        tables=page_tables.neurobench(report),
    )


def channels(report: Report, payload: Payload) -> Section:
    section = titled("distributions")
    section.groups, section.choice = [chosen(report, payload)], "Neuron"
    return section


def allocated(report: Report, payload: Payload) -> Section:
    """One sentence where all channels have the same bits."""
    found, section = report["figures"].get("allocation"), figure("allocation", report, payload)
    if found and found.get("by") == "uniform" and found.get("average_bits") is not None:
        section.note = f"All states in the budget have {found['average_bits']:g} bits: there is no ranking."
    if halves := report["summary"].get("sensitivity"):
        overall, within = (significant(halves[key]) for key in ("overall", "within_layers"))
        section.note = (
            f"Two halves of {halves['batches']} micro-batches rank the channels by sensitivity alike to "
            f"{overall}, inside a layer to {within} (Spearman-Brown; 1: as any others would, 0: noise). "
        ) + section.note
    others = "; ".join(widths(report))
    section.note = " ".join(filter(None, (section.note, others and f"Widths with a reason: {others}.")))
    if found and any(section.groups):
        section.lead = allocation.LEADS.get(found.get("by", ""), "")
    return section


def examples(report: Report) -> Section:
    found, section = report["figures"].get("segmentation"), titled("segmentation")
    section.pictures = [pictured(r) for r in found["rows"]] if found else ()
    return section


def deployment(ways: Deployment, bundle: str) -> Section:
    """What the bundle can be exported to, and which targets it fits."""
    section = Section("deploy", "Deploy", "Where it can run")
    if not ways.exports:
        section.note = "Nowhere else: the model has no integer program."
        return section
    section.lead = (
        f"ptq4snn export {bundle} --to c, onnx or nir writes it; ptq4snn check {bundle} --target NAME says "
        "what is broken, and which recipe would fit."
    )
    section.tables = deployment_tables(ways)
    return section


def pictured(r: SegmentationRow) -> SegmentationRow:
    """A row that lacks a picture is told before there is a page."""
    return {
        "image": r["image"], "label": r["label"], "float": r["float"], "quantized": r["quantized"],
        "differs": r["differs"],
    }  # fmt: skip


def drawn(report: Report, name: str, payload: Payload) -> list[Slot]:
    data = FIGURES[name].of_report(report)
    return [] if data is None else slots(figure_panels(FIGURES[name], data), payload)


def slots(panels: Sequence[Panel], payload: Payload) -> list[Slot]:
    return [Slot(payload.add([("", p)]), p) for p in panels]


def chosen(report: Report, payload: Payload) -> list[Slot]:
    """Distributions: the places show the channels of one neuron, which the reader chooses."""
    data = FIGURES["distributions"].of_report(report)
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
    for one in FIGURES.values():
        data = one.of_experiment({"experiment": "", **run.data})
        if data is not None:
            section.groups.append(slots(figure_panels(one, data), payload))
    if "runs" in run.data and run.data["rows"]:
        section.tables.append(page_tables.methods(run.comparison))
    return section
