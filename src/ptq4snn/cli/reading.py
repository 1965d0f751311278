"""Samples for a bundle, which tells what they must look like: whatever --data takes, files without torch."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from ptq4snn.data.arrays import name_of_samples
from ptq4snn.errors import DataError
from ptq4snn.runtime.program import Program

if TYPE_CHECKING:
    from ptq4snn.data.samples import Preprocessing

__all__ = ["batches_for", "inputs_for", "read_array"]

Array = NDArray[np.float32]
UNREADABLE = (ValueError, EOFError, TypeError, zipfile.BadZipFile, zlib.error, SafetensorError)
BATCH = 64


def read_array(name: str) -> Array:
    """x of a .npy, .npz or .safetensors file as float32; Python objects in it are refused unread."""
    path = Path(name)
    reader, kind = READERS.get(path.suffix, _npy), path.suffix if path.suffix in READERS else ".npy"
    if not path.exists():
        raise DataError(f"there is no file {name}: name a .npy, .npz or .safetensors file of samples")
    try:
        x = reader(path)
    except UNREADABLE as why:
        raise DataError(f"{name} is not a {kind} file of numbers: write one with numpy.save") from why
    if x.dtype.kind not in "fiub":
        raise DataError(f"{name} holds {x.dtype}, not numbers: give an array of numbers")
    return x.astype(np.float32)


def _npy(path: Path) -> NDArray[Any]:
    x = np.load(path, allow_pickle=False)
    if not isinstance(x, np.ndarray):  # an .npz by another name
        raise ValueError("several arrays")
    return x


def _npz(path: Path) -> NDArray[Any]:
    with np.load(path, allow_pickle=False) as arrays:
        x: NDArray[Any] = arrays[name_of_samples(path, arrays.files)]
        return x


def _safetensors(path: Path) -> NDArray[Any]:
    with safe_open(path, framework="numpy") as file:
        x: NDArray[Any] = file.get_tensor(name_of_samples(path, list(file.keys())))
        return x


READERS = {".npy": _npy, ".npz": _npz, ".safetensors": _safetensors}


def inputs_for(spec: str, program: Program) -> Iterator[Array]:
    """Arrays of samples: of a file all at once, of a data set or a factory batch by batch."""
    if _is_array(Path(spec)):
        yield read_array(spec)
        return
    for batch in batches_for(spec, program):
        x = batch[0] if isinstance(batch, (tuple, list)) and len(batch) else batch
        yield np.asarray(x[0] if isinstance(x, (tuple, list)) else x, dtype=np.float32)


def _is_array(path: Path) -> bool:
    """A file of x, by its ending; an .npz may be a whole data set as well."""
    if path.suffix == ".npz" and zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as file:
            return not {"test_x.npy", "train_x.npy"} <= set(file.namelist())
    return path.suffix in READERS


def batches_for(
    spec: str, program: Program, batch_size: int = BATCH, workers: int = 0, count: int | None = None
) -> Iterable[Any]:
    """Test batches of what --data names, in the size, the steps and the axes of a bundle's input."""
    try:
        from ptq4snn.data.source import open_data
    except ImportError as why:
        raise DataError(
            f"{spec} cannot be read without torch: give a .npy, .npz or .safetensors file"
        ) from why
    return open_data(
        spec, "test", batch_size=batch_size, batch_axis=program.input.batch_axis, workers=workers,
        count=count, preprocessing=_preprocessing(program),
    )  # fmt: skip


def _preprocessing(program: Program) -> Preprocessing:
    """Height and width of images [C, H, W], and the frames of a recording; the rest is the data set's own."""
    from ptq4snn.data.samples import Preprocessing

    shape = program.input.shape
    size = (shape[1], shape[2]) if len(shape) == 3 else None
    return Preprocessing(size=size, steps=None if program.input.time_axis is None else program.steps)
