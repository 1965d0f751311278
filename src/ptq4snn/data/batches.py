"""Arrays of the user as samples: tensors, and .npy, .npz and .safetensors files with x and maybe y."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ptq4snn.data.arrays import LABELS, name_of_samples
from ptq4snn.data.samples import Batch, Samples
from ptq4snn.errors import DataError

__all__ = ["READERS", "ArraySamples", "BatchAxis", "OneByOne", "file_samples"]

# what damaged files make the parsers raise
UNREADABLE = (ValueError, EOFError, zipfile.BadZipFile, zlib.error, SafetensorError, TypeError)


FLOATS = (np.float16, np.float32, np.float64, torch.float16, torch.bfloat16, torch.float32, torch.float64)


class ArraySamples:
    """Samples of anything with a shape and slices: tensors, (memory-mapped) arrays, safetensors slices.

    x has its samples on `axis` and becomes float32; y, if any, holds class numbers [N] or maps [N, H, W] and
    becomes int64. What is read is copied, so that a read-only map can be used.
    """

    def __init__(self, x: Any, y: Any = None, axis: int = 0, name: object = "x") -> None:
        shape = shape_of(x)
        if not 0 <= axis < len(shape):
            raise DataError(f"{name}: x has shape {shape} and no batch axis {axis}: change batch_axis")
        self.x, self.y, self.axis, self.count = x, y, axis, shape[axis]
        if self.count == 0:
            raise DataError(f"{name} holds no samples: x has shape {shape}")
        for key, values in (("x", x), ("y", y)):
            if isinstance(values, np.ndarray) and values.dtype.kind not in "biuf":
                raise DataError(f"{name}: {key} holds {values.dtype} values: store numbers")
        if isinstance(y, np.ndarray | Tensor) and y.dtype in FLOATS:
            raise DataError(f"{name}: y holds {y.dtype} values: labels are whole numbers")
        if y is not None and (len(shape_of(y)) not in (1, 3) or shape_of(y)[0] != self.count):
            raise DataError(
                f"{name}: y has shape {shape_of(y)} for {self.count} samples: "
                "give one label or one map [H, W] each"
            )

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, indices: Sequence[int]) -> Batch:
        x = read_parts(self.x, indices, self.axis, torch.float32)
        return x if self.y is None else (x, read_parts(self.y, indices, 0, torch.int64))


def shape_of(values: Any) -> list[int]:
    return [int(n) for n in (values.get_shape() if hasattr(values, "get_shape") else values.shape)]


def read_parts(values: Any, indices: Sequence[int], axis: int, dtype: torch.dtype) -> Tensor:
    """A copy of the samples on `axis`, read by slices: all that a safetensors file can do."""
    leading = (slice(None),) * axis
    parts = [values[(*leading, run)] for run in runs(indices)]
    return torch.cat([copied(part, dtype) for part in parts], axis)


def copied(part: Any, dtype: torch.dtype) -> Tensor:
    if isinstance(part, Tensor):
        return part.to(dtype, copy=True)
    return torch.from_numpy(np.array(part, np.float32 if dtype == torch.float32 else np.int64))


def runs(indices: Sequence[int]) -> Iterator[slice]:
    """Slices of consecutive numbers."""
    start = 0
    for i in range(1, len(indices) + 1):
        if i == len(indices) or indices[i] != indices[i - 1] + 1:
            yield slice(indices[start], indices[i - 1] + 1)
            start = i


class OneByOne:
    """Samples of a map-style data set of pairs (x, label)."""

    def __init__(self, pairs: Any) -> None:
        self.pairs = pairs

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        pairs = [self.pairs[i] for i in indices]
        x = torch.stack([torch.as_tensor(x, dtype=torch.float32) for x, _ in pairs])
        return x, torch.stack([torch.as_tensor(y).long() for _, y in pairs])


class BatchAxis:
    """Samples with the batch on another axis: [T, N, ...] for models that take time first."""

    def __init__(self, samples: Samples, axis: int) -> None:
        self.samples, self.axis, self.classes = samples, axis, samples.classes

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        x, y = self.samples[indices]
        if self.axis >= x.dim():
            raise DataError(f"a batch of shape {list(x.shape)} has no batch axis {self.axis}")
        return x.movedim(0, self.axis).contiguous(), y


def file_samples(path: Path, axis: int) -> ArraySamples:
    """x and maybe y of a .npy (mapped), .npz (read whole) or .safetensors (sliced) file."""
    try:
        x, y = READERS[path.suffix](path)
        return ArraySamples(x, y, axis, path)
    except FileNotFoundError as e:
        raise DataError(f"there is no data file {path}") from e
    except OSError as e:
        raise DataError(f"cannot read the data file {path}: {e.strerror or e}") from e
    except UNREADABLE as e:
        raise DataError(f"{path} is truncated or not a {path.suffix} file of numbers") from e


def read_npy(path: Path) -> tuple[Any, Any]:
    return np.load(path, mmap_mode="r", allow_pickle=False), None


def read_npz(path: Path) -> tuple[Any, Any]:
    with np.load(path, allow_pickle=False) as arrays:
        x = arrays[name_of_samples(path, arrays.files)]
        return x, arrays[LABELS] if LABELS in arrays.files else None


def read_safetensors(path: Path) -> tuple[Any, Any]:
    if not path.exists():
        raise FileNotFoundError(path)
    handle: Any = safe_open(path, framework="pt")  # stays open: x and y are read slice by slice
    names = list(handle.keys())
    x = handle.get_slice(name_of_samples(path, names))
    return x, handle.get_slice(LABELS) if LABELS in names else None


READERS = {".npy": read_npy, ".npz": read_npz, ".safetensors": read_safetensors}
