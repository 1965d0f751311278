"""`ptq4snn experiment`: the list, one table and one figure, and what is refused."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cli.nets import NET

from ptq4snn.cli.inputs import data_set, run_setting
from ptq4snn.experiments.catalog import EXPERIMENTS
from ptq4snn.experiments.paper import RunSetting

Cli = Callable[..., tuple[int, str, str]]

DATA = """
def data(split):
    g = torch.Generator().manual_seed(len(split))
    return [(torch.randn(40, 6, generator=g), torch.randint(0, 3, (40,), generator=g))]
"""


@pytest.fixture
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    (tmp_path / "net_for_experiment.py").write_text(NET + DATA)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "net_for_experiment", raising=False)
    return "--model", "net_for_experiment:net", "--data", "net_for_experiment:data"


def test_all_are_listed(cli: Cli) -> None:
    for argv in ((), ("--list",), ("sweep", "--list")):
        code, out, _ = cli("experiment", *argv)
        assert code == 0 and [line.split()[0] for line in out.splitlines()] == list(EXPERIMENTS)
    assert [e["name"] for e in json.loads(cli("experiment", "--json")[1])] == list(EXPERIMENTS)


def test_the_list_needs_no_torch() -> None:
    code = "import sys; from ptq4snn.cli import main; main(['experiment']); sys.exit('torch' in sys.modules)"
    found = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, env=found).returncode == 0


def test_a_figure(cli: Cli, net: tuple[str, ...]) -> None:
    argv = ("experiment", "bridge-analysis", *net, "--calibration", "32", "--out", "here")
    code, out, _ = cli(*argv)
    assert code == 0 and "k      channels" in out
    (file,) = Path("here").glob("bridge-analysis.net_for_experiment_net.*.json")
    written = json.loads(file.read_text())
    assert json.loads(cli(*argv, "--json")[1])["rows"] == written["rows"]
    table = file.with_suffix(".csv").read_text().splitlines()
    assert len(table) == 1 + len(written["rows"]) == 17  # the 16 channels outside the stem
    assert written["ran"] == {
        "model": None,
        "data": None,
        "steps": None,
        "limit": None,
        "changed": "calibration",
    }


@pytest.mark.parametrize(
    ("argv", "what"),
    [
        (("sweeep",), "did you mean 'sweep'?"),
        (("sweep", "--first-bits", "77"), "first_bits must be"),
        (("cifar", "--iterations", "0"), "argument --iterations"),
        (("cifar", "--model", "nonsense"), "there is no model 'nonsense'"),
    ],
)
def test_mistakes_are_one_sentence(cli: Cli, argv: tuple[str, ...], what: str) -> None:
    code, out, err = cli("experiment", *argv)
    assert (code, out) == (2, "") and err.count("\n") == 1 and what in err


def test_what_it_ran_on(tmp_path: Path) -> None:
    def ran(
        model: str | None, data: str | None, T: int | None = None, limit: int | None = None
    ) -> RunSetting:
        return run_setting(argparse.Namespace(model=model, data=data, T=T, limit=limit))

    assert ran("SDT_8_768_ImageNet", "imagenet:DIR") == RunSetting("sdt-8-768-imagenet", "imagenet", 4)
    assert ran("sdt-2-256-cifar10-dvs", str(tmp_path)) == RunSetting(
        "sdt-2-256-cifar10-dvs", "cifar10-dvs", 10
    )
    assert ran("vgg16-cifar10", "cifar10:DIR", T=8, limit=5) == RunSetting("vgg16-cifar10", "cifar10", 8, 5)
    assert ran(None, None) == RunSetting("default", None, 4)  # the embedded sample is not the whole test set
    assert ran("mine:net", "cifar10:DIR") == RunSetting(None, "cifar10", None)
    assert data_set("mine:factory", "cifar10") is None and data_set("x.npz", "cifar10") is None
