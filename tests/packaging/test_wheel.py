"""The wheel, from the source distribution, in an environment of its own: without torch, rich and Jinja2."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cli.bundles import Made, make

import ptq4snn

ROOT = Path(__file__).parents[2]
SOURCES = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "src")
LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.egg-info", "_kernels.*")
Run = Callable[..., subprocess.CompletedProcess[str]]
EMBEDDED = ["default.safetensors", "vgg4-16-nmnist-slow.safetensors"]
MOST_BYTES = 12_000_000  # half of what it was with all trained weights
full = pytest.param(
    True,
    marks=[
        pytest.mark.full,
        pytest.mark.skipif(os.environ.get("PTQ4SNN_FULL") != "1", reason="PTQ4SNN_FULL=1 compiles kernels"),
    ],
    id="compiler",
)


def pip(*arguments: str, python: Path | None = None) -> subprocess.CompletedProcess[str]:
    other = [] if python is None else ["--python", str(python)]
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", *other, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def build(folder: Path) -> tuple[Path, Path]:
    """The source distribution of this checkout, and the wheel of what it holds."""
    pytest.importorskip("setuptools", minversion="77.0.3", reason="building needs setuptools 77.0.3")
    tree = folder / "tree"
    tree.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tree / name, ignore=LEFT_OUT)
        else:
            shutil.copy(ROOT / name, tree / name)
    (tree / "weights").symlink_to(ROOT / "weights")  # there to be left out
    code = "import sys; from setuptools.build_meta import build_sdist; build_sdist(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, str(folder)], cwd=tree, check=True, capture_output=True)
    (sdist,) = folder.glob("*.tar.gz")
    done = pip("wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", str(folder), str(sdist))
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    return sdist, wheel


def environment(folder: Path, wheel: Path) -> Path:
    """A Python with the wheel and what it requires: nothing else can be fetched when it is installed."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    pinned = ["--constraint", str(ROOT / "constraints.txt")]
    needed = ["numpy", "safetensors", *(["tomli"] if sys.version_info < (3, 11) else [])]
    if pip("install", *pinned, *needed, python=python).returncode:
        pytest.skip("no package index with numpy and safetensors is reachable from here")
    done = pip("install", "--no-index", *pinned, str(wheel), python=python)
    assert done.returncode == 0, done.stderr
    return python


@pytest.mark.parametrize("compiler", [pytest.param(False, id="no compiler"), full])
def test_a_bundle_runs_and_streams_from_the_wheel_alone(
    compiler: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make(tmp_path, still=False)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    if not compiler:
        monkeypatch.setenv("CXX", "no-such-compiler")
    sdist, wheel = build(tmp_path)
    check_contents(sdist, wheel, compiler)
    python = environment(tmp_path / "venv", wheel)
    code = "from importlib.metadata import distributions as d; print(*(x.metadata['Name'] for x in d()))"
    listed = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True).stdout
    assert set(listed.split()) - {"tomli"} == {"numpy", "safetensors", "ptq4snn"}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(python), "-m", "ptq4snn", *arguments]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)

    check_outputs(run, made, tmp_path)
    refused = run("quantize")
    assert refused.returncode == 2 and 'torch: pip install "ptq4snn[torch]"' in refused.stderr


def check_contents(sdist: Path, wheel: Path, compiler: bool) -> None:
    with zipfile.ZipFile(wheel) as file:
        inside = file.namelist()
    weights = [name for name in inside if name.endswith(".safetensors")]
    assert sorted(weights) == [f"ptq4snn/assets/{name}" for name in EMBEDDED]
    assert {f"ptq4snn/assets/{name}_sample.xz" for name in ("cifar10", "nmnist")} <= set(inside)
    assert any(name.startswith("ptq4snn/runtime/native/_kernels") for name in inside) == compiler
    assert wheel.stat().st_size < MOST_BYTES and "-py3-none-" in wheel.name
    with tarfile.open(sdist) as file:
        sources = file.getnames()
    assert any(name.endswith("csrc/engine.cpp") for name in sources)
    assert sorted(n.rpartition("/")[2] for n in sources if n.endswith(".safetensors")) == EMBEDDED


def check_outputs(run: Run, made: Made, folder: Path) -> None:
    """Whole and step by step, bit for bit what the quantized model computes here with torch."""
    for name, options in (("whole", []), ("stream", ["--stream", "--save-state", "s.state"])):
        done = run("run", "model.ptq", "x.npy", "-o", f"{name}.npy", *options)
        assert done.returncode == 0, done.stderr
        found = np.load(folder / f"{name}.npy")
        assert found.dtype == np.float32 and found.tobytes() == made.logits.tobytes()
    rt = ptq4snn.runtime.load(made.bundle)
    for frame in np.moveaxis(made.x, 1, 0):
        rt.step(frame)
    assert rt.state is not None
    rt.state.save(folder / "here.state")
    assert (folder / "s.state").read_bytes() == (folder / "here.state").read_bytes()
    done = run("bench", "model.ptq", "--batch", "1", "--json")
    assert done.returncode == 0, done.stderr
