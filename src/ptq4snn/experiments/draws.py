"""What a comparison runs on: which calibration samples a seed draws."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from ptq4snn.calibration.calibration_set import batches_of
from ptq4snn.data.batches import ArraySamples
from ptq4snn.data.samples import SampleBatches
from ptq4snn.errors import DataError
from ptq4snn.forms import is_data_set

__all__ = ["draw", "pool", "reiterable"]

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
    if is_data_set(batches) or isinstance(batches, Tensor):
        return batches
    return list(batches) if iter(batches) is batches else batches
