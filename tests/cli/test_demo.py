"""The demo's rows on a few samples, its files and its speed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from ptq4snn.cli.demo_end import speed, written
from ptq4snn.cli.demo_rows import FULL, NETWORKS, SETTINGS, Limits, Study
from ptq4snn.errors import DataError
from ptq4snn.progress import Silent
from ptq4snn.recipe import Recipe

SLOW = NETWORKS[1]


def test_every_setting_is_a_recipe_and_all_have_equal_weights() -> None:
    assert set(SETTINGS) < set(FULL) and len({name for name, _ in FULL}) == len(FULL)
    recipes = {name: Recipe.parse(words) for name, words in FULL}
    assert {recipes[name].rounding for name, _ in SETTINGS} == {"sbc"}
    assert {r.rounding for name, r in recipes.items() if name.startswith("nearest")} == {"nearest"}
    for bits in (4, 2):
        ways = {name.split()[1]: recipes[name] for name, _ in SETTINGS if name.startswith(f"W4/M{bits} ")}
        assert set(ways) == {"reuse", "FlowQ", "paper", "default"}
        assert {r.membrane for r in ways.values()} == {bits} and ways["default"] == Recipe(membrane=bits)


def test_rows_files_and_speed_of_the_slow_network(tmp_path: Path) -> None:
    study = Study(SLOW, Limits(8, 4), Silent())
    assert (len(study.calibration), study.samples) == (8, 4)
    settings = (("W4/M32", "gptq+w4m32"), ("W4/M4 default", "w4m4"))
    first, wide, narrow = study.rows(settings)
    assert [r["setting"] for r in (first, wide, narrow)] == ["float", "W4/M32", "W4/M4 default"]
    assert first["error"] is None and narrow["error"] is not None
    assert narrow["change"] == pytest.approx(narrow["accuracy"] - first["accuracy"])
    assert first["weight_bytes"] > 7 * narrow["weight_bytes"] and narrow["average_bits"] == 4
    assert wide["state_bytes"] > 2 * narrow["state_bytes"]
    files = written(study, tmp_path / "new")
    assert [f.name for f in files] == [
        f"vgg4-16-nmnist-slow.ptq{end}" for end in ("", ".report.json", ".report.html")
    ]
    assert sorted((tmp_path / "new").iterdir()) == sorted(files)  # nothing else is left there
    (line,) = json.loads(files[1].read_text("utf-8"))["evaluations"]  # the page shows it
    assert line["data"] == "nmnist-sample" and line["samples"] == 4 and "right" not in line["float"]
    assert line["quantized"]["accuracy"] == narrow["accuracy"]
    found = speed(study, files[0], rounds=1)
    assert found["ratio"] == pytest.approx(found["float_ms"] / found["runtime_ms"]) and found["processor"]


def test_test_samples_without_labels_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((2, 3, 32, 32), np.float32))
    with pytest.raises(DataError, match="have no labels"):
        Study(NETWORKS[0], Limits(2, 2), Silent(), str(tmp_path / "x.npy"))
