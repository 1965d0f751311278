"""Runs an experiment and shows it: our figures, and beside them the paper's where the setting is the same."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from ptq4snn import __version__
from ptq4snn.experiments.bench import Bench, today
from ptq4snn.experiments.catalog import BETAS, PERCENTILES, Experiment
from ptq4snn.experiments.compare import Report, compare_on, silent
from ptq4snn.experiments.comparison import Comparison, summary
from ptq4snn.experiments.comparison_tables import raw_csv, text_table
from ptq4snn.experiments.intervals import mean
from ptq4snn.experiments.methods import Method
from ptq4snn.experiments.paper import PaperSetting, RunSetting, cell, difference, same_setting
from ptq4snn.experiments.paper_figures import MAKERS, OF_TEST_SAMPLES, recipe_of
from ptq4snn.hashing import code_digest, digest
from ptq4snn.report.comparison_text import comparison_grid, noise_line
from ptq4snn.report.figures import figure_made_by
from ptq4snn.report.latex import latex_table
from ptq4snn.report.text import Grid, number
from ptq4snn.schema.report_types import Summary

__all__ = ["Outcome", "identity", "run_experiment"]

MIB = 2**20


@dataclass(frozen=True)
class Outcome:
    """What an experiment found: for a person, as data, as flat rows, and as tables for a paper."""

    lines: list[str]
    data: dict[str, Any]
    csv: str
    latex: str = ""  # of a figure there is no table


def run_experiment(
    experiment: Experiment,
    bench: Bench,
    ran: RunSetting,
    seeds: Sequence[int] = (0,),
    changes: Mapping[str, Any] | None = None,
    report: Report = silent,
) -> Outcome:
    """Run what is not stored yet. changes: fields replaced in every recipe, such as `iterations`."""
    fields = {**experiment.changes, **(changes or {})}
    about = {
        "experiment": experiment.name, "title": experiment.title, "part": experiment.part,
        "paper_steps": experiment.steps, "ran": asdict(ran), "changes": fields, "date": today(),
        "version": __version__,
    }  # fmt: skip
    head = [f"{experiment.title} ({experiment.part} of the paper)", ""]
    if experiment.kind == "figure":
        data = figure(experiment, bench, seeds[0], fields)
        shown = figure_made_by(experiment.name).lines(data)
        return Outcome([*head, *shown], {**about, **data}, flat_csv(data["rows"]))
    found = compare_on(bench, experiment.methods, seeds, experiment.baseline, fields, report)
    paper = same_setting(experiment.name, ran)
    foot = [difference(experiment.name, ran) if paper is None else source(paper)]
    data = {**about, **found.to_dict(), "paper": None if paper is None else asdict(paper)}
    tables = grids(experiment, found, paper)
    shown = show(experiment, found, paper, tables)
    caption = ", ".join(filter(None, (experiment.title, ran.model, ran.data)))
    latex = "\n".join(latex_table(t, caption) for t in tables)
    return Outcome([*head, *shown, "", *foot], data, raw_csv(found), latex)


def figure(experiment: Experiment, bench: Bench, seed: int, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The figure's data, from the store if it is there."""
    recipe = recipe_of(experiment.name).replace(seed=seed, **changes)
    key = Method(experiment.name, recipe, experiment.name).key()
    setting = {
        "version": __version__, "code": code_digest(), "figure": experiment.name, "recipe": key,
        "model": bench.identity["model"], "calibration": bench.drawn_digest(recipe),
        "test": bench.identity["test"] if experiment.name in OF_TEST_SAMPLES else None,
    }  # fmt: skip
    found = bench.store.get(setting)
    if found is None:
        with torch.inference_mode(False), torch.random.fork_rng(devices=[]):
            made = MAKERS[experiment.name](bench, recipe)
        found = json.loads(json.dumps(made))
        bench.store.put(setting, found)
    return found


def identity(
    experiment: Experiment, bench: Bench, seeds: Sequence[int], changes: Mapping[str, Any], limit: int | None
) -> str:
    """The hash of what an experiment was run on: experiments that differ in it keep their own files."""
    first = next((m.recipe for m in experiment.methods if m.recipe), recipe_of(experiment.name))
    recipe = first.replace(**changes)
    drawn = [bench.drawn_digest(recipe.replace(seed=seed)) for seed in seeds]
    return digest(bench.identity, drawn, list(seeds), changes, limit)


def grids(experiment: Experiment, found: Comparison, paper: PaperSetting | None) -> list[Grid]:
    """The tables of an experiment."""
    if experiment.kind == "states":
        return states_tables(found, _beside(found, paper))
    if experiment.kind == "sweep":
        return [sweep_grid(found)]
    return [comparison_grid(found.to_dict(), _beside(found, paper))]


def _beside(found: Comparison, paper: PaperSetting | None) -> list[str] | None:
    return None if paper is None else [cell(paper.rows.get(m.label)) for m in found.methods]


def show(
    experiment: Experiment, found: Comparison, paper: PaperSetting | None, tables: Sequence[Grid]
) -> list[str]:
    """The tables as text, and what belongs under them."""
    if experiment.kind == "methods":
        return text_table(found, _beside(found, paper))
    lines = [line for t in tables for line in ("", *t.lines())][1:]
    if experiment.kind == "states":
        return lines
    if paper is not None:
        lines += [f"paper: {label}: {cell(figures)} %" for label, figures in paper.rows.items()]
    return [*lines, "", f"float model: {found.rows()[0].score:.2f} %", *noise_line(found.to_dict())]


def source(paper: PaperSetting) -> str:
    kind = (
        "aAcc / mIoU / mAcc" if "mIoU" in next(iter(paper.rows.values())) else "its own figures, as printed"
    )
    return f"paper: {kind}; {paper.backbone} on {paper.data}, T = {paper.steps}, its own checkpoint"


def states_tables(found: Comparison, paper: Sequence[str] | None) -> list[Grid]:
    """Split of widths, bits, bytes and energy of the resident state in the paper's packets; means over the
    seeds."""
    titles = ["mode", "2/4/8+ %", "b nonstem", "b all", "logical MiB", "packed MiB", "E R/W", "with shifts"]
    rows = []
    for m in found.methods[1:]:
        s = [summary(r) for r in found.of(m)]
        packets = [x["state_packets"] for x in s]
        size = [mean([x["state_bytes"]["logical"] for x in s]), mean([p["packed"] for p in packets])]
        bits = [mean([outside_stem(x) for x in s]), mean([x["average_bits_all"] for x in s])]
        energy = [mean([p["energy"] for p in packets]), mean([p["energy_with_shifts"] for p in packets])]
        figures = [*bits, *(None if n is None else n / MIB for n in size), *energy]
        rows.append([m.label, split(s), *(number(v, "{:.3f}") for v in figures)])
    ours = Grid.of(titles, rows)
    if paper is None:
        return [ours]
    theirs = [[m.label, c] for m, c in zip(found.methods, paper, strict=True) if c]
    titles = ["mode", "paper: 2/4/8, b nonstem, b all, logical/packed MiB, E R/W"]
    return [ours, Grid.of(titles, theirs, left=2)]


def split(summaries: Sequence[Summary]) -> str:
    """Shares of 2, 4 and more bits, in %."""
    shares = [s["bits_split"] for s in summaries]
    two, four = (mean([s.get(b, 0.0) for s in shares]) or 0.0 for b in ("2", "4"))
    wide = mean([sum(v for b, v in s.items() if b not in ("2", "4")) for s in shares]) or 0.0
    return "/".join(f"{100 * v:.4g}" for v in (two, four, wide))


def outside_stem(s: Summary) -> float:
    """Average bits of the states outside the stem."""
    return sum(int(b) * float(share) for b, share in s["bits_split"].items())


def sweep_grid(found: Comparison) -> Grid:
    """Score, and KL to the float model on held-out samples, of every (beta, P)."""
    rows = {r.label: r for r in found.rows()}
    titles = ["beta", *(f"P{p:g} %" for p in PERCENTILES), *(f"P{p:g} KL" for p in PERCENTILES)]
    cells = []
    for b in BETAS:
        line = [rows[f"beta {b:g}, P{p:g}"] for p in PERCENTILES]
        cells.append(
            [f"{b:g}", *(number(r.score) for r in line), *(number(r.figures["kl"], "{:.5f}") for r in line)]
        )
    return Grid.of(titles, cells)


def flat_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """A line a row; what is no plain value is written as JSON."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    if rows:
        writer.writerow(rows[0])
    for r in rows:
        writer.writerow([json.dumps(v) if isinstance(v, dict | list) else v for v in r.values()])
    return out.getvalue()
