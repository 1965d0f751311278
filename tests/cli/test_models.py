"""`ptq4snn models`, and the options that change a built-in model."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ptq4snn.cli import inputs
from ptq4snn.data.samples import Preprocessing
from ptq4snn.models.sew_resnet import SEWResNet
from ptq4snn.models.zoo import MODELS

Cli = Callable[..., tuple[int, str, str]]
OFFICIAL = (("conv1", "conv1.module.0"), ("bn1", "conv1.module.1"), ("conv2", "conv2.module.0"))


def test_the_table_has_a_line_for_every_model(cli: Cli) -> None:
    code, out, err = cli("models")
    header, rule, *lines = out.splitlines()
    assert (code, err) == (0, "") and set(rule) == {"-"} and len(rule) == len(header)
    assert [line.split()[0] for line in lines] == list(MODELS)
    assert header.split("  ")[0] == "name" and header.rstrip().endswith("trained %")
    cells = dict(zip(MODELS, (line.split() for line in lines), strict=True))
    assert cells["sdt-8-768-imagenet"] == [
        "sdt-8-768-imagenet", "imagenet", "3x224x224", "4", "66.3M", "36/17/8", "19.4M", "18.5G", "-",
    ]  # fmt: skip
    assert cells["default"][1:] == [
        "cifar10", "3x32x32", "4", "606k", "12/0/0", "106k", "33.3M", "89.40",
    ]  # fmt: skip
    assert {len(c) for c in cells.values()} == {9}


def test_the_table_as_json(cli: Cli) -> None:
    rows = {r["name"]: r for r in json.loads(cli("models", "--json")[1])}
    assert list(rows) == list(MODELS)
    row = rows["sdt-2-256-cifar10-dvs"]
    assert (row["input"], row["T"], row["states"], row["score"]) == ([10, 2, 64, 64], 10, 2163456, None)
    assert rows["default"]["score"] == 89.40


def test_the_table_on_a_terminal(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "160")
    code, out, _ = cli("models")
    assert code == 0 and "metaspikeformer-8-512-kd-imagenet" in out and "┃" in out


def test_one_model_in_full(cli: Cli) -> None:
    code, out, err = cli("models", "SEW_ResNet18_ImageNet")
    assert (code, err) == (0, "") and out.startswith("sew-resnet18-imagenet\n")
    for words in (
        "11,689,512",
        "20 (20 pair, 0 stream, 0 bare)",
        "2,483,712",
        "sew_resnet(depth=18)",
        "resize=256",
        "interpolation='bilinear'",
        "sew18_checkpoint_319.pth",
        "--model sew-resnet18-imagenet --checkpoint FILE",
    ):
        assert words in out, words
    assert "neuron=LIF" not in out
    assert '"LIF"' in cli("models", "sew-resnet18-cifar10", "--json")[1]
    assert "89.40 %" in cli("models", "default")[1]


@pytest.mark.parametrize("name", MODELS)
def test_every_model_can_be_shown(name: str, cli: Cli) -> None:
    assert cli("models", name)[0] == 0
    found = json.loads(cli("models", name, "--json")[1])
    assert found["name"] == name and found["preprocessing"]["interpolation"] in ("bilinear", "bicubic")


def test_an_unknown_model(cli: Cli) -> None:
    code, out, err = cli("models", "sdt-8-786-imagenet")
    assert (code, out) == (2, "") and "did you mean 'sdt-8-768-imagenet'?" in err


def test_classes_and_steps_reach_the_model(api: Any, cli: Cli, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((2, 3, 32, 32), np.float32))
    code, _, _ = cli(
        "quantize", "--model", "sdt-2-256-cifar10", "--classes", "7", "--T", "3", "--data", "x.npy"
    )
    model = api.quantize["model"]
    assert code == 0 and model.T == 3 and model.state_dict()["head.bias"].shape == (7,)


def test_only_models_of_cifar10_have_samples(api: Any, cli: Cli) -> None:
    code, _, err = cli("quantize", "--model", "sdt-2-64-nmnist")
    assert code == 2 and "error: sdt-2-64-nmnist needs samples of nmnist: give --data" in err


def official_file(file: Path) -> dict[str, Tensor]:
    """The default's weights, some by the names of the official repository, for 5 classes."""
    state = MODELS["default"].make(num_classes=5).state_dict()
    official = dict(state)
    for ours, theirs in OFFICIAL:
        for key in [k for k in state if k.startswith(f"layer1.0.{ours}.")]:
            official[key.replace(f".{ours}.", f".{theirs}.")] = official.pop(key)
    torch.save({"model": official}, file)
    return state


def test_an_official_file_is_accounted_for(api: Any, cli: Cli, tmp_path: Path) -> None:
    state = official_file(tmp_path / "c.pth")
    code, _, err = cli("quantize", "--model", "default", "--classes", "5", "--checkpoint", "c.pth")
    model = api.quantize["model"]
    assert code == 0 and isinstance(model, SEWResNet)
    assert err == f"ptq4snn: note: c.pth: {len(state)} tensors, 7 renamed from the official names\n"
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())
    code, _, err = cli("quantize", "--model", "default", "--checkpoint", "c.pth")
    assert code == 2 and "the file has 5 classes: build the model with num_classes=5 (--classes 5)" in err


def test_data_is_prepared_as_the_model_wants_it(api: Any, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def open_data(spec: str, split: str, **options: Any) -> list[Tensor]:
        asked.append({"spec": spec, **options})
        return [torch.zeros(1, 1)]

    monkeypatch.setattr(inputs, "open_data", open_data)
    assert cli("quantize", "--model", "sdt-2-64-nmnist", "--data", "folder")[0] == 0
    assert cli("quantize", "--model", "sdt-2-64-nmnist", "--data", "folder", "--T", "4")[0] == 0
    assert cli("quantize", "--model", "sdt-2-128-cifar10")[0] == 0
    assert [(a["spec"], a["name"]) for a in asked] == [
        ("folder", "nmnist"), ("folder", "nmnist"), ("default", "cifar10"),
    ]  # fmt: skip
    assert [a["preprocessing"] for a in asked] == [
        Preprocessing(size=32, steps=10), Preprocessing(size=32, steps=4), Preprocessing(),
    ]  # fmt: skip
