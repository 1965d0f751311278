"""Samples for a bundle, which tells what they must look like: whatever --data takes, files without torch."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ptq4snn.data.arrays import READERS, open_arrays, readable
from ptq4snn.errors import DataError
from ptq4snn.extras import needed_by
from ptq4snn.network.program import Program

if TYPE_CHECKING:
    from ptq4snn.data.samples import Preprocessing

__all__ = ["batches_for", "inputs_for", "read_array"]

Array = NDArray[np.float32]
BATCH = 64


def read_array(name: str) -> Array:
    """The samples of a .npy, .npz or .safetensors file as float32; Python objects are refused unread."""
    if Path(name).suffix not in READERS:
        raise DataError(f"{name} is no file of arrays: give a .npy, .npz or .safetensors file")
    found = open_arrays(Path(name))[0]
    x = found if isinstance(found, np.ndarray) else np.asarray(found[:])
    if x.dtype.kind not in "fiub":
        raise DataError(f"{name} holds {x.dtype}, not numbers: give an array of numbers")
    return x.astype(np.float32)


def inputs_for(spec: str, program: Program) -> Iterator[Array]:
    """Arrays of samples: of a file all at once, of a data set or a factory batch by batch."""
    if _is_array(Path(spec)):
        yield read_array(spec)
        return
    batches = batches_for(spec, program)
    from ptq4snn.forms import inputs_and_labels  # with torch, which batches_for has asked for

    for batch in batches:
        x, _ = inputs_and_labels(batch, labels=False)
        yield x.detach().cpu().numpy().astype(np.float32)


def _is_array(path: Path) -> bool:
    """A file of x, by its ending; an .npz may be a whole data set as well."""
    if path.suffix == ".npz" and path.is_file() and zipfile.is_zipfile(path):
        with readable(path), zipfile.ZipFile(path) as file:
            return not {"test_x.npy", "train_x.npy"} <= set(file.namelist())
    return path.suffix in READERS


def batches_for(
    spec: str, program: Program, batch_size: int = BATCH, workers: int = 0, count: int | None = None
) -> Iterable[Any]:
    """Test batches of what --data names, in the size, the steps and the axes of a bundle's input."""
    with needed_by(f"reading {spec}", "or give a .npy, .npz or .safetensors file"):
        from ptq4snn.data.source import Batching, open_data
    batching = Batching(batch_size, program.input.batch_axis, workers, count)
    return open_data(spec, "test", batching, _preprocessing(program))


def _preprocessing(program: Program) -> Preprocessing:
    """Height and width of images [C, H, W], and the frames of a recording; the rest is the data set's own."""
    from ptq4snn.data.samples import Preprocessing

    shape = program.input.shape
    size = (shape[1], shape[2]) if len(shape) == 3 else None
    return Preprocessing(size=size, steps=None if program.input.time_axis is None else program.steps)
