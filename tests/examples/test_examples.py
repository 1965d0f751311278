"""Every example runs as a user runs it, in a process and a folder of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
SPIKINGJELLY = os.environ.get("PTQ4SNN_SPIKINGJELLY_014", "")


def run(name: str, folder: Path, *args: str, path: str = "") -> str:
    """What an example prints. It may import nothing of the tests."""
    found = os.pathsep.join(filter(None, [str(ROOT / "src"), path]))
    env = {**os.environ, "PYTHONPATH": found, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(EXAMPLES / name), *args]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_spikingjelly(tmp_path: Path) -> None:
    if not Path(SPIKINGJELLY, "spikingjelly").is_dir():
        pytest.skip("SpikingJelly is missing: `make test` fetches it")
    out = run("spikingjelly_net.py", tmp_path, path=SPIKINGJELLY)
    assert "the same logits" in out
    assert (tmp_path / "spikingjelly_net.ptq").is_file()


def test_snntorch(tmp_path: Path) -> None:
    pytest.importorskip("snntorch", reason="snnTorch is missing: `make test` fetches it")
    out = run("snntorch_net.py", tmp_path)
    assert "of the decisions are the float network's" in out
    assert (tmp_path / "snntorch_net.ptq").is_file()


def test_own_neuron(tmp_path: Path) -> None:
    out = run("own_neuron.py", tmp_path)
    assert out.count("pair") >= 2  # both neurons were found


def test_event_camera_then_without_torch(tmp_path: Path) -> None:
    """The bundle of one example is run by the other, in a process that must not load torch."""
    out = run("event_camera.py", tmp_path)
    assert len([line for line in out.splitlines() if " ms  events " in line]) == 8
    np.save(tmp_path / "x.npy", np.zeros((8, 3, 2, 16, 16), np.float32))
    out = run("without_torch.py", tmp_path, "event_camera.ptq", "x.npy")
    assert "torch loaded: False" in out
    classes = out.split("classes: ")[1].split()
    assert len(classes) == 3 and len(set(classes)) == 1  # three times the same empty recording


def test_every_example_is_run_and_described() -> None:
    here = Path(__file__).read_text(encoding="utf-8")
    table = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    for file in EXAMPLES.glob("*.py"):
        assert f'"{file.name}"' in here, file.name
        assert f"({file.name})" in table, file.name
        assert file.read_text(encoding="utf-8").startswith('"""'), file.name


def test_microcontroller(tmp_path: Path) -> None:
    """The folder's Makefile, with a bundle that is quantized in a moment."""
    for tool in ("make", "arm-none-eabi-gcc", "qemu-system-arm"):
        if shutil.which(tool) is None:
            pytest.skip(f"there is no {tool} here")
    shutil.copytree(EXAMPLES / "microcontroller", tmp_path / "m")
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    quick = ["-m", "ptq4snn", "quantize", "--recipe", "paper+nearest+w4m4", "--calibration", "16"]
    subprocess.run([sys.executable, *quick, "--out", "model.ptq"], cwd=tmp_path / "m", env=env, check=True)
    command = ["make", "run", f"PYTHON={sys.executable}"]
    done = subprocess.run(command, cwd=tmp_path / "m", env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = re.search(r"the runtime says: (class \d)", (tmp_path / "m" / "image.h").read_text())
    assert said is not None and said[1] in done.stdout + done.stderr
