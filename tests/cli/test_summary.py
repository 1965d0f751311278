"""`ptq4snn summary`: every kind of finished run, and that reading one needs no torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from report.samples import membrane_cost, method, put_beside, report

from ptq4snn.report.screen import screen
from ptq4snn.report.terminal import plain

Cli = Callable[..., tuple[int, str, str]]
SRC = str(Path(__file__).parents[2] / "src")
ABOUT = {"title": "the title", "part": "Table cifar"}


def write(path: Path, data: Any) -> str:
    path.write_text(json.dumps(data))
    return str(path)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    path = tmp_path / "m.ptq"
    path.write_bytes(b"no bundle, of which nothing more is told")
    put_beside(path, report(neurons=20))
    return path


def compared() -> dict[str, Any]:
    rows = [
        method("float", 85.4, 0.0),
        method("reuse", 83.2, -2.2),
        method("w4m4", 85.1, -0.3, [-0.7, 0.1]) | {"baseline": "reuse", "change_from_baseline": 1.9},
    ]
    return {"seeds": [0, 1], "rows": rows, "runs": [{"task": "classification", "samples": 2000}]}


def test_a_bundle_and_its_report(cli: Cli, bundle: Path) -> None:
    data = report(neurons=20)
    code, out, err = cli("summary", str(bundle))
    assert (code, out, err) == (0, f"{plain(screen(data))}\n", "")
    assert cli("summary", f"{bundle}.report.json")[1] == out
    every = cli("summary", str(bundle), "--all")[1]
    assert every == f"{plain(screen(data, everything=True))}\n" and len(every) > len(out)
    assert json.loads(cli("summary", str(bundle), "--json")[1]) == data["summary"]


def test_a_comparison(cli: Cli, tmp_path: Path) -> None:
    file = write(tmp_path / "c.json", compared())
    code, out, _ = cli("summary", file)
    lines = out.splitlines()
    assert code == 0 and lines[0].startswith("method  accuracy %")
    assert lines[4].split() == [
        "w4m4", "85.10", "-0.30", "+1.90", "-0.70", "..", "+0.10", "4.00", "0.60", "1.20"
    ]  # fmt: skip
    assert lines[-2].startswith("2,000 test samples; calibration seeds 0, 1")
    assert lines[-1] == "baseline 'reuse' of: w4m4"
    assert json.loads(cli("summary", file, "--json")[1]) == compared()["rows"]


def test_experiments(cli: Cli, tmp_path: Path) -> None:
    table = cli("summary", write(tmp_path / "t.json", {"experiment": "cifar", **ABOUT, **compared()}))[1]
    assert table.startswith("the title (Table cifar of the paper)\n\nmethod  accuracy %")
    figure = {"experiment": "membrane-cost", **ABOUT, **membrane_cost()}
    drawn = cli("summary", write(tmp_path / "f.json", figure))[1]
    assert drawn.startswith("the title") and "states read and written against T" in drawn


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"summary": 3, "neurons": [{}], "projections": [], "figures": {}}, "is not a whole report"),
        ({"experiment": "x", "rows": [], **ABOUT}, "is not a whole experiment (KeyError('x'))"),
        ({"experiment": "memory", "rows": [{}], **ABOUT}, "memory is not drawn as text"),
        ({"seeds": [], "rows": [{}], "runs": []}, "is not a whole comparison"),
        ({"a": 1}, "is not a report"),
        ([1], "is not a report"),
    ],
)
def test_damaged_files_are_one_sentence(cli: Cli, tmp_path: Path, content: Any, message: str) -> None:
    code, out, err = cli("summary", write(tmp_path / "r.json", content))
    assert (code, out) == (2, "") and message in err and err.count("\n") == 1


def test_no_such_run(cli: Cli, tmp_path: Path) -> None:
    code, out, err = cli("summary", str(tmp_path / "none.ptq"))
    assert (code, out) == (2, "") and err.startswith("ptq4snn: error: there is no run")
    assert cli("summary")[0] == 2


def test_quantize_prints_the_same(
    api: Any, cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On a terminal the report is shown with its colours, else as the model's own text."""
    monkeypatch.setattr("ptq4snn.cli.quantize.show", lambda report: print("SHOWN", report["average_bits"]))
    assert cli("quantize")[1].splitlines()[0] == "SUMMARY"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert cli("quantize")[1].splitlines()[0] == "SHOWN 4.0"


def test_needs_neither_torch_nor_rich(bundle: Path, tmp_path: Path) -> None:
    """Piped and without a bundle to read; on a terminal rich is used, torch never."""
    bundle.unlink()
    files = [
        f"{bundle}.report.json",
        write(tmp_path / "c.json", compared()),
        write(tmp_path / "f.json", {"experiment": "membrane-cost", **ABOUT, **membrane_cost()}),
    ]
    code = (
        "import sys\nfrom ptq4snn.cli import main\n"
        f"for file in {files!r}:\n    assert main(['summary', file]) == 0\n"
        "sys.stdout.isatty = lambda: True\n"
        "assert not {'torch', 'numpy', 'rich'} & set(sys.modules)\n"
        f"assert main(['summary', {files[0]!r}]) == 0\n"
        "assert 'torch' not in sys.modules\nprint('light')"
    )
    env = {**os.environ, "PYTHONPATH": SRC, "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False)
    assert done.stdout.endswith("light\n"), done.stderr
