"""`ptq4snn quantize`: what it passes on, what it writes, and that it writes all or nothing."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from ptq4snn import locks
from ptq4snn.errors import DataError, GoalNotReached
from ptq4snn.progress import Lines
from ptq4snn.recipe import Recipe

Cli = Callable[..., tuple[int, str, str]]


def left_over(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def one_sentence(err: str) -> str:
    assert err.startswith("ptq4snn: error: ") and err.count("\n") == 1 and "Traceback" not in err
    return err


def test_default_model_and_data(api: Any, cli: Cli, tmp_path: Path) -> None:
    code, out, err = cli("quantize")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "SUMMARY",
        "wrote model.ptq (6 bytes)",
        "wrote model.ptq.report.json (2 bytes)",
    ]
    assert left_over(tmp_path) == ["model.ptq", "model.ptq.report.json"]
    assert api.quantize["recipe"] == Recipe() and api.quantize["batch_axis"] == 0
    assert sum(len(b) for b in api.quantize["samples"]) == 1024


def test_options_reach_the_recipe(api: Any, cli: Cli) -> None:
    code, _, _ = cli(
        "quantize",
        "--weights",
        "3",
        "--membrane",
        "3.5",
        "--coupling",
        "flowq",
        "--allocation",
        "mpba",
        "--calibration",
        "64",
        "--seed",
        "5",
        "--device",
        "cpu",
    )
    assert code == 0
    expected = Recipe(weights=3, membrane=3.5, coupling="flowq", allocation="mpba", calibration=64, seed=5)
    assert api.quantize["recipe"] == expected and api.quantize["device"] == torch.device("cpu")


def test_options_change_a_toml_recipe(api: Any, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text("weights = 6\nmembrane = 3\n[overrides.fc]\nweights = 8\n")
    assert cli("quantize", "--recipe", "r.toml", "--membrane", "2.5")[0] == 0
    r = api.quantize["recipe"]
    assert (r.weights, r.membrane, r.override("fc").weights) == (6, 2.5, 8)


def test_own_model_checkpoint_and_data(api: Any, cli: Cli, mynet: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((2, 5, 3), np.float32))
    code, _, err = cli(
        "quantize",
        "--model",
        f"{mynet}:build",
        "--checkpoint",
        "mynet.pt",
        "--data",
        "x.npy",
        "--batch-axis",
        "1",
        "--out",
        "o.ptq",
    )
    assert (code, err) == (0, "")
    weight = torch.load(tmp_path / "mynet.pt", weights_only=True)["weight"]
    assert torch.equal(api.quantize["model"].weight, weight) and not api.quantize["model"].training
    assert [tuple(b.shape) for b in api.quantize["samples"]] == [(2, 5, 3)]
    assert api.quantize["batch_axis"] == 1 and (tmp_path / "o.ptq.report.json").exists()


def test_json_is_all_there_is_on_stdout(api: Any, cli: Cli) -> None:
    code, out, err = cli("quantize", "--json")
    assert (code, err) == (0, "") and json.loads(out) == {"average_bits": 4.0, "accuracy": None}


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--membrane", "1.9"], "membrane must be a number from 2 to 8"),
        (["--membrane", "9"], "membrane must be a number from 2 to 8"),
        (["--weights", "1"], "weights must be"),
        (["--weights", "four"], "invalid float value"),
        (["--coupling", "brige"], "invalid choice: 'brige'"),
        (["--couplin", "bridge"], "unrecognized arguments"),
        (["--calibration", "0"], "calibration must be an integer of at least 1"),
        (["--recipe", "w4m9"], "is not a recipe"),
        (["--recipe", "no.toml"], "cannot read the recipe no.toml"),
        (["--model", "defautl"], "did you mean 'default'?"),
        (["--model", "nothing.like.it:f", "--data", "default"], "cannot import nothing.like.it"),
        (["--model", "mynet_for_cli:wrong", "--data", "default"], "returned a str: return a torch.nn.Module"),
        (["--model", "mynet_for_cli:fails", "--data", "default"], "raised RuntimeError: no such file or so"),
        (["--model", "mynet_for_cli:build"], "needs samples: give --data"),
        (
            ["--model", "mynet_for_cli:build", "--data", "default", "--checkpoint", "no.pt"],
            "no checkpoint file no.pt",
        ),
        (["--checkpoint", "mynet.pt"], "does not fit SEWResNet: missing conv1.weight"),
        (["--model", "mynet_for_cli:build", "--T", "2", "--data", "default"], "are for built-in models"),
        (["--classes", "0"], "is not a whole number of 1 or more"),
        (["--data", "no.npy"], "there is no data file no.npy"),
        (["--out", "."], "is a folder"),
        (["--out", "no/model.ptq"], "there is no folder no"),
        (["--device", "abacus"], "--device abacus cannot be used here"),
        (["--device", "meta"], "--device meta cannot be used here"),
        (["--weights", "32", "--out", "m.ptq"], "cannot be saved"),
        (["--agreement", "101"], "agreement must be a number from 1 to 100"),
        (["--agreement", "much"], "invalid float value"),
        (["--max-drop", "-1"], "max_drop must be a number from 0 to 100"),
        (["--max-drop", "1", "--agreement", "90"], "a search has one goal"),
        (["--agreement", "90", "--weights", "4"], "--weights is what a goal"),
        (["--recipe", "max-drop-1", "--membrane", "4"], "--membrane is what a goal"),
        (["--agreement", "90", "--recipe", "w4m32"], "look for integer weights and states"),
    ],
)
def test_bad_input_is_one_sentence_and_code_2(
    api: Any, cli: Cli, mynet: str, tmp_path: Path, argv: list[str], message: str
) -> None:
    before = left_over(tmp_path)
    code, out, err = cli("quantize", *argv)
    assert (code, out) == (2, "")
    assert message in one_sentence(err)
    assert api.quantize == {} and [n for n in left_over(tmp_path) if n != "__pycache__"] == before


def test_goals_reach_the_recipe(api: Any, cli: Cli) -> None:
    assert cli("quantize", "--agreement", "97", "--work", "kept")[0] == 0
    assert api.quantize["recipe"] == Recipe(agreement=97) and api.quantize["work"] == "kept"
    assert isinstance(api.quantize["progress"], Lines), "steps are shown where there are no bars, too"
    assert cli("quantize", "--recipe", "fast", "--max-drop", "0.5")[0] == 0
    assert api.quantize["recipe"] == Recipe(max_drop=0.5, rounding="nearest")
    assert cli("quantize")[0] == 0 and not isinstance(api.quantize["progress"], Lines)


def test_a_goal_that_is_not_reached_writes_nothing(api: Any, cli: Cli, tmp_path: Path) -> None:
    api.raises = GoalNotReached("no model is known to keep an agreement of 99 %: the best found has 97.00 %")
    code, out, err = cli("quantize", "--agreement", "99")
    assert (
        (code, out) == (2, "")
        and "no model is known to keep" in one_sentence(err)
        and left_over(tmp_path) == []
    )


def test_float_weights_write_nothing_and_say_so(api: Any, cli: Cli, tmp_path: Path) -> None:
    code, out, _ = cli("quantize", "--weights", "32")
    assert code == 0 and "nothing written" in out and left_over(tmp_path) == []


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (DataError("sample 3 holds\nNaN"), 2, "ptq4snn: error: sample 3 holds NaN\n"),
        (FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "/x/y"), 2, "directory: /x/y"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_what_the_pipeline_raises(
    api: Any, cli: Cli, tmp_path: Path, error: BaseException, code: int, message: str
) -> None:
    api.raises = error
    got, out, err = cli("quantize")
    assert (got, out) == (code, "") and message in err and err.count("\n") == 1
    assert left_over(tmp_path) == []


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), KeyboardInterrupt()])
def test_a_save_that_fails_keeps_the_old_bundle(
    api: Any, cli: Cli, tmp_path: Path, error: BaseException
) -> None:
    def fail(path: Path) -> None:
        assert path.exists()  # half-written by now
        raise error

    (tmp_path / "model.ptq").write_bytes(b"OLD")
    api.save = fail
    code, _, _ = cli("quantize")
    assert code in (2, 130)
    assert left_over(tmp_path) == ["model.ptq"] and (tmp_path / "model.ptq").read_bytes() == b"OLD"


def test_a_bug_is_not_hidden(api: Any, cli: Cli) -> None:
    api.raises = ZeroDivisionError("a bug")
    with pytest.raises(ZeroDivisionError):
        cli("quantize")


def test_warnings_are_one_line(api: Any, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    from ptq4snn.models import zoo

    entry = zoo.Entry(lambda **settings: nn.Linear(1, 1), {}, "cifar10", (3, 32, 32))
    monkeypatch.setitem(zoo.MODELS, "small", entry)
    code, _, err = cli("quantize", "--model", "Small")
    assert code == 0 and err == "ptq4snn: warning: Small has random weights: give --checkpoint\n"


def test_a_model_without_a_program_is_told(api: Any, cli: Cli) -> None:
    api.not_lowered = "softmax in 'head' is not an integer operation"
    code, out, _ = cli("quantize")
    assert code == 0 and "cannot be run without torch: softmax in 'head'" in out


def test_two_runs_on_one_out(api: Any, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "PATIENCE", 0.1)
    with locks.alone(tmp_path / "m.ptq", "m.ptq"):
        code, out, err = cli("quantize", "--out", "m.ptq")
    assert (code, out) == (2, "") and api.quantize == {}
    assert "--out m.ptq is in use by another run (process " in one_sentence(err)
    assert cli("quantize", "--out", "m.ptq")[0] == 0 and not list(tmp_path.glob(".*"))
