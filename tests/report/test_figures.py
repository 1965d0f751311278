"""The figures: every spec compiles, shows the report's numbers, and says why where it cannot be drawn."""

from __future__ import annotations

import copy
import importlib
import json
import pkgutil
import re
from pathlib import Path
from typing import Any

import pytest
from report import samples
from schema.walk import keys

from ptq4snn.errors import PTQ4SNNError
from ptq4snn.experiments.catalog import EXPERIMENTS
from ptq4snn.report import figures
from ptq4snn.report.drawing import check_target, figure_spec, write_figure
from ptq4snn.report.figures import (
    FIGURES,
    allocation,
    distributions,
    figure_data,
    figure_made_by,
    figure_panels,
    find_figure,
    layers,
    membrane_cost,
    memory,
    missing,
    sweep,
    time,
)
from ptq4snn.report.finished_run import Kind, Run
from ptq4snn.report.panel import Panel, round_bytes
from ptq4snn.report.theme import DARK, LIGHT
from ptq4snn.schema.figure_types import Figures

KINDS: dict[Kind, Any] = {
    "report": samples.report(segmentation=True),
    "experiment": samples.swept(),
    "comparison": samples.comparison(),
}


def run_of(kind: Kind) -> Run:
    return Run(Path(f"{kind}.json"), kind, KINDS[kind])


CASES = [(kind, name) for kind in KINDS for name in FIGURES if figure_data(run_of(kind), name) is not None]


def drawn(kind: Kind, name: str) -> list[Panel]:
    data = figure_data(run_of(kind), name)
    assert data is not None
    return figure_panels(FIGURES[name], data)


def test_one_module_for_each_figure() -> None:
    """With its data, its chart and its words; and a place on the page, of its own or beside another's."""
    names = {m.name for m in pkgutil.iter_modules(figures.__path__)} - {"common"}
    assert {f.name.replace("-", "_") for f in FIGURES.values()} == names
    for f in FIGURES.values():
        module = importlib.import_module(f"ptq4snn.report.figures.{f.name.replace('-', '_')}")
        assert module.FIGURE is f and module.__doc__ and f.line and module.panels is f.panels
        assert hasattr(module, "data") == (f.name in keys(Figures)), f"{f.name}: data"
        assert (f.look is None) <= hasattr(module, "data"), "what a report does not hold is looked up"
        assert hasattr(module, "text") == (f.text is not None)
        assert f.absent(samples.report()), "why it is missing"
    assert {f.name for f in FIGURES.values() if f.heading is None} == {"time", "methods"}
    drawn_as_text = {e.name for e in EXPERIMENTS.values() if e.kind == "figure"}
    assert {f.experiment or f.name for f in FIGURES.values() if f.text is not None} == drawn_as_text
    assert all(figure_made_by(name).text for name in drawn_as_text)


def test_every_figure_has_a_run_that_shows_it() -> None:
    assert {name for _, name in CASES} == set(FIGURES)
    assert [n for k, n in CASES if k == "experiment"] == ["sweep", "methods"]
    assert [n for k, n in CASES if k == "comparison"] == ["methods"]


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_specs_compile_without_a_warning(kind: Kind, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    convert = pytest.importorskip("vl_convert", reason="figures as files need vl-convert-python")
    panels = drawn(kind, name)
    spec = figure_spec(FIGURES[name], panels)
    svg = convert.vegalite_to_svg(spec, vl_version="6.4", show_warnings=True, allowed_base_urls=[])
    out = "".join(capfd.readouterr())
    assert "WARN" not in out.upper(), out
    # a mark for every panel: nothing is drawn empty
    assert svg.count("mark-") >= len(panels) and "NaN" not in svg and "undefined" not in svg
    for panel in panels:
        assert panel.title.split()[0] in svg


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_panels_are_self_contained_and_in_words(kind: Kind, name: str) -> None:
    for panel in drawn(kind, name):
        text = json.dumps(panel.spec)
        assert set(re.findall(r'"@([\w-]+)"', text)) <= set(LIGHT) == set(DARK)
        assert not {"width", "height", "data"} & set(panel.spec)
        assert len(panel.description) > 5 and "None" not in panel.description
        if name != "segmentation":
            assert re.search(r"\d", panel.description), "an alternative text has numbers"
            assert set(panel.columns) <= set(panel.rows[0])
            assert len({tuple(r) for r in panel.rows}) == 1, "all rows have the same fields"
            fields = set(re.findall(r'"field": "(\w+)"', text))
            assert fields <= set(panel.rows[0]), "an encoding without a field would draw nothing"


def test_the_memory_chart_adds_up() -> None:
    report = samples.report()
    (panel,) = memory.panels(report["figures"]["memory"])
    total = {r["kind"]: r["bytes"] for r in panel.rows if r["part"] == "total"}
    assert total == {
        "float32": 44_695_552 + 19_000 + 2_457_600,
        "quantized": 5_615_000 + 38_000 + 405_700 + 5920,
    }
    assert "stream buffers" not in {r["part"] for r in panel.rows}, "a part of nothing is not drawn"


@pytest.mark.parametrize(("bits", "zero"), [(2, 0), (4, 0), (4, 8), (4, -7), (8, 0)])
def test_levels_are_those_of_the_grid_that_the_axis_shows(bits: int, zero: int) -> None:
    data = samples.report()["figures"]["distributions"]
    row = data["rows"][0] | {"bits": bits, "zero": zero, "scale": 0.05}
    row |= {"weight_bits": 3, "weight_scale": 0.02}
    low = min(*row["states"]["edges"], *row["weights"]["edges"])
    high = max(*row["states"]["edges"], *row["weights"]["edges"])
    every = [0.05 * (zero + i) for i in range(-(2 ** (bits - 1)), 2 ** (bits - 1))]
    (panel,) = distributions.panels(data | {"rows": [row]})
    found = [r["x"] for r in panel.rows if r["what"] == distributions.LEVELS]
    assert found == pytest.approx([v for v in every if low - 1e-9 <= v <= high + 1e-9]) and found
    found = [r["x"] for r in panel.rows if r["what"] == distributions.WEIGHT_LEVELS]
    assert found == pytest.approx([v for i in range(-4, 4) if low - 1e-9 <= (v := 0.02 * i) <= high + 1e-9])


def test_states_that_are_not_kept_are_told() -> None:
    data = samples.report()["figures"]["membrane-cost"]
    _, traffic = membrane_cost.panels(data | {"states": 1000, "carried_states": 1000})
    assert "keeps no state" not in traffic.description
    _, traffic = membrane_cost.panels(data | {"states": 1500, "carried_states": 1000})
    assert "(500 of 1,500)" in traffic.description
    rows = [r | {"this": 0} if r["axis"] == "T" else r for r in data["rows"]]
    storage, traffic = membrane_cost.panels(data | {"rows": rows, "carried_states": 0})
    assert "this model" in storage.description and all(r["bytes"] > 0 for r in traffic.rows), "log of 0"


def test_merged_bins_keep_all_values() -> None:
    edges, counts = list(range(33)), [1, 0] * 16
    wider, merged = distributions.merged(list(map(float, edges)), list(map(float, counts)))
    assert sum(merged) == 16 and len(merged) == 8 and wider == [0, 4, 8, 12, 16, 20, 24, 28, 32]
    many = [1000.0] * 32
    assert distributions.merged(list(map(float, edges)), many)[1] == many


def test_layers_and_steps_agree_with_the_report() -> None:
    report = samples.report(neurons=5, steps=7)
    by_layer = layers.panels({"neurons": report["neurons"]})
    assert [r["saturation"] for r in by_layer[0].rows] == [n["saturation"] for n in report["neurons"]]
    assert [r["rate"] for r in by_layer[2].rows if r["kind"] == "quantized"] == pytest.approx(
        [100 * n["firing_rate"]["after"] for n in report["neurons"]]
    )
    flips, _, drift, _ = time.panels({"neurons": report["neurons"]})
    expected = [100 * v for n in report["neurons"] for v in n["over_time"]["flip_rate"]]
    assert [r["flips"] for r in flips.rows] == pytest.approx(expected)
    rate = report["neurons"][3]["over_time"]["firing_rate"]
    found = next(r["drift"] for r in drift.rows if r["layer"] == 4 and r["step"] == 2)
    assert found == pytest.approx(100 * (rate["after"][1] - rate["before"][1]))


def test_long_runs_are_averaged_to_a_map_that_can_be_read() -> None:
    report = samples.report(neurons=2, steps=300)
    flips = time.panels({"neurons": report["neurons"]})[0]
    assert len(flips.rows) == 2 * 60
    first = report["neurons"][0]["over_time"]["flip_rate"][:5]
    assert flips.rows[0]["flips"] == pytest.approx(100 * sum(first) / 5)


def test_values_that_do_not_exist_are_left_out() -> None:
    report = samples.report(neurons=3)
    odd = copy.deepcopy(report["neurons"])
    odd[1] |= {"saturation": None, "flip_rate": None, "over_time": {}, "divergence": None, "k": None}
    odd[1]["firing_rate"] = {"before": None, "after": None}
    assert [r["layer"] for r in layers.panels({"neurons": odd})[0].rows] == [1, 3]
    assert {r["layer"] for r in time.panels({"neurons": odd})[0].rows if r["flips"] is not None} == {1, 3}
    nothing = [n | {"saturation": None, "flip_rate": None} for n in odd[1:2]]
    assert layers.panels({"neurons": nothing}) == []


def test_a_ranking_covers_all_ranks() -> None:
    data = samples.report(channels=120)["figures"]["allocation"]
    sparse = data | {"rows": data["rows"][::7]}
    ranked, composition = allocation.panels(sparse)
    ends = [r["end"] for r in ranked.rows]
    assert ends == [r["rank"] for r in ranked.rows[1:]] + [ranked.rows[-1]["rank"] + 1]
    assert sum(r["share"] for r in composition.rows if r["stage"] == "stage1") == pytest.approx(1)


def test_the_sweep_rings_what_was_taken() -> None:
    data = figure_data(run_of("report"), "sweep")
    assert data is not None
    ringed = [(r["beta"], r["percentile"]) for p in sweep.panels(data) for r in p.rows if r["chosen"]]
    assert ringed == [(0.8, "P97")] * 2
    scores = drawn("experiment", "sweep")
    assert scores[0].title == "Score of the test data" and len(scores[0].rows) == 18


def test_neurons_are_chosen_by_name() -> None:
    data = figure_data(run_of("report"), "time")
    assert data is not None
    name = data["neurons"][2]["name"]
    panels = figure_panels(FIGURES["time"], data, [name])
    assert {r["name"] for p in panels for r in p.rows} == {name}
    pair = figure_panels(FIGURES["distributions"], KINDS["report"]["figures"]["distributions"], [name])
    assert all(name in p.description for p in pair) and len(pair) == 3
    for figure in ("time", "distributions", "layers"):
        found = figure_data(run_of("report"), figure)
        with pytest.raises(PTQ4SNNError, match="'nobody'"):
            figure_panels(FIGURES[figure], found or {}, ["nobody"])
    with pytest.raises(PTQ4SNNError, match="at most 4"):
        figure_panels(FIGURES["time"], data, [n["name"] for n in data["neurons"]])
    with pytest.raises(PTQ4SNNError, match="does not apply to memory"):
        figure_panels(FIGURES["memory"], KINDS["report"]["figures"]["memory"], [name])


def test_why_a_figure_is_missing() -> None:
    uniform = Run(Path("u.json"), "report", samples.report(recipe="paper+uniform+w4m4"))
    for name, says in {
        "allocation": "there is no ranking, as the allocation is uniform; quantize with --recipe paper",
        "sweep": "nothing was searched, as the allocation is uniform",
        "segmentation": "no label maps",
        "methods": "ptq4snn compare",
    }.items():
        assert figure_data(uniform, name) is None
        assert says in missing(uniform, name)
    assert missing(run_of("experiment"), "memory") == "experiment.json is about methods"
    with pytest.raises(PTQ4SNNError, match="did you mean 'allocation'"):
        find_figure("alocation")


def test_an_experiment_of_a_figure_is_a_run(tmp_path: Path) -> None:
    # as `experiment membrane-cost` writes it: without the plan's own line
    rows = [{k: v for k, v in r.items() if k != "this"} for r in samples.membrane_cost()["rows"]]
    made = {"experiment": "membrane-cost", "weights": 11, "states": 3, "carried_states": 2, "rows": rows}
    run = Run(tmp_path, "experiment", made)
    data = figure_data(run, "membrane-cost")
    assert data is not None and figure_data(run, "memory") is None
    panels = figure_panels(FIGURES["membrane-cost"], data)
    assert {r["series"] for r in panels[0].rows} == {"32-bit states", "4-bit states, ideal", "weights alone"}
    assert {r["series"] for r in panels[1].rows} == {"32-bit states", "4-bit states, ideal"}


@pytest.mark.parametrize(("ending", "begins"), [(".svg", b"<svg"), (".png", b"\x89PNG"), (".pdf", b"%PDF")])
def test_files(tmp_path: Path, ending: str, begins: bytes) -> None:
    pytest.importorskip("vl_convert", reason="figures as files need vl-convert-python")
    panels = drawn("report", "memory")
    file = tmp_path / f"memory{ending}"
    check_target(file)
    write_figure(figure_spec(FIGURES["memory"], panels), file)
    assert file.read_bytes().startswith(begins)
    assert [f.name for f in tmp_path.iterdir()] == [file.name], "nothing half-written is left"


def test_a_spec_holds_its_data(tmp_path: Path) -> None:
    panels = drawn("report", "bridge-analysis")
    file = tmp_path / "b.json"
    write_figure(figure_spec(FIGURES["bridge-analysis"], panels), file)
    spec = json.loads(file.read_text())
    assert spec["concat"][1]["data"]["values"] == panels[1].rows
    assert "@" not in re.sub(r"https?://\S+", "", json.dumps(spec))


def test_targets_are_checked_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PTQ4SNNError, match=r"must end with \.svg"):
        check_target(tmp_path / "figure.bmp")
    with pytest.raises(PTQ4SNNError, match="no folder"):
        check_target(tmp_path / "no" / "figure.json")
    (tmp_path / "folder.svg").mkdir()
    with pytest.raises(PTQ4SNNError, match="is a folder"):
        check_target(tmp_path / "folder.svg")
    monkeypatch.setitem(__import__("sys").modules, "vl_convert", None)
    with pytest.raises(PTQ4SNNError, match=r'pip install "ptq4snn\[figures\]"'):
        check_target(tmp_path / "figure.svg")
    check_target(tmp_path / "figure.json")


def test_names_that_look_like_colours_stay_names() -> None:
    report = samples.report()
    for n in report["neurons"]:
        n["name"] = f"@{n['name']}"
    report["figures"]["allocation"]["stages"] = {"@stage": {"4": 1.0}}
    for name in ("layers", "allocation"):
        data = FIGURES[name].of_report(report)
        assert data is not None
        text = json.dumps(figure_spec(FIGURES[name], figure_panels(FIGURES[name], data)))
        assert ("@stage" in text) and '"@after"' not in text and '"@bits4"' not in text


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ((199 << 10, 360 << 10), [150 << 10, 200 << 10, 250 << 10, 300 << 10, 350 << 10, 400 << 10]),
        ((500, 900), [500, 600, 700, 800, 900]),
        ((3 << 20, 50 << 20), [n << 20 for n in (0, 10, 20, 30, 40, 50)]),
        ((4096, 4096), [4096]),
    ],
)
def test_ticks_of_bytes_are_round(values: tuple[int, int], ticks: list[int]) -> None:
    assert round_bytes(values, 6) == ticks
