"""The same statistics, plan and integers whatever vectors the CPU has, by the switches of torch and its
libraries, and whatever the number of threads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from conftest import build, pixels

from ptq4snn.data.sample import default_sample
from ptq4snn.models.neuron import LIF
from ptq4snn.models.zoo import load_default

SWITCHES = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_CBWR")
NO_VECTORS = dict(zip(SWITCHES, ("default", "SSE41", "COMPATIBLE"), strict=True))
AVX2 = dict(zip(SWITCHES, ("avx2", "AVX2", "AVX2"), strict=True))
PROGRAM = Path(__file__).with_name("decided.py")


def decided(
    folder: Path, samples: int, recipes: list[str], cpu: dict[str, str], threads: int = 1
) -> dict[str, str]:
    env = {k: v for k, v in os.environ.items() if k not in SWITCHES} | cpu
    command = [sys.executable, str(PROGRAM), str(folder), str(threads), str(samples), *recipes]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


def same_everywhere(folder: Path, samples: int, recipes: list[str]) -> None:
    expected = decided(folder, samples, recipes, NO_VECTORS)
    assert len(expected) > 2 * len(recipes)
    for found in (
        decided(folder, samples, recipes, AVX2),
        decided(folder, samples, recipes, {}, threads=2),  # with the widest vectors that there are
    ):
        assert [name for name, value in expected.items() if found[name] != value] == []


def test_the_same_bits_on_every_cpu(tmp_path: Path) -> None:
    torch.save(build(), tmp_path / "hard.pt")  # decay of input, hard reset
    slow = partial(LIF, tau=20.0, decay_input=False, v_threshold=3.0, v_reset=None)  # a leak of 0.95
    torch.save(build(neuron=slow), tmp_path / "slow.pt")
    torch.save(pixels(48), tmp_path / "images.pt")
    same_everywhere(tmp_path, 48, ["fast+w4m4", "w4m4", "w2m2"])


@pytest.mark.full
@pytest.mark.skipif("PTQ4SNN_FULL" not in os.environ, reason="PTQ4SNN_FULL=1 runs it")
def test_the_same_bits_of_the_default_on_every_cpu(tmp_path: Path) -> None:
    torch.save(load_default(), tmp_path / "default.pt")
    images = default_sample()[0].float() / 255
    torch.save((images - 0.45) / 0.25, tmp_path / "images.pt")
    same_everywhere(tmp_path, 256, ["fast+w4m4", "w4m4", "w2m2"])


@pytest.mark.full
@pytest.mark.skipif("PTQ4SNN_FULL" not in os.environ, reason="PTQ4SNN_FULL=1 runs it")
def test_the_tables_of_the_demo_on_every_cpu(tmp_path: Path) -> None:
    """Its rows of `mpba` too, whose sensitivities differ in their last bits."""

    def rows(cpu: dict[str, str]) -> list[object]:
        env = {k: v for k, v in os.environ.items() if k not in SWITCHES} | cpu
        command = [sys.executable, "-m", "ptq4snn", "demo", "--json", "--out", str(tmp_path / "demo")]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return [network["rows"] for network in json.loads(done.stdout)["networks"]]

    expected = rows(NO_VECTORS)
    assert len(expected) == 2
    assert rows(AVX2) == expected
    assert rows({}) == expected
