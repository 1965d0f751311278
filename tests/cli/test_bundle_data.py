"""`evaluate` and `run` on a bundle: the same data, no model where none is needed, and never a stranger's
weights or report."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from cli.bundles import Frames, Made, make, without_torch
from safetensors.numpy import save_file
from torch import nn

import ptq4snn
from ptq4snn.bundle.format import read_bundle, write_bundle
from ptq4snn.discovery.model_digest import weights_digest
from ptq4snn.errors import BundleError

Cli = Callable[..., tuple[int, str, str]]

OWN = """
import numpy as np, torch
from cli.bundles import Frames

def build(): return Frames(True).eval()

def random():
    model = build()
    for p in model.parameters(): p.data.normal_()
    return model

def tensor(): return torch.from_numpy(np.load("x.npy"))
def pairs(split): return [(tensor()[:4], torch.tensor([0, 1, 2, 0])), (tensor()[4:], torch.tensor([1, 2]))]
def named(split): return [{"image": x, "label": y, "name": ["a"] * len(y)} for x, y in pairs(split)]
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(tmp_path_factory.mktemp("still"), still=True)


@pytest.fixture
def made(bundle: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """The bundle with its report as m.ptq in the working folder, files of its samples and a module."""
    bundle.q.save(tmp_path / "m.ptq")
    x, y = bundle.x, np.array([0, 1, 2, 0, 1, 2])
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "xy.npz", x=x, y=y, more=y)
    np.savez(tmp_path / "one.npz", images=x, y=y)
    save_file({"x": x, "y": y}, tmp_path / "xy.safetensors")
    (tmp_path / "net_for_bundles.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "net_for_bundles", raising=False)
    return bundle


FILES = ["x.npy", "xy.npz", "one.npz", "xy.safetensors"]
FACTORIES = ["net_for_bundles:tensor", "net_for_bundles:pairs", "net_for_bundles:named"]
LABELLED = ["xy.npz", "one.npz", "xy.safetensors", "net_for_bundles:pairs", "net_for_bundles:named"]


@pytest.mark.parametrize("data", FILES + FACTORIES)
def test_run_and_evaluate_read_the_same(made: Made, cli: Cli, data: str) -> None:
    for options in ([], ["--stream"]):
        assert cli("run", "m.ptq", data, "-o", "out.npy", *options)[0] == 0
        np.testing.assert_array_equal(np.load("out.npy"), made.logits)
    code, out, err = cli("evaluate", "m.ptq", "--data", data)
    assert (code, err) == (0, "")
    right = np.mean(made.logits.argmax(1) == [0, 1, 2, 0, 1, 2])
    assert (f"{100 * right:.2f} %" if data in LABELLED else "have no labels") in out


@pytest.mark.parametrize("data", FILES)
def test_files_are_run_without_torch(made: Made, data: str) -> None:
    done = without_torch("run", "m.ptq", data, "-o", "out.npy")
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load("out.npy"), made.logits)


def test_what_needs_torch_says_so_without_it(made: Made) -> None:
    for data in ("default", "net_for_bundles:tensor", "x.txt"):
        done = without_torch("run", "m.ptq", data)
        assert (
            done.returncode == 2
            and 'needs torch: pip install "ptq4snn[torch]", or give a .npy' in done.stderr
        )
        assert done.stderr.count("\n") == 1


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes here")
def test_nobody_waits_for_a_pipe(made: Made, cli: Cli) -> None:
    for name in ("m.ptq.report.json", "p.npy", "p.npz", "p.safetensors"):
        Path(name).unlink(missing_ok=True)
        os.mkfifo(name)
    for name in ("p.npy", "p.npz", "p.safetensors"):
        for words in (["run", "m.ptq", name], ["evaluate", "m.ptq", "--data", name]):
            code, _, err = cli(*words)
            assert code == 2 and "is no regular file" in err
    assert cli("evaluate", "m.ptq", "--data", "xy.npz")[0] == 0
    assert not ptq4snn.load("m.ptq", Frames(True)).report


def test_a_bundle_is_evaluated_without_its_model(made: Made, cli: Cli) -> None:
    found = [
        json.loads(cli("evaluate", "m.ptq", "--data", "xy.npz", "--json", *options)[1])["m.ptq"]
        for options in ([], ["--model", "net_for_bundles:build"])
    ]
    for result in found:
        del result["throughput"]
    assert found[0] == found[1]
    (entry,) = json.loads(Path("m.ptq.report.json").read_text())["evaluations"]
    assert entry["quantized"]["accuracy"] == found[0]["accuracy"]


class TimeFirst(nn.Module):
    """Sequences [T, B, 2, 5, 5] to logits [B, 3]."""

    def __init__(self) -> None:
        super().__init__()
        self.net = Frames(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.net(x.transpose(0, 1))
        return out


def test_sequences_have_the_axes_of_the_bundle(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program knows where the samples are."""
    monkeypatch.chdir(tmp_path)
    x = torch.randint(0, 256, (4, 6, 2, 5, 5), generator=torch.Generator().manual_seed(1)).float() / 64 - 2
    q = ptq4snn.quantize(TimeFirst().eval(), x, "fast+uniform+w4m4", batch_axis=1, holdout=2)
    q.save("first.ptq")
    np.savez("first.npz", x=x.numpy(), y=np.zeros(6, int))
    result = json.loads(cli("evaluate", "first.ptq", "--data", "first.npz", "--json")[1])["first.ptq"]
    assert result["samples"] == 6
    assert result["accuracy"] == pytest.approx(100 * float((q(x).argmax(1) == 0).float().mean()))


def test_float_weights_must_be_those_that_were_quantized(made: Made, cli: Cli) -> None:
    """What README once said: without the checkpoint a random model was measured, and written down."""
    import net_for_bundles as nets  # type: ignore[import-not-found]

    torch.save(nets.build().state_dict(), "right.pt")
    torch.save(nets.random().state_dict(), "wrong.pt")
    before = Path("m.ptq.report.json").read_bytes()
    argv = ("evaluate", "m.ptq", "--float", "--data", "xy.npz", "--model", "net_for_bundles:random")
    for options in ((), ("--checkpoint", "wrong.pt")):
        code, out, err = cli(*argv, *options)
        assert (code, out) == (2, "") and err.count("\n") == 1
        assert "made from other float weights" in err and "--checkpoint FILE" in err
    assert Path("m.ptq.report.json").read_bytes() == before
    code, out, err = cli(*argv, "--checkpoint", "right.pt")
    assert (code, err) == (0, "") and [line.split(":")[0] for line in out.splitlines()[:2]] == [
        "float",
        "m.ptq",
    ]


def test_bundles_of_before_say_nothing_of_their_weights(made: Made, cli: Cli) -> None:
    bundle = read_bundle("m.ptq")
    assert len(bundle.plan.pop("source")) == 64
    write_bundle("old.ptq", bundle.plan, bundle.integers, bundle.floats)
    argv = ("evaluate", "old.ptq", "--data", "xy.npz", "--model", "net_for_bundles:build")
    assert cli(*argv)[0] == 0
    code, out, err = cli(*argv, "--float")
    assert (code, out) == (2, "") and "older version" in err and err.count("\n") == 1


def test_without_a_program_the_model_is_needed(made: Made, cli: Cli) -> None:
    bundle = read_bundle("m.ptq")
    rest = {n: a for n, a in bundle.integers.items() if not n.startswith("program/")}
    write_bundle("m.ptq", {**bundle.plan, "program": None, "not_lowered": "odd"}, rest, bundle.floats)
    Path("m.ptq.report.json").unlink()
    code, _, err = cli("evaluate", "m.ptq", "--data", "xy.npz")
    assert code == 2 and "has no integer program (odd): give --model" in err
    assert cli("evaluate", "m.ptq", "--data", "xy.npz", "--model", "net_for_bundles:build")[0] == 0


def test_a_report_of_another_bundle_is_refused(made: Made, cli: Cli) -> None:
    bundle = read_bundle("m.ptq")
    bundle.plan["plan"]["recipe"]["seed"] = 99  # another bundle, whose report stays
    write_bundle("m.ptq", bundle.plan, bundle.integers, bundle.floats)
    before = Path("m.ptq.report.json").read_bytes()
    commands = [
        ("summary", "m.ptq"), ("summary", "m.ptq.report.json"), ("report", "m.ptq"),
        ("figure", "memory", "m.ptq", "--json"), ("evaluate", "m.ptq", "--data", "xy.npz"),
    ]  # fmt: skip
    for argv in commands:
        code, out, err = cli(*argv)
        assert (code, out) == (2, "") and err.count("\n") == 1, argv
        assert "m.ptq.report.json is the report of another bundle than m.ptq" in err
    assert Path("m.ptq.report.json").read_bytes() == before
    import net_for_bundles as nets

    with pytest.warns(UserWarning, match="without a report"):
        q = ptq4snn.load("m.ptq", nets.build())
    assert q.report == {}
    Path("m.ptq").unlink()
    assert cli("summary", "m.ptq.report.json")[0] == 0  # alone it is a report like any other


def test_a_report_of_before_is_shown_with_a_warning(made: Made, cli: Cli) -> None:
    file = Path("m.ptq.report.json")
    report = json.loads(file.read_text())
    del report["bundle"]
    file.write_text(json.dumps(report))
    code, out, err = cli("summary", "m.ptq")
    assert code == 0 and out and err.count("\n") == 1 and "which bundle it is of" in err
    code, _, err = cli("evaluate", "m.ptq", "--data", "xy.npz")
    assert code == 0 and "not recorded" in err and json.loads(file.read_text()) == report


def test_weights_are_told_apart_by_their_values() -> None:
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(3)
    model = nn.Sequential(nn.Conv2d(2, 3, 1), norm)
    before = weights_digest(model)
    model(torch.randn(4, 2, 3, 3))
    assert weights_digest(model) != before  # running statistics matter
    model.eval()
    before = weights_digest(model)
    assert norm.num_batches_tracked is not None
    norm.num_batches_tracked += 1
    assert (
        weights_digest(model)
        == weights_digest(model.double())
        == weights_digest(nn.DataParallel(model))
        == before
    )
    with torch.no_grad():
        norm.bias[0] += 1e-3
    assert weights_digest(model) != before


def test_a_source_that_is_no_hash_is_refused(made: Made) -> None:
    bundle = read_bundle("m.ptq")
    for odd in ("x", None, 3, "A" * 64):
        write_bundle("m.ptq", {**bundle.plan, "source": odd}, bundle.integers, bundle.floats)
        with pytest.raises(BundleError, match="source is no SHA-256"):
            ptq4snn.runtime.load("m.ptq")
