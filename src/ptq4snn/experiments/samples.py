"""What a comparison runs on: which calibration samples a seed draws, and marks of model and data.

Marks follow content, not names or places. Of a data set they look at its size and at a few samples: one that
was replaced is found, a single changed sample may not be.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ptq4snn.calibration import batches_of
from ptq4snn.checkpoint.naming import COUNTER
from ptq4snn.data.batches import ArraySamples
from ptq4snn.data.samples import SampleBatches
from ptq4snn.discovery.discover import reset_neurons
from ptq4snn.errors import DataError

__all__ = ["data_mark", "draw", "model_mark", "pool", "reiterable"]

MARKED = 16  # samples of a data set that its mark looks at
MICRO_BATCH = 16


def pool(samples: Any, batch_axis: int) -> SampleBatches[Any]:
    """Calibration samples that can be drawn by number; an iterable of batches is read whole."""
    if isinstance(samples, SampleBatches):
        return samples
    if not isinstance(samples, Tensor):
        parts = list(batches_of(samples, batch_axis))
        if not parts:
            raise DataError("no samples to calibrate with; give at least one batch")
        samples = torch.cat(parts, batch_axis)
    return SampleBatches(ArraySamples(samples, axis=batch_axis), MICRO_BATCH)


def draw(batches: SampleBatches[Any], count: int, seed: int) -> SampleBatches[Any]:
    """`count` of the samples in a random order, the same ones for the same seed."""
    g = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(batches.indices), generator=g)[:count].tolist()
    return SampleBatches(batches.samples, MICRO_BATCH, batches.workers, [batches.indices[i] for i in order])


def reiterable(batches: Iterable[Any]) -> Any:
    """Batches that every method can read; what can be read once is kept."""
    return list(batches) if iter(batches) is batches else batches


def model_mark(model: nn.Module) -> str:
    """Of its tensors, and of its modules' plain settings (thresholds, strides, time steps) and code."""
    reset_neurons(model)
    mark, texts = hashlib.sha256(), set[str]()
    for name, tensor in sorted(model.state_dict().items()):
        if isinstance(tensor, Tensor) and not name.endswith(COUNTER):
            mark.update(name.encode())
            _add(mark, tensor)
    for name, module in model.named_modules():
        mark.update(json.dumps([name, type(module).__name__, settings(module)]).encode())
    for kind in {type(m) for m in model.modules()}:
        texts.add(source_of(kind))
    for text in sorted(texts):
        mark.update(text.encode())
    return mark.hexdigest()[:16]


def source_of(kind: type) -> str:
    """The code of a module's class, "" for torch's own and where there is none to read."""
    if kind.__module__.split(".")[0] == "torch":
        return ""
    try:
        return inspect.getsource(kind)
    except (OSError, TypeError):
        return ""


def settings(module: nn.Module) -> dict[str, Any]:
    """Public attributes that are plain values or rows of them, but for the mode it happens to be in."""
    found = {k: v for k, v in sorted(vars(module).items()) if not k.startswith("_") and k != "training"}
    return {k: v for k, v in found.items() if is_plain(v)}


def is_plain(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(map(is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def data_mark(data: Any, limit: int | None = None) -> str:
    """Of the number of samples and of a few of them, evenly spaced; of a list of batches all."""
    mark = hashlib.sha256()
    if isinstance(data, SampleBatches):
        indices: Sequence[int] = data.indices[:limit]
        mark.update(str(len(indices)).encode())
        for i in range(min(MARKED, len(indices))):
            _add(mark, data.samples[[indices[i * len(indices) // MARKED if len(indices) > MARKED else i]]])
    else:
        for batch in data:
            _add(mark, batch)
    return mark.hexdigest()[:16]


def _add(mark: Any, value: Any) -> None:
    if isinstance(value, tuple | list):
        for item in value:
            _add(mark, item)
        return
    tensor = torch.as_tensor(value).detach().cpu().contiguous()
    mark.update(f"{tensor.dtype}{list(tensor.shape)}".encode())
    mark.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
