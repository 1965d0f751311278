"""What `--data` names: the embedded sample, CIFAR-10's binaries, a file of arrays, or the user's factory."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch import Tensor

from ptq4snn.data.batches import READERS, Batch, cifar_batches, file_batches, tensor_batches
from ptq4snn.data.cifar import normalize
from ptq4snn.data.sample import default_sample
from ptq4snn.errors import DataError
from ptq4snn.factory import find_factory, run_factory

__all__ = ["Split", "open_data"]

Split = Literal["calibration", "test"]


def open_data(spec: str, split: Split, *, batch_size: int = 64, batch_axis: int = 0) -> Iterable[Batch]:
    """Batches x, or (x, y) where there are labels, of what `spec` names.

    default: the embedded sample.
    a folder with cifar-10-batches-bin: its train split to calibrate, its test split to test.
    a .npy, .npz or .safetensors file: its x (and y), whatever the split.
    package.module:factory: the tensor or the iterable of batches that factory(split) returns, or factory()
        if it takes no argument.
    """
    if spec == "default":
        return _embedded(split, batch_size)
    path = Path(spec)
    if path.is_dir():
        return cifar_batches(_cifar_folder(path), split == "calibration", batch_size)
    if path.suffix in READERS:
        return file_batches(path, batch_size, batch_axis)
    if ":" in spec:
        return _factory(spec, split, batch_size, batch_axis)
    if path.exists():
        raise DataError(f"{spec} has the ending {path.suffix!r}: give a .npy, .npz or .safetensors file")
    raise DataError(
        f"there is no data {spec!r}: give default, a folder that holds cifar-10-batches-bin, "
        "a .npy, .npz or .safetensors file, or package.module:factory"
    )


def _embedded(split: Split, batch_size: int) -> Iterable[Batch]:
    calibration, test, labels = default_sample()
    if split == "calibration":
        return tensor_batches(normalize(calibration), None, batch_size, 0, "default")
    return tensor_batches(normalize(test), labels, batch_size, 0, "default")


def _cifar_folder(path: Path) -> Path:
    for folder in (path / "cifar-10-batches-bin", path):
        if (folder / "test_batch.bin").is_file():
            return folder
    raise DataError(f"the folder {path} holds no cifar-10-batches-bin with a test_batch.bin")


def _factory(spec: str, split: Split, batch_size: int, batch_axis: int) -> Iterable[Batch]:
    factory = find_factory(spec)
    made = run_factory(spec, factory, *([split] if _takes_argument(factory) else []))
    if isinstance(made, Tensor | np.ndarray):
        return tensor_batches(made, None, batch_size, batch_axis, spec)
    if not isinstance(made, Iterable):
        raise DataError(f"{spec} returned a {type(made).__name__}: return a tensor or an iterable of batches")
    return made


def _takes_argument(factory: Callable[..., Any]) -> bool:
    """Whether the split can be given as the first argument."""
    try:
        inspect.signature(factory).bind("test")
    except (TypeError, ValueError):
        return False
    return True
