"""Tables of README.md and docs/results.md are those that the stored results give: nothing is typed in."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from ptq4snn.recipe import Recipe

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A script of benchmarks/ as a module, by its name."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    before = set(sys.modules)
    yield import_module
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(BENCHMARKS)):
            del sys.modules[name]


def test_methods(benchmark: Any) -> None:
    results, pages = benchmark("methods").known(), benchmark("methods_page")
    for page in (pages.PAGE, pages.README):
        text = page.read_text("utf-8")
        assert "<!-- equal -->" in text
        assert pages.written(page, results) == text, f"python benchmarks/methods.py --write: {page}"


def test_networks_of_other_frameworks(benchmark: Any) -> None:
    foreign = benchmark("foreign")
    results, spikes = (json.loads(f.read_text("utf-8")) for f in (foreign.RESULTS, foreign.RECORDED))
    assert foreign.written(results, spikes) == foreign.PAGE.read_text("utf-8")


def test_the_converted_network(benchmark: Any) -> None:
    converted = benchmark("converted_resnet")
    results = json.loads(converted.RESULTS.read_text("utf-8"))
    text = converted.PAGE.read_text("utf-8")
    assert "<!-- rounded -->" in text and converted.written(converted.PAGE, results) == text
    for spec in converted.rounding_recipes().values():
        assert Recipe.parse(spec).rounding in converted.ROUNDINGS


def test_what_noise_costs(benchmark: Any) -> None:
    noise = benchmark("noise")
    assert noise.BEGIN in noise.PAGE.read_text("utf-8")
    assert noise.written(noise.known()) == noise.PAGE.read_text("utf-8")
    for card, text in noise.cards(noise.known()).items():
        assert card.read_text("utf-8") == text, f"python benchmarks/noise.py --write: {card}"


def test_the_smallest_model_for_a_goal(benchmark: Any) -> None:
    smallest = benchmark("smallest")
    assert smallest.BEGIN in smallest.PAGE.read_text("utf-8")
    assert smallest.known()
    assert smallest.written(smallest.known()) == smallest.PAGE.read_text("utf-8")


def test_what_allocations_are_chosen_by(benchmark: Any) -> None:
    criterion = benchmark("criterion")
    results = json.loads(criterion.RESULTS.read_text("utf-8"))
    assert criterion.written(results) == criterion.PAGE.read_text("utf-8")


def test_speed_and_memory(benchmark: Any) -> None:
    page = benchmark("runtime_parts.page")
    results = json.loads((BENCHMARKS / "runtime.json").read_text("utf-8"))
    for path, mark in (
        (BENCHMARKS.parent / "docs" / "runtime.md", "speed"),
        (BENCHMARKS.parent / "README.md", "brief speed"),
    ):
        text = path.read_text("utf-8")
        assert f"<!-- {mark} -->" in text and page.written(path, results) == text


def test_the_papers_tables(benchmark: Any) -> None:
    tables = benchmark("paper_tables")
    assert set(tables.known()) == set(tables.LIMITS)
    assert tables.written(tables.known()) == tables.PAGE.read_text("utf-8")


def test_the_demo(benchmark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS.parent / "scripts"))
    demo = benchmark("make_demo_table")
    results = json.loads(demo.RESULTS.read_text("utf-8"))
    assert demo.written(results) == demo.PAGE.read_text("utf-8"), "python scripts/make_demo_table.py --write"


@pytest.mark.parametrize("name", ["runtime_exactness", "export_c", "export_onnx"])
def test_exactness_and_exports(benchmark: Any, name: str) -> None:
    if name == "export_onnx":
        pytest.importorskip("onnxruntime")
    script = benchmark(name)
    assert script.written(json.loads(script.RESULTS.read_text("utf-8"))) == script.PAGE.read_text("utf-8")


def test_rows_of_more_seeds_stay(benchmark: Any) -> None:
    def measured(seeds: list[int], score: float) -> Any:
        rows = [{"method": "a", "seeds": seeds, "score": score}]
        return {"samples": 9, "float": "f", "rows": rows}

    joined = benchmark("methods").joined
    assert joined(measured([0, 1, 2], 1.0), measured([0], 2.0))["rows"][0]["score"] == 1.0
    assert joined(measured([0], 1.0), measured([0], 2.0))["rows"][0]["score"] == 2.0
    assert joined(None, measured([0], 2.0)) == measured([0], 2.0)


def test_what_quantization_costs(benchmark: Any) -> None:
    cost = benchmark("ptq_cost")
    results = json.loads(cost.RESULTS.read_text("utf-8"))
    assert results["networks"]
    assert cost.written(results) == cost.PAGE.read_text("utf-8")


def test_every_processor_stands_beside_its_figures(benchmark: Any) -> None:
    page = benchmark("runtime_parts.page")
    cpus = json.loads((BENCHMARKS / "runtime.json").read_text("utf-8"))["cpus"]
    text = (BENCHMARKS.parent / "docs" / "runtime.md").read_text("utf-8")
    for name, cpu in cpus.items():
        assert name == page.cpu_name(cpu)
        for case in (p for p in cpu["parts"] if p.startswith("speed/")):
            assert f"**{page.title(cpu)}**" in text, case
    main = "sew-resnet18, 15 %"
    some = [{**c, "parts": {k: v for k, v in c["parts"].items() if main in k}} for c in cpus.values()]
    rows = page.brief_table(some, (main,), (1, 16)).splitlines()[2:]
    assert len(rows) == sum(f"speed/{main}/{b}" in cpu["parts"] for cpu in cpus.values() for b in (1, 16))


def test_the_soak(benchmark: Any) -> None:
    soak = benchmark("soak")
    results = json.loads(soak.RESULTS.read_text("utf-8"))
    text = soak.PAGE.read_text("utf-8")
    assert "<!-- soak -->" in text and soak.written(results) == text, "python benchmarks/soak.py --write"


def test_what_processes_gain_and_tell(benchmark: Any) -> None:
    scale = benchmark("scale")
    results = json.loads(scale.RESULTS.read_text("utf-8"))
    assert scale.written(results) == scale.PAGE.read_text("utf-8")


def test_large_networks(benchmark: Any) -> None:
    large = benchmark("large")
    assert large.results()
    assert large.written(large.results()) == large.PAGE.read_text("utf-8")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([16.0, 15.0], "16.0x and 15.0x: reached"),
        ([14.9, 15.0], "14.9x and 15.0x: reached at batch 16 only"),
        ([14.9, 3.0], "14.9x and 3.0x: missed"),
        ([14.9, None], "14.9x and not measured: missed"),
        ([None, None], ""),
    ],
)
def test_which_goals_are_reached(benchmark: Any, values: list[float | None], words: str) -> None:
    assert benchmark("runtime_parts.goals").judged(values, 15.0) == words
