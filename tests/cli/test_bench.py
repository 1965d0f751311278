"""`ptq4snn bench`: every figure that can be known otherwise is compared with that."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli.bundles import Made, make, without_torch

from ptq4snn.runtime import load, roofline

Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(tmp_path_factory.mktemp("still"), still=True)


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """No second is spent on each measurement."""
    monkeypatch.setattr(roofline, "BURSTS", dict.fromkeys(range(3), (1, 1)))
    monkeypatch.setattr("ptq4snn.cli.bench.measure_speed", _measure_speed)


def _measure_speed(run: Any, batch: int, threads: int, steps: int, seconds: float) -> Any:
    from ptq4snn.runtime.measure import measure_speed

    return measure_speed(run, batch, threads, steps, 0.0)


@pytest.mark.parametrize("kernels", ["numpy", "auto"])
def test_json(made: Made, kernels: str, cli: Cli) -> None:
    arguments = ["--input", str(made.input), "--batch", "1,4", "--threads", "1,2", "--json"]
    code, out, _ = cli("bench", str(made.bundle), "--kernels", kernels, *arguments)
    assert code == 0
    found = json.loads(out)
    settings = [(s["batch"], s["threads"], s["steps"]) for s in found["speed"]]
    assert settings == [(1, 1, 4), (1, 2, 4), (4, 1, 4), (4, 2, 4)]
    for s in found["speed"]:
        assert 0 < s["p50"] <= s["p90"] and s["calls"] >= 5
        assert s["samples_per_second"] == pytest.approx(1e3 * s["batch"] / s["p50"])
    memory = found["memory"]
    weights = 2 * 6 * 9 + 6 + 6 * 8 * 9 + 8 + 8 * 9 * 3 + 3
    assert memory["samples"] == 4 and memory["parameters"]["float32"] == 4 * weights
    assert memory["state"]["float32"] == 4 * (6 * 25 + 8 * 9)
    assert memory["state"]["bytes"] == 25 * 6 * 2 + 9 * 8 // 2 + 3 * 8  # 16 bits, 4 bits, sums over time


@pytest.mark.parametrize("kernels", ["numpy", "auto"])
def test_layers_against_the_spikes(made: Made, kernels: str, cli: Cli) -> None:
    """Density, multiply-adds and additions of the second convolution, from its spikes."""
    arguments = ["--input", str(made.input), "--batch", "6", "--kernels", kernels, "--json"]
    _, out, _ = cli("bench", str(made.bundle), *arguments)
    found = json.loads(out)
    op = next(o for o in found["operations"] if o["name"] == "deep" and o["macs"])
    spikes = load(made.bundle, kernels="numpy").trace(made.x)["n1"]["spikes"]  # [T, B, 6, 5, 5]
    assert op["density"] == pytest.approx(spikes.mean())
    inside = sum(0 <= 2 * o + k - 1 < 5 for o in range(3) for k in range(3)) ** 2
    assert op["macs"] == inside * 6 * 8 * 6 * 4
    assert op["synops"] == pytest.approx(op["macs"] * spikes.mean(), rel=0.2)  # borders are seen less often
    if op["path"] == "":
        assert op["rate"] is op["share_of_peak"] is None
        return
    if op["path"] == "event":
        work, peak = op["synops"], found["peaks"]["adds"]
    else:
        work, peak = op["macs"], found["peaks"]["macs"]
    assert op["rate"] == pytest.approx(1e3 * work / op["milliseconds"])
    assert op["share_of_peak"] == pytest.approx(op["rate"] / peak)


def test_plain_text(made: Made, cli: Cli) -> None:
    code, out, err = cli("bench", str(made.bundle), "--batch", "2", "--kernels", "numpy")
    assert (code, err) == (0, "")
    assert "numpy kernels, T = 4, random samples" in out
    lines = out.splitlines()
    assert {"speed", "memory", "layers"} <= set(lines)
    assert any(line.startswith("parameters") and " 3.02 KiB" in line for line in lines)  # 773 floats
    assert any(line.startswith("deep") and "project" in line and line.endswith("%") for line in lines)


def test_on_a_terminal(made: Made, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "140")
    code, out, _ = cli("bench", str(made.bundle), "--batch", "1", "--kernels", "numpy")
    assert code == 0 and "┃" in out and "samples/s" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no.ptq"], "no.ptq"),
        (["BUNDLE", "--batch", "0"], "'0' is not a whole number of 1 or more"),
        (["BUNDLE", "--threads", "1,x"], "'x' is not a whole number"),
        (["BUNDLE", "--kernels", "fast"], "no kernels 'fast'"),
        (["BUNDLE", "--input", "no.npy"], "no.npy"),
        (["BUNDLE", "--input", "SMALL"], "3, 3]"),
    ],
)
def test_mistakes_are_one_sentence(
    made: Made, arguments: list[str], message: str, cli: Cli, tmp_path: Path
) -> None:
    np.save(tmp_path / "small.npy", np.zeros((1, 2, 3, 3), np.float32))
    names = {"BUNDLE": str(made.bundle), "SMALL": str(tmp_path / "small.npy")}
    code, out, err = cli("bench", *(names.get(a, a) for a in arguments))
    assert (code, out) == (2, "") and message in err and err.count("\n") == 1


def test_without_torch(made: Made) -> None:
    done = without_torch("bench", str(made.bundle), "--batch", "1", "--kernels", "numpy", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["kernels"] == "numpy"
