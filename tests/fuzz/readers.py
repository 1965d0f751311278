"""Every reader of strangers' files, by name: a small valid file, and what reads all of it."""

from __future__ import annotations

import io
import pickle
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save as safetensors

from ptq4snn.checkpoint.reading import read as read_checkpoint
from ptq4snn.data.batches import file_samples
from ptq4snn.data.cifar10_dvs import read_aedat, read_events_npz
from ptq4snn.data.cifar_python import read_python
from ptq4snn.data.images import center_crop, planes, read_image, resize_shorter
from ptq4snn.data.nmnist import read_atis
from ptq4snn.recipe import Recipe
from ptq4snn.report.finished_run import read_run, whole
from ptq4snn.report.page import render_page
from ptq4snn.runtime import Limits, State, load

__all__ = ["READERS", "Reader", "report_seed"]

CORPUS = Path(__file__).parent / "corpus"
SMALL = Limits(memory=2**26, additions=10**8)


@dataclass(frozen=True)
class Reader:
    suffix: str
    seed: Callable[[], bytes]  # a valid file
    read: Callable[[Path], Any]
    bytewise: bool = True  # False: damaged bytes end HDF5's library itself


def _saved(save: Callable[[Any], Any]) -> bytes:
    file = io.BytesIO()
    save(file)
    return file.getvalue()


def _x() -> Any:
    return np.linspace(0, 1, 6 * 3 * 4, dtype=np.float32).reshape(6, 3, 4)


def _samples(path: Path) -> None:
    samples = file_samples(path, 0)
    samples[list(range(min(len(samples), 64)))]


def _report(path: Path) -> None:
    run = read_run(path)
    if run.kind == "report":
        with whole(run):
            render_page(run.report, "fuzzed")


def _bundle(path: Path) -> None:
    rt = load(path, "numpy", limits=SMALL)
    shape = rt.model.program.input.shape
    if rt.model.program.input.time_axis is not None and len(shape) == 3:
        rt(np.zeros((2, 1, *shape), np.float32))


def _image(path: Path) -> None:
    """As ImageNet's are read."""
    planes(center_crop(resize_shorter(read_image(path).convert("RGB"), 256, "bilinear"), 224, 224))


def _image_seed() -> bytes:
    from PIL import Image

    pixels = np.arange(6 * 8 * 3, dtype=np.uint8).reshape(6, 8, 3)
    return _saved(lambda f: Image.fromarray(pixels).save(f, "png"))


def _nir(path: Path) -> None:
    """Without the other process that reads it first: that is a test of its own."""
    from unittest.mock import patch

    from ptq4snn.interchange.nir_reading import from_nir

    with patch("ptq4snn.interchange.nir_reading._refuse_deadly"):
        from_nir(path, dt=1e-3, reset="zero")


def _nir_seed() -> bytes:
    import nir

    def flat(value: float, *shape: int) -> Any:
        return np.full(shape, value)

    graph = nir.NIRGraph.from_list(
        nir.Input({"input": np.array([1, 4, 4])}),
        nir.Conv2d((4, 4), flat(0.5, 2, 1, 3, 3), 1, 1, 1, 1, flat(0.1, 2)),
        nir.Scale(flat(2.0, 2, 4, 4)),
        nir.IF(flat(1.0, 2, 4, 4), flat(1.0, 2, 4, 4)),
        nir.SumPool2d(np.array([2, 2]), np.array([2, 2]), np.array([0, 0])),
        nir.Flatten({"input": np.array([2, 2, 2])}, 0, -1),
        nir.Affine(np.eye(4, 8), np.zeros(4)),
        nir.CubaLIF(flat(2e-3, 4), flat(5e-3, 4), flat(4.0, 4), flat(0.0, 4), flat(1.0, 4)),
        nir.Delay(flat(2e-3, 4)),
        nir.Linear(np.eye(4)),
        nir.LIF(flat(5e-3, 4), flat(4.0, 4), flat(0.0, 4), flat(1.0, 4)),
        nir.Linear(np.eye(2, 4)),
    )
    with tempfile.TemporaryDirectory() as folder:
        nir.write(Path(folder) / "g.nir", graph)
        return (Path(folder) / "g.nir").read_bytes()


@cache
def report_seed() -> bytes:
    return (CORPUS / "report.json").read_bytes()


def _recipe_seed() -> bytes:
    fields = b'weights = 4\nmembrane = 3.5\nrounding = "gptq"\nwidths = [2, 4, 8]\n'
    return fields + b'[overrides."layer3.*"]\nmembrane = 8\n'


_PIXELS = {b"data": np.zeros((4, 3072), np.uint8), b"labels": [1, 2, 3, 4]}
_HEAD = b"#!AER-DAT2.0\r\n# x\r\n"
_EVENTS: dict[str, Any] = {k: np.arange(20) % n for k, n in (("t", 20), ("x", 20), ("y", 20), ("p", 2))}
_WEIGHTS = {"state_dict": {"w": torch.ones(2, 3), "b": torch.zeros(3)}, "epoch": 3}

READERS: dict[str, Reader] = {
    "npy": Reader(".npy", lambda: _saved(lambda f: np.save(f, _x())), _samples),
    "npz": Reader(".npz", lambda: _saved(lambda f: np.savez(f, x=_x(), y=np.arange(6))), _samples),
    "safetensors": Reader(".safetensors", lambda: safetensors({"x": _x(), "y": np.arange(6)}), _samples),
    "checkpoint": Reader(".safetensors", lambda: safetensors({"w": _x(), "b": np.zeros(3)}), read_checkpoint),
    "torch": Reader(".pt", lambda: _saved(lambda f: torch.save(_WEIGHTS, f)), read_checkpoint),
    "recipe": Reader(".toml", _recipe_seed, Recipe.from_toml),
    "nir": Reader(".nir", _nir_seed, _nir, bytewise=False),
    "aedat": Reader(".aedat", lambda: _HEAD + bytes([0, 0, 12, 34, 0, 0, 0, 5]) * 20, read_aedat),
    "atis": Reader(".bin", lambda: bytes([3, 4, 128, 0, 9]) * 20, read_atis),
    "events": Reader(".npz", lambda: _saved(lambda f: np.savez(f, **_EVENTS)), read_events_npz),
    "cifar": Reader(".cifar", lambda: pickle.dumps(_PIXELS, 2), lambda p: read_python(p, "labels", 3072)),
    "image": Reader(".png", _image_seed, _image),
    "report": Reader(".json", report_seed, _report),
    "bundle": Reader(".ptq", lambda: (CORPUS / "bundle.ptq").read_bytes(), _bundle),
    "state": Reader(".state", lambda: (CORPUS / "session.state").read_bytes(), State.load),
}  # fmt: skip
