"""Samples kept for several passes, packed without loss: images have at most 256 values a channel."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["PackedBatch", "pack"]

CODES = 256
MOST_CHANNELS = 64  # an axis longer than this is no axis of input channels


@dataclass(frozen=True)
class PackedBatch:
    """Codes of one byte and, for every index along `axis`, the values that they stand for; or the samples."""

    content: Tensor
    tables: tuple[Tensor, ...] = ()
    axis: int = 0

    @property
    def dtype(self) -> torch.dtype:
        return self.tables[0].dtype if self.tables else self.content.dtype

    def unpack(self) -> Tensor:
        """The samples as they were, on the device where they were."""
        if not self.tables:
            return self.content
        parts = self.content.split(self.content.shape[self.axis] // len(self.tables), self.axis)
        values = [table[part.to(table.device).long()] for table, part in zip(self.tables, parts, strict=True)]
        return torch.cat(values, self.axis)


def pack(x: Tensor, batch_axis: int = 0) -> PackedBatch:
    """Pack a batch: by one table, else by one for every index of the first axis where that is enough."""
    if x.element_size() == 1:
        return PackedBatch(x)
    axes = [d for d in range(x.dim()) if d != batch_axis and 1 < x.shape[d] <= MOST_CHANNELS]
    for axis, count in [(0, 1), *((d, x.shape[d]) for d in axes)]:
        found = _coded(x, axis, count)
        if found is not None:
            return found
    return PackedBatch(x)


def _coded(x: Tensor, axis: int, count: int) -> PackedBatch | None:
    tables, codes = [], []
    for part in x.chunk(count, axis):
        if len(part.flatten()[: 16 * CODES].unique()) > CODES:  # most that do not fit show it at once
            return None
        table, code = part.unique(return_inverse=True)
        if len(table) > CODES:
            return None
        tables.append(table)
        codes.append(code.to(torch.uint8).cpu())
    return PackedBatch(torch.cat(codes, axis), tuple(tables), axis)
