"""`ptq4snn evaluate` with the real evaluation: what it prints, what it reads, what it refuses."""

from __future__ import annotations

import base64
import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cli.nets import NET as SMALL
from schema.walk import differences

import ptq4snn
from ptq4snn.cli.evaluate import rate, sentence
from ptq4snn.schema.report_types import Report
from ptq4snn.schema.score_types import Limited

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
def fractional(): return [(torch.eye(7), torch.arange(7) + 0.5)]

def broken():
    yield torch.eye(7), torch.arange(7)
    raise ValueError("the disk\\nis gone")

class Broken(torch.utils.data.Dataset):
    def __len__(self): return 9

    def __getitem__(self, i):
        if i == 4: raise KeyError("four")
        return torch.eye(7)[i % 7], i % 7

class BrokenMaps(Maps):
    def __getitem__(self, indices):
        if 2 in indices: raise ValueError("no map")
        return super().__getitem__(indices)

def broken_samples(): return Broken()
def broken_maps(): return SampleBatches(BrokenMaps(), 2)
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


def test_fractional_labels_are_refused(cli: Cli, net: str) -> None:
    code, out, err = cli("evaluate", "--float", "--model", f"{net}:same", "--data", f"{net}:fractional")
    assert (code, out) == (2, "") and err.count("\n") == 1
    assert "a label is 0.5: labels are whole numbers" in err


@pytest.mark.parametrize(
    ("data", "workers", "said"),
    [
        ("broken", "0", "broken raised ValueError at batch 1: the disk is gone"),
        ("broken_samples", "0", "broken_samples raised KeyError at sample 4: 'four'"),
        ("broken_samples", "1", "broken_samples raised KeyError at sample 4: 'four'"),
        ("broken_maps", "0", "broken_maps raised ValueError at one of 2 samples, 2 to 3: no map"),
    ],
)
def test_what_the_users_data_raise_is_one_sentence(
    cli: Cli, net: str, data: str, workers: str, said: str
) -> None:
    argv = ("--float", "--model", f"{net}:same", "--data", f"{net}:{data}", "--workers", workers)
    code, out, err = cli("evaluate", *argv)
    assert (code, out, err) == (2, "", f"ptq4snn: error: {net}:{said}\n")


def test_a_fault_that_is_not_of_the_users_data_stays_a_traceback(
    cli: Cli, net: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fault(*_: Any) -> None:
        raise ValueError("a fault of ours")

    monkeypatch.setattr("ptq4snn.evaluation.accuracy.Accuracy.add", fault)
    with pytest.raises(ValueError, match="a fault of ours"):
        cli("evaluate", "--float", "--model", f"{net}:same", "--data", f"{net}:broken")


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
    result: Any = {
        "task": "classification",
        "samples": 10000,
        "accuracy": 85.384,
        "accuracy_top5": 99.21,
    }
    result["throughput"] = speed
    assert sentence(result, None) == "85.38 % (Acc@5 99.2 %) of 10,000 samples, 812 samples/s"
    unlabelled: Any = {"task": "segmentation", "samples": 3, "mIoU": None, "throughput": speed}
    assert sentence(unlabelled, 3) == "accuracy unknown, the 3 images have no labels"
    assert [rate(v) for v in (12345.6, 10.0, 9.96, 0.123)] == ["12,346", "10", "10", "0.12"]


PIXELS = """
class Painter(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.n1 = nn.Conv2d(3, 6, 3, padding=1), LIF()
        self.b, self.n2 = nn.Conv2d(6, 6, 3, padding=1), LIF()
        self.head = nn.Conv2d(6, 3, 1)
        g = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(torch.randn(p.shape, generator=g))

    def forward(self, x):
        y = self.n1(self.a(x).expand(4, -1, -1, -1, -1))
        y = self.n2(self.b(y.flatten(0, 1)).unflatten(0, (4, -1)))
        return self.head(y.flatten(0, 1)).unflatten(0, (4, -1)).mean(0)

def painter(): return Painter().eval()
def vectors(split): return drawn((30, 6), (30,))
def images(split): return drawn((6, 3, 8, 6), (6, 8, 6))

def drawn(x, y):
    g = torch.Generator().manual_seed(1)
    return [(torch.randn(x, generator=g), torch.randint(0, 3, y, generator=g))]
"""


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[str, ...]]:
    """A bundle m.ptq of one of two networks, and the options that evaluate it."""
    (tmp_path / "net_for_recording.py").write_text(SMALL + PIXELS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "net_for_recording", raising=False)

    def make(net: str, data: str, size: tuple[int, ...]) -> tuple[str, ...]:
        import net_for_recording as nets  # type: ignore[import-not-found]

        x = torch.randn(32, *size, generator=torch.Generator().manual_seed(2))
        q = ptq4snn.quantize(getattr(nets, net)(), x, "fast+uniform+squared_error+w4m2", holdout=16)
        q.save("m.ptq", page=True)
        names = (f"net_for_recording:{n}" for n in (net, data))
        return "evaluate", "m.ptq", "--model", next(names), "--data", next(names)

    return make


def recorded() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path("m.ptq.report.json").read_text())
    return found


def test_results_are_recorded(cli: Cli, made: Callable[..., tuple[str, ...]]) -> None:
    argv = made("net", "vectors", (6,))
    before = recorded()
    code, out, err = cli(*argv)
    assert (code, err) == (0, "")
    assert out.splitlines()[1:] == ["recorded in m.ptq.report.json and m.ptq.report.html"]
    measured = json.loads(cli(*argv, "--float", "--json")[1])  # nothing but JSON
    (entry,) = recorded()["evaluations"]
    wanted = {"data": argv[-1], "samples": 30, "limit": None, "task": "classification"}
    assert {k: entry[k] for k in wanted} == wanted
    for side, name in (("float", "float"), ("quantized", "m.ptq")):
        assert entry[side] == {k: measured[name][k] for k in ("accuracy", "accuracy_top5")}
    assert entry["quantized"]["accuracy"] != entry["float"]["accuracy"]
    cli(*argv, "--limit", "7")
    assert differences(recorded(), Report) == []
    assert [differences(r, Limited) for r in measured.values()] == [[], []]
    old, new = recorded()["evaluations"]
    assert old == entry and (new["limit"], new["samples"], new["float"]) == (7, 7, None)
    cli(*argv)  # the same data and limit: in place of the first
    assert [e["limit"] for e in recorded()["evaluations"]] == [7, None]
    assert {k: v for k, v in recorded().items() if k != "evaluations"} == {
        k: v for k, v in before.items() if k != "evaluations"
    }
    assert not list(Path().glob(".m.ptq*"))


def test_float_alone_is_not_recorded(cli: Cli, made: Callable[..., tuple[str, ...]]) -> None:
    argv = made("net", "vectors", (6,))
    assert cli("evaluate", "--float", *argv[2:])[0] == 0
    assert recorded()["evaluations"] == []


@pytest.mark.parametrize(
    "text", ["{}", "[1]", "{", '{"summary": {}, "figures": [], "evaluations": []}', None]
)
def test_a_report_that_is_none(cli: Cli, made: Callable[..., tuple[str, ...]], text: str | None) -> None:
    argv, file = made("net", "vectors", (6,)), Path("m.ptq.report.json")
    file.unlink()
    if text is not None:
        file.write_text(text)
    code, out, err = cli(*argv)
    assert code == 0 and out.count("\n") == 1 and out.startswith("m.ptq: ")
    assert err.count("\n") == (0 if text is None else 1)
    assert text is None or (file.read_text() == text and "the result was not recorded" in err)


def test_a_report_that_cannot_be_written(
    cli: Cli, made: Callable[..., tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    argv, before = made("net", "vectors", (6,)), Path("m.ptq.report.json").read_bytes()

    def full(self: Path, target: Any) -> Path:
        raise OSError(28, "No space left on device", str(target))

    monkeypatch.setattr(Path, "replace", full)
    code, out, err = cli(*argv)
    assert code == 0 and out.count("\n") == 1
    assert err.count("\n") == 1 and "No space left on device" in err
    assert Path("m.ptq.report.json").read_bytes() == before and not list(Path().glob(".m.ptq*"))


def test_labels_of_a_segmentation(cli: Cli, made: Callable[..., tuple[str, ...]]) -> None:
    argv = made("painter", "images", (3, 8, 6))
    before = recorded()["figures"]["segmentation"]
    assert all(r["label"] is None and r["float"] for r in before["rows"])
    assert cli(*argv, "--float")[0] == 0
    report = recorded()
    assert differences(report, Report) == [] and report["bundle"]
    (entry,) = report["evaluations"]
    assert entry["task"] == "segmentation" and set(entry["quantized"]) >= {"aAcc", "mIoU", "mAcc"}
    rows = report["figures"]["segmentation"]["rows"]
    assert len(rows) == 4 and all(r["label"] and r["float"] and r["differs"] is not None for r in rows)
    code, _, err = cli(*argv, "--limit", "2")
    assert (code, err) == (0, "")  # the page can tell what is not known
    rows = recorded()["figures"]["segmentation"]["rows"]
    assert len(rows) == 4 and all(r["label"] and r["float"] is r["differs"] is None for r in rows)


def test_the_pictures_are_those_of_the_data(cli: Cli, made: Callable[..., tuple[str, ...]]) -> None:
    images = pytest.importorskip("PIL.Image")
    argv = made("painter", "images", (3, 8, 6))
    cli(*argv)
    import net_for_recording as nets

    ((x, y),) = nets.images("test")
    figure = recorded()["figures"]["segmentation"]
    colours = np.array(figure["palette"])
    with torch.no_grad():
        found = ptq4snn.load("m.ptq", nets.painter())(x).argmax(1)
    for i, row in enumerate(figure["rows"]):
        for name, classes in (("label", y), ("quantized", found)):
            picture = images.open(io.BytesIO(base64.b64decode(row[name].partition(",")[2])))
            assert np.array_equal(np.asarray(picture), colours[classes[i].numpy()])


def test_the_page_is_written_again_if_it_is_there(cli: Cli, made: Callable[..., tuple[str, ...]]) -> None:
    argv, page = made("net", "vectors", (6,)), Path("m.ptq.report.html")
    page.write_text("old")
    assert cli(*argv)[0] == 0
    assert "net_for_recording:vectors" in page.read_text(encoding="utf-8")
    page.unlink()
    assert cli(*argv)[0] == 0 and not page.exists()


def test_a_report_that_somebody_edited(cli: Cli, made: Callable[..., tuple[str, ...]]) -> None:
    argv = made("net", "vectors", (6,))
    Path("m.ptq.report.json").write_text(json.dumps({**recorded(), "neurons": 3, "summary": []}))
    code, out, err = cli(*argv)
    assert code == 0 and out.count("\n") == 1 and err.count("\n") == 1 and "not whole" in err
