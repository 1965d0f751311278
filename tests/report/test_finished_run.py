"""What `read_run` takes for a run, and how it refuses the rest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from report import samples

from ptq4snn.errors import PTQ4SNNError
from ptq4snn.report.figures import figure_data, missing
from ptq4snn.report.finished_run import read_run, whole


def put(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value))
    return path


def test_a_bundle_is_found_by_its_report(tmp_path: Path) -> None:
    (tmp_path / "model.ptq").write_bytes(b"bundle")
    file = samples.put_beside(tmp_path / "model.ptq", samples.report())
    for name in ("model.ptq", "model.ptq.report.json"):
        run = read_run(tmp_path / name)
        assert (run.kind, run.path) == ("report", file)
        assert run.data["summary"]["held_out"] == 128


def test_kinds_are_told_apart(tmp_path: Path) -> None:
    assert read_run(put(tmp_path / "a.json", samples.comparison())).kind == "comparison"
    assert read_run(put(tmp_path / "b.json", samples.swept())).kind == "experiment"
    figure = {"experiment": "membrane-cost", **samples.membrane_cost()}
    assert read_run(put(tmp_path / "c.json", figure)).kind == "experiment"


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("gone.ptq", None, "there is no run"),
        ("lone.ptq", "bundle", "no report beside it"),
        ("text.json", "{not json", "is no JSON"),
        ("deep.json", "[" * 100_000, "is no JSON"),
        ("list.json", "[1, 2]", "is not a report"),
        ("other.json", '{"rows": []}', "is not a report"),
    ],
)
def test_what_is_no_run_is_told_in_one_sentence(
    tmp_path: Path, name: str, content: str | None, says: str
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(PTQ4SNNError, match=says) as error:
        read_run(tmp_path / name)
    assert name.removesuffix(".json") in str(error.value) and "\n" not in str(error.value)


def test_a_folder_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(PTQ4SNNError, match="is a folder"):
        read_run(tmp_path)


def test_an_edited_file_is_told_in_one_sentence(tmp_path: Path) -> None:
    run = read_run(put(tmp_path / "x.json", samples.report()))
    with pytest.raises(PTQ4SNNError, match=r"x\.json is not a whole report .*: make it again"), whole(run):
        run.data["figures"]["nothing"]


def test_an_older_report_is_a_run_without_figures(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text('{"summary": {}, "neurons": [], "projections": []}')
    found = read_run(tmp_path / "old.json")
    assert found.kind == "report" and figure_data(found, "memory") is None
    assert "older version" in missing(found, "memory")
