"""What a batch may be: a tensor, an array, (x, y), or a mapping with names; and data that are no batches yet.

A data set with a length and numbered samples is stacked into batches; a pair of samples and labels is split.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ptq4snn.errors import DataError
from ptq4snn.files import short

__all__ = ["as_tensor", "batches_in", "inputs_and_labels", "is_data_set", "is_pair", "stacked"]

STACKED = 64  # samples of a data set that become a batch
INPUTS = (
    "x", "input", "inputs", "image", "images", "img", "pixel_values", "frame", "frames", "events", "features",
    "data",
)  # fmt: skip
LABELS = ("y", "label", "labels", "target", "targets")


def batches_in(data: Any, batch_axis: int = 0, labels: bool = True, size: int = 256) -> Iterable[Any]:
    """Batches of whatever holds samples: a tensor or an array, (x, y), a data set, an iterable of batches.

    labels: whether the labels of a data set's samples are read; they may be anything where they are not.
    """
    axis: Any = batch_axis
    if isinstance(axis, bool) or not isinstance(axis, Integral) or int(axis) < 0:
        raise DataError(f"batch_axis must be a whole number of 0 or more, not {short(repr(batch_axis))}")
    if isinstance(data, np.ndarray | Tensor):
        return _split(as_tensor(data), None, batch_axis, size)
    if is_pair(data, batch_axis):
        return _split(as_tensor(data[0]), as_tensor(data[1]), batch_axis, size)
    if isinstance(data, Mapping):
        return _split(*inputs_and_labels(data, labels), batch_axis, size)
    if is_data_set(data):
        return _stacked(data, batch_axis, labels)
    if not isinstance(data, Iterable) or isinstance(data, str | bytes):
        raise DataError(
            f"samples must be a tensor, a data set or an iterable of batches, got {type(data).__name__}"
        )
    return data


def inputs_and_labels(batch: Any, labels: bool = True) -> tuple[Tensor, Tensor | None]:
    """x and y of one batch; y is None where there are no labels, or where they are not wanted."""
    if isinstance(batch, Mapping):
        key = named_input(batch)
        named = [k for k in LABELS if labels and k in batch and k != key]
        return as_tensor(batch[key]), as_tensor(batch[named[0]]) if named else None
    if isinstance(batch, tuple | list) and len(batch):
        several = [v for v in batch[0] if _is_array(v)] if isinstance(batch[0], tuple | list) else []
        if len(several) > 1:
            raise DataError(
                f"a batch holds {len(several)} inputs beside its labels: put them into one tensor and take "
                "it apart in the model"
            )
        x = batch[0][0] if isinstance(batch[0], tuple | list) and len(batch[0]) else batch[0]
        return as_tensor(x, batch), as_tensor(batch[1]) if labels and len(batch) > 1 else None
    return as_tensor(batch), None


def _is_array(value: Any) -> bool:
    return isinstance(value, Tensor | np.ndarray)


def named_input(batch: Mapping[Any, Any]) -> Any:
    """The key of a mapping's input: the only array, or the one of a usual name."""
    arrays = [k for k, v in batch.items() if isinstance(v, Tensor | np.ndarray)]
    if len(arrays) == 1:
        return arrays[0]
    usual = [k for k in INPUTS if k in batch]
    if usual:
        return usual[0]
    names = ", ".join(map(repr, batch)) or "nothing"
    raise DataError(f"a batch holds {short(names)}: name its samples x (or input, image, pixel_values)")


def as_tensor(given: Any, batch: Any = None) -> Tensor:
    """A dense tensor of numbers; what holds none is refused by name."""
    try:
        values = torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError) as why:
        kind = type(given if batch is None else batch).__name__
        raise DataError(f"a batch must be a tensor or an (x, y) pair, got {kind}") from why
    if values.is_meta:
        raise DataError("samples on the device meta hold no numbers: give real tensors")
    if values.is_nested:
        raise DataError("nested tensors have no common shape: pad the samples, or give them one by one")
    if values.is_complex():
        raise DataError(f"samples of type {values.dtype} are no inputs of a network: give real numbers")
    if values.is_quantized:
        return values.dequantize()
    return values if values.layout == torch.strided else values.to_dense()


def is_pair(data: Any, batch_axis: int = 0) -> bool:
    """Whether it is all samples with all labels: whole numbers, one (or one map) for each sample."""
    if not isinstance(data, tuple | list) or len(data) != 2:
        return False
    x, y = data
    if not all(isinstance(v, Tensor | np.ndarray) for v in data) or not whole_numbers(y):
        return False
    fits = batch_axis < x.ndim and y.ndim in (1, 3) and x.shape[batch_axis] == len(y)
    return fits and (y.ndim != x.ndim or not whole_numbers(x))


def whole_numbers(values: Tensor | np.ndarray[Any, Any]) -> bool:
    if isinstance(values, Tensor):
        return not values.is_floating_point() and not values.is_complex()
    return values.dtype.kind in "biu"


def is_data_set(data: Any) -> bool:
    """Whether `data[i]` is one sample: torch's data sets, and what has a length and no iterator."""
    if isinstance(data, torch.utils.data.Dataset):
        return not isinstance(data, torch.utils.data.IterableDataset) and hasattr(data, "__len__")
    numbered = hasattr(data, "__getitem__") and hasattr(data, "__len__")
    return numbered and not hasattr(data, "__iter__")


def _split(x: Tensor, y: Tensor | None, axis: int, size: int) -> list[Any]:
    """Views of `size` samples each."""
    if x.dim() <= axis:
        return [x]
    parts = x.split(size, axis)
    return list(parts) if y is None else list(zip(parts, y.split(size), strict=True))


def _stacked(data: Any, axis: int, labels: bool) -> Iterator[Any]:
    """Batches of a data set's samples; recordings of different lengths in batches of their own."""
    for start in range(0, len(data), STACKED):
        groups: dict[tuple[int, ...], list[Any]] = {}
        for i in range(start, min(start + STACKED, len(data))):
            item = data[i]
            groups.setdefault(tuple(inputs_and_labels(item, labels)[0].shape), []).append(item)
        for items in groups.values():
            yield stacked(items, axis, labels)


def stacked(items: Iterable[Any], axis: int = 0, labels: bool = True) -> Any:
    """The batch x, or (x, y) where every item has a label, of items as a data set has them."""
    pairs = [inputs_and_labels(item, labels) for item in items]
    x = _stack([x for x, _ in pairs], axis)
    ys = [y for _, y in pairs if y is not None]
    return (x, _stack(ys, 0)) if len(ys) == len(pairs) else x


def _stack(parts: list[Tensor], axis: int) -> Tensor:
    shapes = list(dict.fromkeys(tuple(p.shape) for p in parts))
    if len(shapes) > 1:
        raise DataError(f"samples have different shapes: {list(shapes[1])} after {list(shapes[0])}")
    if axis > len(shapes[0]):
        raise DataError(f"a sample of shape {list(shapes[0])} cannot be put on a batch axis {axis}")
    return torch.stack(parts, axis)
