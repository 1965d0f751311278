"""`ptq4snn train`: files, figures and refusals. The training itself is tested in tests/training."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open

from ptq4snn import locks
from ptq4snn.cli import main
from ptq4snn.errors import DataError

RECIPE = """
model = "{model}"
batch_size = 8
validation = 8
augmentation = "none"

[[stages]]
kind = "rate"
epochs = 2
learning_rate = 1e-2

[[stages]]
epochs = 1
learning_rate = 1e-2
"""

MODULE = """
import torch
from ptq4snn.models.sew_resnet import SEWResNet

def build(T=2):
    return SEWResNet(widths=(4,), blocks=(1,), strides=(2,), stem=4, num_classes=2, T=T)

def tied(T=2):
    model = build(T)
    model.again = model.conv1
    return model

class Pairs:
    def __len__(self):
        return 40

    def __getitem__(self, i):
        return torch.full((3, 8, 8), float(i % 2)), i % 2

def pairs(split):
    return Pairs()

def strings(split):
    return ["a", "b", "c"]
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model, a recipe and 48 samples of two classes."""
    (tmp_path / "trainnet.py").write_text(MODULE)
    (tmp_path / "small.toml").write_text(RECIPE.format(model="trainnet:build"))
    y = np.arange(48) % 2
    x = np.random.default_rng(0).normal(size=(48, 3, 8, 8)).astype(np.float32)
    x[y == 1, 0] += 2.0
    np.savez(tmp_path / "data.npz", x=x, y=y)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "trainnet", raising=False)
    return tmp_path


def test_weights_card_and_figures(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--data", "data.npz", "--test", "data.npz", "--out", "run", "--license", "MIT"]
    assert main(["train", "small.toml", *words]) == 0
    out = capsys.readouterr().out
    assert "stage 2 spiking, epoch 1/1" in out and "on 48 test samples" in out
    with safe_open(place / "run" / "trainnet.build.safetensors", "pt") as file:
        about = file.metadata()
        assert "layer1.0.conv1.weight" in list(file.keys())
    assert json.loads(about["training"])["result"]["samples"] == 48
    card = (place / "run" / "trainnet.build.md").read_text()
    for part in ("ptq4snn train small.toml --data DATA", "wall time", "| licence | MIT |", "| rate | 2 |"):
        assert part in card


def test_started_again_it_is_finished_and_says_the_same(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "small.toml", "--data", "data.npz", "--out", "run", "--json"]
    assert main(words) == 0
    first = json.loads(capsys.readouterr().out)
    assert main(words) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["epochs"] == first["epochs"] and again["test"]["accuracy"] == first["test"]["accuracy"]


def test_evaluate_finds_the_accuracy_of_the_card(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "small.toml", "--data", "data.npz", "--out", "run", "--json"]) == 0
    trained = json.loads(capsys.readouterr().out)
    words = ["--model", "trainnet:build", "--checkpoint", trained["weights"], "--data", "data.npz"]
    assert main(["evaluate", "--float", "--json", *words]) == 0
    found = json.loads(capsys.readouterr().out)["float"]
    assert found["accuracy"] == trained["test"]["accuracy"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nonet", "--data", "data.npz"], "there is no model 'nonet'"),
        (["small.toml", "--data", "none.npz"], "none.npz"),
        (["small.toml", "--data", "data.npz", "--out", "data.npz"], "--out data.npz is a file"),
        (["small.toml"], "--data"),
        (["small.toml", "--data", "trainnet:strings"], "whose samples are not pairs"),
        (["vgg8-32-cifar10", "--data", "data.npz", "--out", "run"], "48 training samples are too few"),
    ],
)
def test_mistakes(place: Path, capsys: pytest.CaptureFixture[str], words: list[Any], message: str) -> None:
    try:
        code = main(["train", *words])
    except SystemExit as e:
        code = int(str(e.code))
    assert code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("wrong", ["labels", "nan"])
def test_nothing_half_made_stays(place: Path, capsys: pytest.CaptureFixture[str], wrong: str) -> None:
    """Labels that are refused, and NaN in samples, behind those that are looked at first."""
    x, y = np.zeros((48, 3, 8, 8), np.float32), np.arange(48) % 2
    if wrong == "labels":
        y[2:] = 7
    else:
        x[2:] = np.nan
    np.savez(place / "wrong.npz", x=x, y=y)
    os.utime(place / "wrong.npz", (1e9, 1e9))  # old enough that its hash is kept
    before = {p for p in place.iterdir() if p.name != "__pycache__"}
    assert main(["train", "small.toml", "--data", "wrong.npz", "--out", "runs/new"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert {p for p in place.iterdir() if p.name != "__pycache__"} == before
    (place / "own").mkdir()
    (place / "own" / "note.txt").write_text("mine")
    assert main(["train", "small.toml", "--data", "wrong.npz", "--out", "own"]) == 2
    assert [p.name for p in (place / "own").iterdir()] == ["note.txt"]


def test_a_run_that_can_go_on_is_kept(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise DataError("the test samples are gone")

    monkeypatch.setattr("ptq4snn.evaluate", fails)
    assert main(["train", "small.toml", "--data", "data.npz", "--out", "run"]) == 2
    assert (place / "run" / "resume.pt").is_file()


def test_no_random_state_is_touched(place: Path) -> None:
    torch.manual_seed(5)
    state = torch.random.get_rng_state()
    assert main(["train", "small.toml", "--data", "data.npz", "--out", "run", "--json"]) == 0
    assert torch.equal(torch.random.get_rng_state(), state)


def test_without_test_data_the_score_is_called_what_it_is(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "small.toml", "--data", "data.npz", "--out", "run"]) == 0
    assert "48 of the training samples themselves" in capsys.readouterr().out
    assert "licence" not in (place / "run" / "trainnet.build.md").read_text()


def test_a_map_style_data_set_and_tied_weights(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "tied.toml").write_text(RECIPE.format(model="trainnet:tied"))
    assert main(["train", "tied.toml", "--data", "trainnet:pairs", "--out", "run"]) == 0
    assert "on 40 test samples" in capsys.readouterr().out


def test_the_weights_are_the_same_bytes_again(place: Path) -> None:
    for out in ("a", "b"):
        assert main(["train", "small.toml", "--data", "data.npz", "--out", out, "--json"]) == 0
    first, second = (place / out / "trainnet.build.safetensors" for out in ("a", "b"))
    assert first.read_bytes() == second.read_bytes()


def test_other_data_do_not_go_on(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with np.load("data.npz") as arrays:
        np.savez("other.npz", x=arrays["x"] + 1.0, y=arrays["y"])
    assert main(["train", "small.toml", "--data", "data.npz", "--out", "run", "--json"]) == 0
    assert main(["train", "small.toml", "--data", "other.npz", "--out", "run", "--json"]) == 2
    assert "of another recipe, model, start or data set" in capsys.readouterr().err


def test_a_model_name_is_forgiven_its_hyphens(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It has its own recipe then, with batches of 25 and 50 held out."""
    assert main(["train", "SDT_2_64_NMNIST", "--data", "nmnist:none", "--out", "run"]) == 2
    assert "there is no data 'none'" in capsys.readouterr().err
    np.savez("data.npz", x=np.zeros((48, 10, 2, 32, 32), np.float32), y=np.arange(48) % 10)
    assert main(["train", "Sdt-2_64-Nmnist", "--data", "data.npz", "--out", "run"]) == 2
    assert "too few for batches of 25 besides 50" in capsys.readouterr().err


def test_two_runs_on_one_out(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "PATIENCE", 0.1)
    with locks.alone(place / "run", "run", folder=True):
        assert main(["train", "small.toml", "--data", "data.npz", "--out", "run"]) == 2
    err = capsys.readouterr().err
    assert "--out run is in use by another run (process " in err and err.count("\n") == 1
