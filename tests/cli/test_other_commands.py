"""`inspect`, `evaluate`, `demo`, and what holds for all commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Cli = Callable[..., tuple[int, str, str]]
SRC = str(Path(__file__).parents[2] / "src")

ROWS = [
    {
        "setting": "float",
        "accuracy": 85.1,
        "change": None,
        "error": None,
        "average_bits": None,
        "saturation": None,
        "weight_bytes": 2400000,
        "state_bytes": 163840,
    },
    {
        "setting": "W4/M4 bridge + MPBA",
        "accuracy": 84.25,
        "change": -0.85,
        "error": 1.2,
        "average_bits": 4.0004,
        "saturation": 0.1234,
        "weight_bytes": 300000,
        "state_bytes": 20480,
    },
]

SPEED = {"float_ms": 20.0, "runtime_ms": 2.0, "ratio": 9.5, "kernels": "avx2", "processor": "A CPU"}


def python(code: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": SRC}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False)


@pytest.mark.parametrize(
    "action", ["import ptq4snn", "import ptq4snn.cli", "import ptq4snn; ptq4snn.Recipe.parse('w4m4')"]
)
def test_imports_are_light(action: str) -> None:
    done = python(f"{action}\nimport sys\nprint([m for m in ('torch', 'numpy', 'rich') if m in sys.modules])")
    assert done.stdout.strip() == "[]", done.stderr


def test_help_does_not_import_torch() -> None:
    done = python(
        "import sys\nfrom ptq4snn.cli import main\n"
        "for argv in (['--help'], ['quantize', '--help'], ['--version'], ['quantize', '--membrane']):\n"
        "    try: main(argv)\n    except SystemExit: pass\n"
        "assert not {'torch', 'numpy', 'rich'} & set(sys.modules)\nprint('light')"
    )
    assert done.stdout.endswith("light\n"), done.stderr
    assert "quantize" in done.stdout and "ptq4snn 0.1.0" in done.stdout


def test_public_names() -> None:
    import ptq4snn
    from ptq4snn.recipe import Recipe

    assert ptq4snn.Recipe is Recipe
    names = {"quantize", "load", "inspect", "evaluate", "Recipe", "QuantizedModel", "runtime", "from_nir"}
    names |= {"__version__", "export"}
    assert names == set(ptq4snn.__all__)
    assert set(ptq4snn.__all__) <= set(dir(ptq4snn))
    with pytest.raises(AttributeError, match="quantise"):
        ptq4snn.quantise  # noqa: B018


def test_exit_codes_of_the_process(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": SRC}
    for argv, code in ((["--version"], 0), ([], 2), (["quantise"], 2), (["quantize", "--membrane", "1"], 2)):
        done = subprocess.run(
            [sys.executable, "-m", "ptq4snn", *argv],
            capture_output=True,
            text=True,
            env=env,
            cwd=tmp_path,
            check=False,
        )
        assert done.returncode == code
        if code:
            assert done.stderr.startswith("ptq4snn: error: ") and done.stderr.count("\n") == 1


def test_inspect(api: Any, cli: Cli) -> None:
    assert cli("inspect") == (0, "FOUND\n", "")
    assert api.inspect["sample"].shape == (2, 3, 32, 32)
    code, out, _ = cli("inspect", "--json")
    assert code == 0 and json.loads(out) == {"pairs": 1}


def test_inspect_takes_x_of_labelled_batches(api: Any, cli: Cli, mynet: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=np.ones((4, 9, 3)), y=np.zeros(9, int))
    assert cli("inspect", "--model", f"{mynet}:build", "--data", "d.npz", "--batch-axis", "1")[0] == 0
    assert api.inspect["sample"].shape == (4, 2, 3) and api.inspect["batch_axis"] == 1


def test_evaluate(api: Any, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "m.ptq").write_bytes(b"BUNDLE")
    line = "87.65 % (Acc@5 99.2 %) of 2,000 samples, 812 samples/s"
    assert cli("evaluate", "m.ptq") == (0, f"m.ptq: {line}\n", "")
    code, out, _ = cli("evaluate", "m.ptq", "--float")
    assert code == 0 and out.splitlines() == [f"float: {line}", f"m.ptq: {line}"]
    assert [type(m).__name__ for m in api.evaluate[1:]] == ["Linear", "StandIn"]
    code, out, _ = cli("evaluate", "--float", "--json")
    found = json.loads(out)
    assert code == 0 and list(found) == ["float"]
    assert (found["float"]["accuracy"], found["float"]["samples"]) == (87.654, 2000)


def test_evaluate_without_labels(api: Any, cli: Cli, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((5, 3)))
    (tmp_path / "m.ptq").write_bytes(b"BUNDLE")
    argv = ("evaluate", "m.ptq", "--model", "default", "--data", "x.npy")
    assert "accuracy unknown, the 5 samples have no labels" in cli(*argv)[1]


def test_evaluate_refusals(api: Any, cli: Cli) -> None:
    code, out, err = cli("evaluate")
    assert (code, out) == (2, "") and err.startswith("ptq4snn: error: there is nothing to evaluate")
    assert cli("evaluate", "no.ptq") == (2, "", "ptq4snn: error: there is no bundle no.ptq\n")


class StandIn:
    """A study that measures nothing."""

    def __init__(self, network: Any, limits: Any, progress: Any, data: str | None) -> None:
        self.network, self.limits, self.progress, self.data = network, limits, progress, data
        self.calibration, self.samples = range(limits.calibration or 1024), limits.test or 2000

    def rows(self, settings: Any) -> Iterator[dict[str, Any]]:
        yield from self.progress.track(ROWS[: len(settings)], len(ROWS), "demo")


@pytest.fixture
def demo_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def written(study: StandIn, folder: Path) -> list[Path]:
        return [folder / f"{study.network.model}.ptq{end}" for end in ("", ".report.html")]

    monkeypatch.setattr("ptq4snn.cli.demo_rows.Study", StandIn)
    monkeypatch.setattr("ptq4snn.cli.demo_end.written", written)
    monkeypatch.setattr("ptq4snn.cli.demo_end.speed", lambda study, bundle: SPEED)


def test_demo_as_plain_text(demo_rows: None, cli: Cli) -> None:
    code, out, err = cli("demo", "--out", "seen")
    assert (code, err) == (0, "")
    first, second = out.split("vgg4-16-nmnist-slow: ")
    head, table, end, _ = first.split("\n\n")
    header, rule, *rows = table.splitlines()
    assert "accuracy of 500 test images; 128 others" in head and "recordings" in second and set(rule) == {"-"}
    assert header.split("  ")[0] == "setting" and {len(line) for line in rows} == {len(header)}
    assert rows[0].split() == ["float", "85.10", "-", "-", "-", "-", "2,400,000", "163,840"]
    assert rows[1].split()[-7:] == ["84.25", "-0.85", "1.20", "4.000", "0.123", "300,000", "20,480"]
    assert "20 ms in torch (float, eager), 2 ms in the packed runtime (W4/M4 default), 9.5x" in end
    assert "avx2 kernels, A CPU" in end and "page: seen/default.ptq.report.html" in end


def test_demo_as_json(demo_rows: None, cli: Cli) -> None:
    first, second = json.loads(cli("demo", "--json")[1])["networks"]
    assert first["rows"] == second["rows"] == ROWS and first["speed"] == SPEED
    assert (first["model"], first["test_samples"], first["calibration_samples"]) == ("default", 500, 128)
    assert second["files"][1] == "ptq4snn-demo/vgg4-16-nmnist-slow.ptq.report.html"
    full = json.loads(cli("demo", "--json", "--full")[1])["networks"]
    assert full[0]["test_samples"] == 2000


def test_demo_refuses_a_file_for_its_folder(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "there").write_text("")
    code, out, err = cli("demo", "--out", str(tmp_path / "there"))
    assert (code, out) == (2, "") and err.startswith("ptq4snn: error: --out ") and "is a file" in err
    assert "there is no folder" in cli("demo", "--out", str(tmp_path / "no" / "folder"))[2]


def test_demo_on_a_terminal(demo_rows: None, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "140")
    code, out, _ = cli("demo")
    assert code == 0 and "bridge + MPBA" in out and "2,400,000" in out and "┃" in out
