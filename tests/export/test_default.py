"""Trained networks in C: spikes, states and outputs bit for bit, on this machine and on a Cortex-M4."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from export.harness import build, case, compare, results
from export.test_boards import BOARDS, HERE
from export.trained import inputs, trained_model

from ptq4snn.models.trained import TRAINED
from ptq4snn.runtime.parameters import Model

QUICK = ("vgg4-16-nmnist-slow", "vgg8-32-cifar10")  # the default is a test of its own
STEPS = {"vgg4-16-nmnist-slow": 3, "sdt-fpn-16-camvid": 2}  # fewer than the network has


@pytest.fixture(scope="module")
def default() -> Model:
    return trained_model("default")


def test_the_default_on_this_machine(default: Model, tmp_path: Path) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("there is no gcc here")
    images = inputs("default", 2, 1).numpy()
    cases = [case(default, f"net{i}", x[None], 4, steps=4) for i, x in enumerate(images)]
    compare(cases, results(build(cases, tmp_path, "gcc", ["-O1"]), cases))
    figures = cases[0].source.figures
    assert not figures.wide, "no 64-bit numbers"
    assert figures.weights < 605_578 * 0.55 and figures.arena < 10_000


def test_the_default_on_a_cortex_m4(default: Model, tmp_path: Path) -> None:
    board = BOARDS["cortex-m4"]
    for tool in (board.compiler, board.emulator[0]):
        if shutil.which(tool) is None:
            pytest.skip(f"there is no {tool} here")
    cases = [case(default, "net", inputs("default", 1, 1).numpy(), 2, steps=4)]
    program = build(
        cases, tmp_path, board.compiler, board.flags, [HERE / board.start, HERE / "semihosting.c"]
    )
    compare(cases, results(program, cases, board.emulator))


def trained(name: str) -> object:
    """All of them where PTQ4SNN_FULL=1 says so, two in every run."""
    if name in QUICK:
        return name
    skip = pytest.mark.skipif(os.environ.get("PTQ4SNN_FULL") != "1", reason="PTQ4SNN_FULL=1 runs all of them")
    return pytest.param(name, marks=[pytest.mark.full, skip])


@pytest.mark.parametrize("name", [trained(name) for name in TRAINED if name != "default"])
def test_every_other_trained_network(name: str, tmp_path: Path) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("there is no gcc here")
    if TRAINED[name].weights() is None:
        pytest.skip(f"the weights of {name} are not here")
    model = trained_model(name)
    x, steps = inputs(name, 1, 1).numpy(), STEPS.get(name, TRAINED[name].steps)
    cases = [case(model, "net", x, steps)]
    compare(cases, results(build(cases, tmp_path, "gcc", ["-O1"]), cases))
