"""Trained networks in C: spikes, states and outputs bit for bit, on this machine and on a Cortex-M4."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from export.harness import build, case, compare, results
from export.test_boards import BOARDS, HERE

import ptq4snn
from ptq4snn.data.cifar import normalize
from ptq4snn.data.sample import default_sample
from ptq4snn.models.zoo import MODELS, load_default
from ptq4snn.runtime.loading import load_model_file
from ptq4snn.runtime.parameters import Model


@pytest.fixture(scope="module")
def images() -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return normalize(default_sample()[1][:2]).numpy()


def quantized(net: Any, folder: Path, recipe: str) -> Model:
    samples = normalize(default_sample()[0][:16])
    ptq4snn.quantize(net, samples, recipe, progress=False).save(folder / "model.ptq")
    return load_model_file(folder / "model.ptq")


@pytest.fixture(scope="module")
def default(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return quantized(load_default(), tmp_path_factory.mktemp("default"), "paper+nearest+w4m4")


def test_the_default_on_this_machine(default: Model, images: np.ndarray, tmp_path: Path) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("there is no gcc here")
    cases = [case(default, f"net{i}", x[None], 4, steps=4) for i, x in enumerate(images)]
    compare(cases, results(build(cases, tmp_path, "gcc", ["-O1"]), cases))
    figures = cases[0].source.figures
    assert not figures.wide, "no 64-bit numbers"
    assert figures.weights < 605_578 * 0.55 and figures.arena < 10_000


def test_the_default_on_a_cortex_m4(default: Model, images: np.ndarray, tmp_path: Path) -> None:
    board = BOARDS["cortex-m4"]
    for tool in (board.compiler, board.emulator[0]):
        if shutil.which(tool) is None:
            pytest.skip(f"there is no {tool} here")
    cases = [case(default, "net", images[:1], 2, steps=4)]
    program = build(
        cases, tmp_path, board.compiler, board.flags, [HERE / board.start, HERE / "semihosting.c"]
    )
    compare(cases, results(program, cases, board.emulator))


CIFAR = ("sdt-2-128-cifar10", "vgg8-32-cifar10", "metaspikeformer-32-cifar10")


@pytest.mark.full
@pytest.mark.skipif(os.environ.get("PTQ4SNN_FULL") != "1", reason="PTQ4SNN_FULL=1 quantizes three networks")
@pytest.mark.parametrize("name", CIFAR)
def test_other_trained_networks(name: str, images: np.ndarray, tmp_path: Path) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("there is no gcc here")
    model = quantized(MODELS[name].load(), tmp_path, "paper+nearest+w4m4")
    cases = [case(model, "net", images[:1], 4)]
    compare(cases, results(build(cases, tmp_path, "gcc", ["-O1"]), cases))
