"""N-MNIST: MNIST digits seen by an ATIS camera, 34 x 34 pixels; as published (.bin) or packed in one .npz.

A .bin file is 5 bytes per event, first bit first:

    x: 8   y: 8   polarity: 1   time in us: 23      y = 240 is no event: all later times grow by 2^13

The .npz holds {train,test}_{x,y,p,t_us,offsets,label}; recording i is offsets[i] .. offsets[i + 1].
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ptq4snn.data.events import (
    Events,
    EventSamples,
    Integers,
    check_events,
    class_files,
    frames_by_time,
    open_integers,
    read_bytes,
)
from ptq4snn.data.images import height_width
from ptq4snn.data.samples import Origin, Preprocessing
from ptq4snn.errors import DataError

__all__ = ["NMNISTNIRSamples", "NMNISTSamples", "read_atis"]

SENSOR = 34
CROP = 32
STEPS = 10
EVENT = 5  # bytes
OVERFLOW, OVERFLOW_US = 240, 2**13
DIGITS = tuple(str(d) for d in range(10))
KEYS = ("t_us", "x", "y", "p", "offsets", "label")


class NMNISTSamples(EventSamples):
    """x is float32 [B, T, 2, H, W]: T = `steps` (10) frames of equally many events.

    Without a size it stays 34 x 34; 32 cuts the empty margin off; any other size is resized to.
    """

    def __init__(self, root: Path, train: bool, preprocessing: Preprocessing | None = None) -> None:
        """`root` is a folder with Train and Test, or an .npz file."""
        preprocessing = preprocessing or Preprocessing()
        self.steps = STEPS if preprocessing.steps is None else preprocessing.steps
        self.size = height_width(preprocessing.size or SENSOR)
        self.source = Packed(root, train) if root.suffix == ".npz" else Files(root, train)
        self.labels = self.source.labels
        self.sorted_by_class = bool((self.labels.diff() >= 0).all())

    def origin(self, indices: Sequence[int]) -> Origin:
        found = self.source.origin(indices)
        return Origin(found.files, [self.steps, self.size, found.settings])

    def events(self, i: int) -> Events:
        return self.source.events(i)

    def fit(self, frames: Tensor) -> Tensor:
        if self.size == (CROP, CROP):
            margin = (SENSOR - CROP) // 2
            return frames[..., margin:-margin, margin:-margin]
        return super().fit(frames)


class NMNISTNIRSamples(NMNISTSamples):
    """The NIR paper's input [B, 300, 2, 34, 34]: counts in bins of 1 ms from the start of the recording."""

    bins, width_us = 300, 1000

    def __init__(self, root: Path, train: bool) -> None:
        super().__init__(root, train, Preprocessing(steps=self.bins))

    def frames(self, events: Events) -> Integers:
        return frames_by_time(events, self.steps, self.width_us)


class Files:
    """Recordings of a folder: Train/0 .. Test/9."""

    def __init__(self, root: Path, train: bool) -> None:
        folder = root / ("Train" if train else "Test")
        if not folder.is_dir():
            raise DataError(
                f"there is no folder {folder}: give the folder of N-MNIST, or an .npz of its events"
            )
        files = class_files(folder, DIGITS, ".bin")
        self.files = [f for part in files for f in part]
        self.labels = torch.tensor([digit for digit, part in enumerate(files) for _ in part])

    def origin(self, indices: Sequence[int]) -> Origin:
        return Origin([self.files[i] for i in indices], [int(self.labels[i]) for i in indices])

    def events(self, i: int) -> Events:
        return read_atis(self.files[i])


def read_atis(path: Path) -> Events:
    """The events of one .bin file."""
    data = read_bytes(path)
    if len(data) % EVENT:
        raise DataError(f"{path} is truncated: its {len(data)} bytes are not whole events of {EVENT}")
    x, y, high, middle, low = np.frombuffer(data, np.uint8).astype(np.int64).reshape(-1, EVENT).T
    overflow = y == OVERFLOW
    t = ((high & 127) << 16 | middle << 8 | low) + OVERFLOW_US * np.cumsum(overflow)
    real = ~overflow
    return check_events(Events(t[real], x[real], y[real], high[real] >> 7, SENSOR, SENSOR), path)


class Packed:
    """Recordings of one .npz file, kept in memory as they are stored."""

    def __init__(self, path: Path, train: bool) -> None:
        split = "train" if train else "test"
        self.path, self.split = path, split
        arrays = open_integers(path, [f"{split}_{key}" for key in KEYS])
        self.t, self.x, self.y, self.p, self.offsets, label = arrays
        n, ends = len(self.t), self.offsets.astype(np.int64)
        whole = len(ends) > 1 and ends[0] == 0 and ends[-1] == n and bool((np.diff(ends) >= 0).all())
        if not whole or len(label) != len(ends) - 1 or {len(self.x), len(self.y), len(self.p)} != {n}:
            raise DataError(f"{path} is damaged: {split} offsets, labels and events do not belong together")
        if label.min() < 0 or label.max() >= len(DIGITS):
            raise DataError(f"{path} is damaged: {split}_label {label.max()} is no digit")
        self.labels = torch.from_numpy(label.astype(np.int64))

    def origin(self, indices: Sequence[int]) -> Origin:
        return Origin([self.path], self.split)

    def events(self, i: int) -> Events:
        a, b = self.offsets[i : i + 2]
        t, x, y, p = (v[a:b].astype(np.int64) for v in (self.t, self.x, self.y, self.p))
        return check_events(Events(t, x, y, p, SENSOR, SENSOR), f"{self.path}, recording {i}")
