"""Arrays of the user as samples: tensors, files of arrays, data sets of single samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ptq4snn.data.arrays import open_arrays, readable
from ptq4snn.data.samples import Batch, Origin, Samples
from ptq4snn.errors import DataError
from ptq4snn.forms import inputs_and_labels, stacked

__all__ = ["ArraySamples", "BatchAxis", "OneByOne", "file_samples"]

FLOATS = (np.float16, np.float32, np.float64, torch.float16, torch.bfloat16, torch.float32, torch.float64,
          "F8_E4M3", "F8_E5M2", "F16", "BF16", "F32", "F64")  # fmt: skip


class ArraySamples:
    """Samples of anything with a shape and slices: tensors, (memory-mapped) arrays, safetensors slices.

    x has its samples on `axis` and becomes float32; y, if any, holds class numbers [N] or maps [N, H, W] and
    becomes int64. What is read is copied, so that a read-only map can be used.
    """

    def __init__(self, x: Any, y: Any = None, axis: int = 0, name: object = "x") -> None:
        shape = shape_of(x)
        if not 0 <= axis < len(shape):
            raise DataError(f"{name}: x has shape {shape} and no batch axis {axis}: change batch_axis")
        self.x, self.y, self.axis, self.count, self.name = x, y, axis, shape[axis], name
        if 0 in shape:
            raise DataError(f"{name} holds no samples: x has shape {shape}")
        for key, values in (("x", x), ("y", y)):
            if isinstance(values, np.ndarray) and values.dtype.kind not in "biuf":
                raise DataError(f"{name}: {key} holds {values.dtype} values: store numbers")
        kind = dtype_of(y)
        if kind in FLOATS:
            raise DataError(f"{name}: y holds {kind} values: labels are whole numbers")
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

    def origin(self, indices: Sequence[int]) -> Origin | None:
        return Origin([self.name], [self.axis]) if isinstance(self.name, Path) else None


def shape_of(values: Any) -> list[int]:
    return [int(n) for n in (values.get_shape() if hasattr(values, "get_shape") else values.shape)]


def dtype_of(values: Any) -> Any:
    """Of an array or a tensor, or the name that a safetensors slice has for it; None of anything else."""
    return values.get_dtype() if hasattr(values, "get_dtype") else getattr(values, "dtype", None)


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
    """Samples of a map-style data set: `items[3]` is x, (x, label) or a mapping with names of such."""

    def __init__(self, items: Any, axis: int = 0) -> None:
        self.items, self.axis = items, axis

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, indices: Sequence[int]) -> Batch:
        x, y = inputs_and_labels(stacked([self.items[i] for i in indices], self.axis))
        return x.float() if y is None else (x.float(), y if y.is_floating_point() else y.long())


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

    def origin(self, indices: Sequence[int]) -> Origin | None:
        found: Origin | None = self.samples.origin(indices) if hasattr(self.samples, "origin") else None
        kind = type(self.samples).__name__
        return None if found is None else Origin(found.files, [kind, found.settings, self.axis])


def file_samples(path: Path, axis: int) -> ArraySamples:
    """x and maybe y of a .npy (mapped), .npz (read whole) or .safetensors (sliced) file."""
    with readable(path):
        return ArraySamples(*open_arrays(path, "pt"), axis, path)
