"""A comparison against runs done by hand: same figures, nothing run twice, killed runs go on."""

from __future__ import annotations

import copy
import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from experiments.small import FEW, Case
from schema.walk import differences
from torch import nn

import ptq4snn
from ptq4snn.errors import DataError, PTQ4SNNError
from ptq4snn.experiments import bench as module
from ptq4snn.experiments.compare import compare
from ptq4snn.experiments.comparison import Comparison
from ptq4snn.experiments.comparison_tables import raw_csv, text_table
from ptq4snn.experiments.scoring import unpack
from ptq4snn.pipeline import run
from ptq4snn.recipe import Recipe
from ptq4snn.schema.comparison_types import ComparisonData

METHODS = ["w4m32", "R=reuse+uniform+w4m4", "B=uniform+w4m2"]


def compared(case: Case, folder: Path, methods: list[str] | None = None, **options: Any) -> Comparison:
    options = {"seeds": (0, 1), "changes": FEW, **options}
    return compare(case.model, case.pool, case.test, methods or METHODS, folder=folder, **options)


@pytest.fixture(scope="module")
def shared(case: Case, tmp_path_factory: pytest.TempPathFactory) -> tuple[Comparison, Path]:
    folder = tmp_path_factory.mktemp("runs")
    return compared(case, folder), folder


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """What was prepared, run and scored."""
    made: dict[str, list[Any]] = {"prepare": [], "run": [], "score": []}
    for name, seen in made.items():
        real = getattr(module, name)

        def counted(*args: Any, seen: list[Any] = seen, real: Any = real) -> Any:
            seen.append(args)
            return real(*args)

        monkeypatch.setattr(module, name, counted)
    return made


def by_hand(case: Case, spec: str, seed: int | None) -> tuple[Any, Any]:
    assert seed is not None
    order = torch.randperm(len(case.pool), generator=torch.Generator().manual_seed(seed))[:32]
    recipe = Recipe.parse(spec).replace(**FEW, seed=seed)
    q = ptq4snn.quantize(case.model, case.pool[order], recipe)
    return ptq4snn.evaluate(q, case.test), q.report["summary"]


def test_every_run_is_what_quantize_and_evaluate_give(case: Case, shared: tuple[Comparison, Path]) -> None:
    found, _ = shared
    assert [(r["label"], r["seed"]) for r in found.runs] == [
        ("float", None), ("w4m32", 0), ("R", 0), ("B", 0), ("w4m32", 1), ("R", 1), ("B", 1),
    ]  # fmt: skip
    assert found.runs[0]["score"] == ptq4snn.evaluate(case.model, case.test)["accuracy"]
    runs: Any = found.runs[1:]
    for r in runs:
        result, report = by_hand(case, r["spec"], r["seed"])
        assert (r["score"], r["samples"]) == (result["accuracy"], 30)
        assert r["scores"]["accuracy_top5"] == result["accuracy_top5"]
        for name in ("average_bits", "saturation", "flip_rate", "agreement", "kl", "emd"):
            assert r["report"]["summary"][name] == report[name]
        assert int(unpack(r["right"], 30).sum()) == round(0.3 * r["score"])


def test_rows(shared: tuple[Comparison, Path]) -> None:
    found, _ = shared
    rows = {r.label: r for r in found.rows()}
    base, m32 = found.runs[0]["score"], [r["score"] for r in found.runs if r["label"] == "w4m32"]
    for label, row in rows.items():
        scores = [r["score"] for r in found.runs if r["label"] == label]
        assert row.score == pytest.approx(sum(scores) / len(scores))
        assert row.change == pytest.approx(row.score - base)
    assert rows["float"].spread is None and rows["float"].baseline is None
    a, b = (r["score"] for r in found.runs if r["label"] == "B")
    assert rows["B"].spread == pytest.approx(abs(a - b) / 2**0.5)
    assert (rows["B"].baseline, rows["R"].baseline, rows["w4m32"].baseline) == ("w4m32", "w4m32", None)
    change = (a + b) / 2 - sum(m32) / 2
    interval = rows["B"].interval
    assert interval is not None and interval.low < interval.high
    assert interval.change == pytest.approx(change) == pytest.approx(rows["B"].baseline_change)


def test_the_seeds_draw_other_samples(shared: tuple[Comparison, Path]) -> None:
    first, second = (cast(Any, r["report"])["summary"]["kl"] for r in shared[0].runs if r["label"] == "B")
    assert first != second


def test_a_second_time_nothing_runs(
    case: Case, shared: tuple[Comparison, Path], calls: dict[str, list[Any]]
) -> None:
    told: list[bool] = []
    again = compared(case, shared[1], report=lambda m, s, r, stored: told.append(stored))
    assert calls == {"prepare": [], "run": [], "score": []} and told == [True] * 7
    assert again.to_dict() == shared[0].to_dict()


def test_labels_do_not_matter_to_the_store(
    case: Case, shared: tuple[Comparison, Path], calls: dict[str, list[Any]]
) -> None:
    other = compared(case, shared[1], ["X=uniform+w4m2", "w4m32"], baseline="w4m32")
    assert not calls["run"] and [r.label for r in other.rows()] == ["float", "X", "w4m32"]


def test_one_observation_a_seed(case: Case, tmp_path: Path, calls: dict[str, list[Any]]) -> None:
    compared(case, tmp_path)
    assert (len(calls["prepare"]), len(calls["run"]), len(calls["score"])) == (2, 6, 7)


def test_a_killed_comparison_goes_on(
    case: Case, tmp_path: Path, shared: tuple[Comparison, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, count = run, 0

    def killed(*args: Any) -> Any:
        nonlocal count
        count += 1
        if count == 4:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(module, "run", killed)
    with pytest.raises(KeyboardInterrupt):
        compared(case, tmp_path)
    found = compared(case, tmp_path)
    assert count == 4 + 3  # three were finished, three were left

    def timeless(c: Comparison) -> list[dict[str, Any]]:
        return [{k: v for k, v in r.items() if k not in ("seconds", "date")} for r in c.runs]

    assert timeless(found) == timeless(shared[0])


def test_the_order_of_methods_does_not_matter(
    case: Case, tmp_path: Path, shared: tuple[Comparison, Path]
) -> None:
    turned = compared(case, tmp_path, METHODS[::-1], seeds=(0,))
    for r in turned.runs:
        same = next(s for s in shared[0].runs if (s["label"], s["seed"]) == (r["label"], r["seed"]))
        assert (r["right"], r["report"]) == (same["right"], same["report"])


@pytest.mark.parametrize("change", ["limit", "calibration", "model", "graph", "test", "label", "pool"])
def test_other_settings_are_other_runs(
    case: Case,
    shared: tuple[Comparison, Path],
    calls: dict[str, list[Any]],
    small_model: Callable[..., nn.Module],
    change: str,
) -> None:
    options: dict[str, Any] = {"seeds": (0,)}
    other = Case(case.model, case.pool, case.test)
    if change == "limit":
        options["limit"] = 20
    elif change == "calibration":
        options["changes"] = {**FEW, "calibration": 40}
    elif change == "model":
        other.model = small_model(seed=5)
    elif change == "graph":  # the same weights and classes, as with a constant of an imported module
        other.model = copy.deepcopy(case.model)
        other.model.register_forward_pre_hook(lambda m, args: (args[0] * 0.5,))
    elif change == "label":  # one of all
        other.test = [(x, y.clone()) for x, y in case.test]
        other.test[1][1][7] = (other.test[1][1][7] + 1) % 10
    elif change == "test":
        other.test = [(x, y.flip(0)) for x, y in case.test]
    else:
        other.pool = case.pool.flip(0)
    found = compared(other, shared[1], ["uniform+w4m2"], **options)
    assert len(calls["run"]) == 1
    assert found.runs[0]["samples"] == (20 if change == "limit" else 30)


def test_every_key_has_its_type(shared: tuple[Comparison, Path]) -> None:
    told = differences(shared[0].to_dict(), ComparisonData)
    # a run keeps its report without the figures, which are large
    assert told == [f".runs.{i}.report.figures: missing" for i in range(1, 7)]


def test_csv_and_json_agree(shared: tuple[Comparison, Path]) -> None:
    found, _ = shared
    data = json.loads(json.dumps(found.to_dict()))
    lines = list(csv.DictReader(raw_csv(found).splitlines()))
    assert len(lines) == len(data["runs"]) == 7
    for line, r in zip(lines, data["runs"], strict=True):
        assert (line["method"], line["spec"], float(line["score"])) == (r["label"], r["spec"], r["score"])
        assert line["seed"] == ("" if r["seed"] is None else str(r["seed"]))
        if r["report"] is not None:
            total = r["report"]["summary"]
            assert float(line["kl"]) == total["kl"]
            assert int(line["state_bytes_packed"]) == total["state_bytes"]["packed"]
    for row in data["rows"]:
        scores = [float(x["score"]) for x in lines if x["method"] == row["method"]]
        assert row["score"] == pytest.approx(sum(scores) / len(scores))


def test_text(shared: tuple[Comparison, Path]) -> None:
    lines = text_table(shared[0])
    for line, row in zip(lines[2:6], shared[0].rows(), strict=True):
        assert line.split()[:2] == [row.label, f"{row.score:.2f}"]
        assert row.interval is None or f"{row.interval.low:+.2f} .. {row.interval.high:+.2f}" in line
    assert "30 test samples; calibration seeds 0, 1" in "\n".join(lines)
    assert lines[-1] == "baseline 'w4m32' of: R, B"
    assert max(map(len, lines)) <= 110


def test_refused(case: Case, tmp_path: Path, calls: dict[str, list[Any]]) -> None:
    with pytest.raises(PTQ4SNNError, match="no seed"):
        compared(case, tmp_path, seeds=())
    with pytest.raises(PTQ4SNNError, match="none of the methods"):
        compared(case, tmp_path, baseline="gptq+w4m32")
    assert not calls["score"]
    unlabelled = [x for x, _ in case.test]
    with pytest.raises(DataError, match="no labels"):
        compare(case.model, case.pool, unlabelled, ["w4m4"], folder=tmp_path)
    assert not calls["run"]


def test_a_rounding_sees_all_samples_whoever_comes_first(case: Case, tmp_path: Path) -> None:
    options: dict[str, Any] = {"seeds": (0,), "changes": {**FEW, "calibration": 48}}
    late = compared(case, tmp_path / "a", ["uniform+w4m4", "gptq+uniform+w4m4"], **options).runs[2]
    alone = compared(case, tmp_path / "b", ["gptq+uniform+w4m4"], **options).runs[1]
    assert (late["right"], late["report"]) == (alone["right"], alone["report"])
    order = torch.randperm(48, generator=torch.Generator().manual_seed(0))
    recipe = Recipe.parse("gptq+uniform+w4m4").replace(**options["changes"])
    q = ptq4snn.quantize(case.model, case.pool[order], recipe)
    assert cast(Any, late["report"])["summary"]["kl"] == q.report["summary"]["kl"]
    assert any((tmp_path / "a" / "rounding").iterdir())  # what a killed rounding goes on from
