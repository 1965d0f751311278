"""Batches that are read when they are asked for: memory follows the batch, not the file."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ptq4snn.data.cifar import RECORD, normalize
from ptq4snn.errors import DataError

__all__ = ["Batch", "Batches", "cifar_batches", "file_batches", "tensor_batches"]

Batch = Tensor | tuple[Tensor, Tensor]
Read = Callable[[int, int], Tensor]  # samples start .. stop


class Batches:
    """Re-iterable batches of `count` samples: x alone, or (x, y) with labels."""

    def __init__(self, count: int, batch_size: int, x: Read, y: Read | None = None) -> None:
        self.count, self.batch_size, self.x, self.y = count, batch_size, x, y

    def __len__(self) -> int:
        return -(-self.count // self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        for start in range(0, self.count, self.batch_size):
            stop = min(start + self.batch_size, self.count)
            x = self.x(start, stop)
            yield x if self.y is None else (x, self.y(start, stop).long())


def tensor_batches(x: Any, y: Any, batch_size: int, axis: int, name: object) -> Batches:
    """Batches of anything with a shape and slices: tensors, (memory-mapped) arrays, safetensors slices.

    Samples become float32, labels int64; the slice is copied, so that a read-only map can be used.
    """
    shape = tuple(x.get_shape() if hasattr(x, "get_shape") else x.shape)
    if not 0 <= axis < len(shape):
        raise DataError(f"{name}: x has shape {list(shape)} and no batch axis {axis}: change batch_axis")
    count = int(shape[axis])
    if count == 0:
        raise DataError(f"{name} holds no samples: x has shape {list(shape)}")
    labels = None if y is None else y if isinstance(y, Tensor) else torch.from_numpy(np.array(y))
    if labels is not None and labels.shape != (count,):
        raise DataError(f"{name}: y has shape {list(labels.shape)} for {count} samples: give one label each")
    leading = (slice(None),) * axis

    def read(start: int, stop: int) -> Tensor:
        part = x[(*leading, slice(start, stop))]
        return part.float() if isinstance(part, Tensor) else torch.from_numpy(np.array(part, np.float32))

    return Batches(count, batch_size, read, None if labels is None else lambda a, b: labels[a:b])


def file_batches(path: Path, batch_size: int, axis: int) -> Batches:
    """Batches of x and maybe y in a .npy (mapped), .npz (read whole) or .safetensors (sliced) file."""
    try:
        x, y = READERS[path.suffix](path)
        if isinstance(x, np.ndarray) and x.dtype.kind not in "biuf":
            raise DataError(f"{path}: x holds {x.dtype} values: store numbers")
        return tensor_batches(x, y, batch_size, axis, path)
    except FileNotFoundError as e:
        raise DataError(f"there is no data file {path}") from e
    except OSError as e:
        raise DataError(f"cannot read the data file {path}: {e.strerror or e}") from e
    except (ValueError, EOFError, zipfile.BadZipFile, SafetensorError, TypeError) as e:
        raise DataError(f"{path} is truncated or not a {path.suffix} file of numbers") from e


def read_npy(path: Path) -> tuple[Any, Any]:
    return np.load(path, mmap_mode="r", allow_pickle=False), None


def read_npz(path: Path) -> tuple[Any, Any]:
    with np.load(path, allow_pickle=False) as arrays:
        need_x(path, arrays.files)
        return arrays["x"], arrays["y"] if "y" in arrays.files else None


def read_safetensors(path: Path) -> tuple[Any, Any]:
    if not path.exists():
        raise FileNotFoundError(path)
    handle: Any = safe_open(path, framework="pt")  # stays open: x is read slice by slice
    names = list(handle.keys())
    need_x(path, names)
    return handle.get_slice("x"), handle.get_tensor("y") if "y" in names else None


def need_x(path: Path, names: list[str]) -> None:
    if "x" not in names:
        found = ", ".join(names) or "nothing"
        raise DataError(f"{path} holds {found} but no x: name the samples x and the labels y")


READERS = {".npy": read_npy, ".npz": read_npz, ".safetensors": read_safetensors}


def cifar_batches(folder: Path, train: bool, batch_size: int) -> Batches:
    """Normalised images and labels of the official binaries, mapped and read by batches."""
    names = [f"data_batch_{i}.bin" for i in range(1, 6)] if train else ["test_batch.bin"]
    parts = []
    for name in names:
        file = folder / name
        if not file.is_file():
            raise DataError(f"there is no data file {file}: unpack CIFAR-10's binary version again")
        if file.stat().st_size == 0 or file.stat().st_size % RECORD:
            raise DataError(f"{file} is truncated: its {file.stat().st_size} bytes are not whole records")
        parts.append(np.memmap(file, np.uint8, "r").reshape(-1, RECORD))
    ends = np.cumsum([len(p) for p in parts]).tolist()

    def rows(start: int, stop: int) -> Tensor:
        begins = [0, *ends[:-1]]
        cut = [p[max(start - b, 0) : max(stop - b, 0)] for p, b in zip(parts, begins, strict=True)]
        return torch.from_numpy(np.concatenate(cut))

    return Batches(
        ends[-1],
        batch_size,
        lambda a, b: normalize(rows(a, b)[:, 1:].reshape(-1, 3, 32, 32)),
        lambda a, b: rows(a, b)[:, 0],
    )
