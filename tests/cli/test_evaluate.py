"""`ptq4snn evaluate` with the real evaluation: what it prints, what it reads, what it refuses."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ptq4snn
from ptq4snn.cli.evaluate import rate, sentence

Cli = Callable[..., tuple[int, str, str]]

NET = """
import torch
from torch import nn
from ptq4snn.data.samples import VOID, SampleBatches

def same(): return nn.Identity()

class Maps:
    classes = 2

    def __len__(self): return 5

    def __getitem__(self, indices):
        if any(i >= 3 for i in indices): raise AssertionError("read beyond the limit")
        x = torch.zeros(len(indices), 4, 2, 2)
        x[:, 0] = 1.0  # predicts class 0 everywhere, but 3, which is none of the two, in a corner
        x[:, 3, 0, 0] = 2.0
        return x, torch.tensor([[[0, 0], [1, VOID]]] * len(indices))

def maps(): return SampleBatches(Maps(), 2)
def whole(): return SampleBatches(Maps(), 2, indices=[0, 1, 2])
def pairs(): return [(torch.eye(7), torch.tensor([0, 1, 2, 3, 0, 0, 0]))] * 2
"""
SPEED = r"[\d,.e-]+"


@pytest.fixture
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "net_for_evaluate.py").write_text(NET)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "net_for_evaluate", raising=False)
    return "net_for_evaluate"


def test_classification(cli: Cli, net: str) -> None:
    rows = np.arange(24)
    x = -((np.arange(8) - rows[:, None]) % 8)  # the best class of row r is r, the next r + 1, ...
    place = np.array([0, 0, 0, 4, 5, 7, 1, 0] * 3)  # of the label among them
    np.savez("d.npz", x=x, y=(rows + place) % 8)
    code, out, err = cli(
        "evaluate", "--float", "--model", f"{net}:same", "--data", "d.npz", "--batch-size", "5"
    )
    assert (code, err) == (0, "")
    assert re.fullmatch(rf"float: 50\.00 % \(Acc@5 75\.0 %\) of 24 samples, {SPEED} samples/s\n", out)


def test_limit_cuts_a_batch_and_says_so(cli: Cli, net: str) -> None:
    argv = ("evaluate", "--float", "--model", f"{net}:same", "--data", f"{net}:pairs")
    code, out, _ = cli(*argv, "--limit", "5")
    assert code == 0 and re.match(r"float: 80\.00 % .* of 5 samples \(--limit\), ", out)
    assert re.match(r"float: 57\.14 % .* of 14 samples, ", cli(*argv, "--limit", "99")[1])
    found = json.loads(cli(*argv, "--limit", "8", "--json")[1])["float"]
    assert (found["samples"], found["limit"], found["accuracy"]) == (8, 8, 62.5)


def test_segmentation(cli: Cli, net: str) -> None:
    argv = ("evaluate", "--float", "--model", f"{net}:same", "--data", f"{net}:whole")
    code, out, err = cli(*argv)
    assert (code, err) == (0, "")  # of three pixels one is right; IoU 1/3 and 0, recall 1/2 and 0
    scores = r"aAcc 33\.33 % mIoU 16\.67 % mAcc 25\.00 %"
    assert re.fullmatch(rf"float: {scores} of 3 images, {SPEED} images/s\n", out)
    found: dict[str, Any] = json.loads(cli(*argv, "--json")[1])["float"]
    assert (found["samples"], found["classes"], found["pixels"], "limit" in found) == (3, 2, 9, False)
    assert found["class_iou"] == pytest.approx([100 / 3, 0]) and found["class_accuracy"] == [50.0, 0.0]
    assert all(v > 0 for v in found["throughput"].values())


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_data_set_is_not_read_beyond_the_limit(cli: Cli, net: str, workers: str) -> None:
    argv = ("evaluate", "--float", "--model", f"{net}:same", "--data", f"{net}:maps", "--workers", workers)
    code, out, _ = cli(*argv, "--limit", "3")
    assert code == 0 and "of 3 images (--limit)" in out


def test_the_options_reach_the_data(cli: Cli, net: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def evaluate(model: Any, batches: Any, **options: Any) -> dict[str, Any]:
        seen.update(size=batches.batch_size, workers=batches.workers, length=len(batches), **options)
        return {"task": "classification", "samples": 6, "accuracy": None}

    monkeypatch.setitem(ptq4snn.__dict__, "evaluate", evaluate)
    np.save("x.npy", np.zeros((20, 3), np.float32))
    argv = ("evaluate", "--float", "--model", f"{net}:same", "--data", "x.npy")
    assert cli(*argv)[1] == "float: accuracy unknown, the 6 samples have no labels\n"
    assert (seen["size"], seen["workers"], seen["length"], seen["limit"]) == (64, 0, 1, None)
    cli(*argv, "--batch-size", "4", "--workers", "2", "--limit", "9")
    assert (seen["size"], seen["workers"], seen["length"], seen["limit"]) == (4, 2, 3, 9)


@pytest.mark.parametrize(
    "option",
    [("--limit", "0"), ("--batch-size", "0"), ("--workers", "-1"), ("--limit", "1.5"), ("--limit", "²")],
)
def test_bad_numbers(cli: Cli, net: str, option: tuple[str, str]) -> None:
    code, out, err = cli("evaluate", "--float", *option)
    assert (code, out) == (2, "") and err.startswith(f"ptq4snn: error: argument {option[0]}: ")
    assert err.count("\n") == 1


def test_sentences() -> None:
    speed = {"samples_per_second": 812.4, "model_samples_per_second": 900.0}
    result: dict[str, Any] = {
        "task": "classification",
        "samples": 10000,
        "accuracy": 85.384,
        "accuracy_top5": 99.21,
    }
    result["throughput"] = speed
    assert sentence(result, None) == "85.38 % (Acc@5 99.2 %) of 10,000 samples, 812 samples/s"
    unlabelled = {"task": "segmentation", "samples": 3, "mIoU": None, "throughput": speed}
    assert sentence(unlabelled, 3) == "accuracy unknown, the 3 images have no labels"
    assert [rate(v) for v in (12345.6, 10.0, 9.96, 0.123)] == ["12,346", "10", "10", "0.12"]
