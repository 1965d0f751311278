"""The command line on the real pipeline: what it makes, and how it refuses."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from ptq4snn.cli import main

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """`ptq4snn ARGS` in an empty folder that holds samples.npy: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    sys.modules.pop("toy", None)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((96, 6)).astype(np.float32)
    np.save("samples.npy", x)
    np.savez("test.npz", x=x, y=rng.integers(0, 3, 96))

    def call(*args: str) -> tuple[int, str, str]:
        try:
            code = main(list(args))
        except SystemExit as stop:  # argparse's own refusals
            code = int(stop.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return call


TOY = ("--model", "toy:net", "--data", "samples.npy")


def only_inputs(folder: Path) -> bool:
    """Nothing was written, not even half."""
    return {p.name for p in folder.iterdir()} <= {
        "samples.npy",
        "test.npz",
        "bad.npy",
        "weights.pt",
        "__pycache__",
    }


def refused(result: tuple[int, str, str], *words: str) -> bool:
    """Exit code 2, one line on stderr that holds the words, no traceback."""
    code, out, err = result
    lines = [line for line in err.splitlines() if line]
    return code == 2 and out == "" and len(lines) == 1 and all(w in lines[0] for w in words)


def test_quantize_evaluate_inspect(run: Run, tmp_path: Path) -> None:
    code, out, _ = run("quantize", *TOY, "--out", "toy.ptq", "--calibration", "64")
    assert code == 0 and "toy.ptq" in out
    report = json.loads(Path("toy.ptq.report.json").read_text())
    assert report["summary"]["samples"] == 64
    code, out, _ = run("evaluate", "toy.ptq", "--model", "toy:net", "--data", "test.npz", "--json")
    assert code == 0 and json.loads(out)
    code, out, _ = run("inspect", *TOY, "--json")
    found = json.loads(out)
    assert [n["kind"] for n in found["neurons"]] == ["pair", "pair"]
    assert found["neurons"][1]["projections"] == [{"name": "b", "norms": []}]


def test_two_runs_write_the_same_bytes(run: Run) -> None:
    for name in ("one.ptq", "two.ptq"):
        assert run("quantize", *TOY, "--out", name)[0] == 0
    assert Path("one.ptq").read_bytes() == Path("two.ptq").read_bytes()


def test_json_is_the_report_and_nothing_else(run: Run) -> None:
    code, out, err = run(
        "quantize", *TOY, "--json", "--weights", "8", "--membrane", "8", "--allocation", "uniform"
    )
    assert code == 0 and err == ""
    assert json.loads(out)["summary"]["average_bits"] == 8.0


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--model", "toy:without_neurons"), ("no spiking neurons",)),
        (("--model", "toy:on_input"), ("'n'", "nothing quantizable")),
        (("--model", "toy:broken"), ("b.weight", "NaN")),
        (("--model", "toy:net", "--membrane", "1.5"), ("membrane", "2")),
        (("--model", "toy:net", "--membrane", "9"), ("membrane", "8")),
        (("--model", "toy:absent"), ("absent",)),
        (("--model", "toy:net", "--coupling", "brige"), ("bridge",)),
    ],
)
def test_bad_models_and_recipes(
    run: Run, tmp_path: Path, args: tuple[str, ...], words: tuple[str, ...]
) -> None:
    assert refused(run("quantize", *args, "--data", "samples.npy", "--out", "x.ptq"), *words)
    assert only_inputs(tmp_path)


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (np.full((8, 6), np.nan, np.float32), ("NaN",)),
        (np.full((8, 6), np.inf, np.float32), ("infinite",)),
        (np.zeros((0, 6), np.float32), ("no samples",)),
        (np.zeros((8, 5), np.float32), ("shape", "5")),
    ],
)
def test_bad_samples(run: Run, tmp_path: Path, x: np.ndarray, words: tuple[str, ...]) -> None:
    np.save("bad.npy", x)
    assert refused(run("quantize", "--model", "toy:net", "--data", "bad.npy", "--out", "x.ptq"), *words)
    assert only_inputs(tmp_path)


def test_checkpoint_that_does_not_fit(run: Run, tmp_path: Path) -> None:
    torch.save({"a.weight": torch.zeros(16, 6), "stranger": torch.zeros(1)}, "weights.pt")
    result = run("quantize", *TOY, "--checkpoint", "weights.pt", "--out", "x.ptq")
    assert refused(result, "weights.pt", "stranger") and "b.weight" in result[2]
    assert only_inputs(tmp_path)


def test_a_pickle_that_is_not_weights_only(run: Run, tmp_path: Path) -> None:
    torch.save({"a.weight": Path("executed")}, "weights.pt")  # a foreign class inside
    result = run("quantize", *TOY, "--checkpoint", "weights.pt", "--out", "x.ptq")
    assert refused(result, "weights.pt") and only_inputs(tmp_path)


def test_bundles_that_are_not_what_they_should_be(run: Run) -> None:
    assert run("quantize", *TOY, "--out", "toy.ptq", "--allocation", "uniform")[0] == 0
    data = Path("toy.ptq").read_bytes()
    test = ("--data", "test.npz")
    assert refused(run("evaluate", "toy.ptq", "--model", "toy:wider", *test), "another model", "'a'")
    Path("cut.ptq").write_bytes(data[:-7])
    assert refused(run("evaluate", "cut.ptq", "--model", "toy:net", *test), "cut.ptq", "truncated")
    flipped = bytearray(data)
    flipped[-3] ^= 4
    Path("altered.ptq").write_bytes(bytes(flipped))
    assert refused(run("evaluate", "altered.ptq", "--model", "toy:net", *test), "altered.ptq", "altered")
    newer = data.replace(b'"version":"3"', b'"version":"9"')
    assert newer != data
    Path("newer.ptq").write_bytes(newer)
    assert refused(run("evaluate", "newer.ptq", "--model", "toy:net", *test), "newer.ptq", "version", "9")
    assert refused(run("evaluate", "absent.ptq", "--model", "toy:net", *test), "absent.ptq")


def test_a_silent_network_is_named(run: Run) -> None:
    code, _, err = run("quantize", "--model", "toy:silent", "--data", "samples.npy", "--out", "x.ptq")
    assert code == 0 and "'n2'" in err and "silent" in err


def test_float_arithmetic_cannot_be_saved(run: Run, tmp_path: Path) -> None:
    Path("samples.toml").write_text('arithmetic = "float"\n')
    assert refused(run("quantize", *TOY, "--recipe", "samples.toml", "--out", "x.ptq"), "arithmetic", "saved")
