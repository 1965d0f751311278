"""The paper's figures against its source, where that is at hand, and when they are shown."""

from __future__ import annotations

import os
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ptq4snn.data.registry import DATA
from ptq4snn.experiments.catalog import EXPERIMENTS
from ptq4snn.experiments.paper import RunSetting, cell, contents, difference, paper_settings, same_setting
from ptq4snn.models.zoo import MODELS

NUMBER = re.compile(r"[-+]?\d+\.\d+")
ACCDROP = re.compile(r"\\accdrop\{([\d.]+)\}\{([-+.\dBase]+)\}")


def source() -> str:
    """The paper's LaTeX; PTQ4SNN_PAPER names it, else it lies beside the project."""
    beside = Path(__file__).parents[3] / "shared" / "paper" / "ptq4snn.tex"
    path = Path(os.environ.get("PTQ4SNN_PAPER", beside))
    if not path.is_file():
        pytest.skip("the paper's source is not here")
    return path.read_text("utf-8")


def body(label: str) -> list[str]:
    """The rows of a table, each in one line."""
    text = source()
    end = text.index(rf"\label{{{label}}}")
    begin = text.rindex(r"\begin{table", 0, end)
    inside = text[begin:end].split(r"\midrule", 1)[1].split(r"\bottomrule")[0]
    return [" ".join(row.split()) for row in re.split(r"\\\\", inside) if row.strip()]


def classification(rows: list[str]) -> list[list[tuple[str, str]]]:
    """(accuracy, change) of every row, backbone by backbone: float, BRECQ, GPTQ, FlowQ, the method."""
    found = [ACCDROP.findall(row) for row in rows]
    starts = [i for i, row in enumerate(rows) if "Full precision" in row] + [len(rows)]
    return [[v for row in found[a:b] for v in row] for a, b in pairwise(starts)]


@pytest.mark.parametrize("experiment", ["imagenet", "cifar10-dvs", "cifar"])
def test_classification_tables(experiment: str) -> None:
    settings = paper_settings(experiment)
    rows = body(settings[0].table)
    blocks = classification(rows)
    assert len(blocks) == len(settings)
    for s, block in zip(settings, blocks, strict=True):
        (base, word), *others = block
        assert word == "Base" and next(iter(s.rows.values())) == {"accuracy": float(base)}
        labels = [m.label for m in EXPERIMENTS[experiment].methods]
        assert list(s.rows) == labels and len(others) == len(labels) - 1
        for label, (accuracy, change) in zip(labels[1:], others, strict=True):
            assert s.rows[label] == {"accuracy": float(accuracy), "change": float(change)}
    heads = [row for row in rows if "Full precision" in row]
    if experiment != "cifar10-dvs":
        assert all(s.backbone in h for s, h in zip(settings, heads, strict=True))


def numbers(rows: list[str]) -> list[list[float]]:
    return [[float(n) for n in NUMBER.findall(row)] for row in rows]


def test_segmentation_table() -> None:
    (s,) = paper_settings("segmentation")
    found = [v for v in numbers(body(s.table)) if v]
    assert list(s.rows) == [m.label for m in EXPERIMENTS["segmentation"].methods]
    assert [[r[n] for n in ("aAcc", "mIoU", "mAcc", "change")] for r in s.rows.values()] == found


def test_packed_state_table() -> None:
    (s,) = paper_settings("packed-state")
    for row, (label, r) in zip(body(s.table), s.rows.items(), strict=True):
        mode, split, *rest = row.split("&")
        assert mode.strip() == label and [float(v) for v in split.split("/")] == r["split"]
        figures = [float(n) for n in NUMBER.findall(" ".join(rest))]
        names = ("bits_nonstem", "bits_all", "logical_mib", "packed_mib", "energy")
        assert figures == [r[n] for n in names]


def test_ablation_tables() -> None:
    (s,) = paper_settings("scale-ablation")
    base, *rows = s.rows.values()
    assert numbers(body(s.table)) == [[r[n] for n in ("accuracy", "drop", "saturation")] for r in rows]
    assert rf"{base['accuracy']}\% floating-point checkpoint" in source()
    mixed = paper_settings("mpba-ablation")
    assert numbers(body(mixed[0].table)) == [list(m.rows["With MPBA"].values()) for m in mixed]


def test_sweep_and_protocol() -> None:
    (s,) = paper_settings("sweep")
    assert r"selects P99 with $\beta=0.6$ (93.06\%)" in source()
    assert s.rows == {"beta 0.6, P99": {"accuracy": 93.06}}
    cells = [c.strip().strip("$") for row in body("tab:ablation_protocol") for c in row.split("&")]
    cells = [c.replace("$", "") for c in cells]
    assert dict(zip(cells[::2], cells[1::2], strict=True)) == contents()["protocol"]


def test_every_setting_is_of_something_that_exists() -> None:
    for s in (s for name in EXPERIMENTS for s in paper_settings(name)):
        assert s.data in DATA and s.models and all(MODELS[m].data == s.data for m in s.models)
        assert all(MODELS[m].steps == s.steps for m in s.models)
        labels = [m.label for m in EXPERIMENTS[s.experiment].methods]
        assert set(s.rows) <= set(labels)
    assert {s["experiment"] for s in contents()["setting"]} <= set(EXPERIMENTS)


SAME: dict[str, Any] = {"model": "sdt-8-768-imagenet", "data": "imagenet", "steps": 4}


@pytest.mark.parametrize(
    "change",
    [
        {"model": "sdt-8-512-imagenet"},
        {"model": None},
        {"data": "cifar10"},
        {"data": None},
        {"steps": 8},
        {"limit": 9},
    ],
)
def test_shown_only_in_the_same_setting(change: dict[str, Any]) -> None:
    found = same_setting("imagenet", RunSetting(**SAME))
    assert found is not None and found.rows["FlowQ W4/M4"]["accuracy"] == 63.74
    other = RunSetting(**{**SAME, **change})
    assert same_setting("imagenet", other) is None
    assert "the setting differs" in difference("imagenet", other)
    assert same_setting("cifar", RunSetting(**SAME)) is None


def test_cells() -> None:
    assert cell(None) == ""
    assert cell({"accuracy": 4.84, "change": -71.06}) == "4.84 (-71.06)"
    assert cell({"accuracy": 72.5, "drop": 2.74, "saturation": 56.5}) == "72.50 (-2.74) sat. 56.50"
    assert cell({"accuracy": 93.36, "gain": 0.44}) == "93.36 (gain +0.440)"
    assert cell({"aAcc": 90.64, "mIoU": 60.44, "mAcc": 73.41, "change": 0.0}) == "90.64 / 60.44 / 73.41"
