"""CIFAR10-DVS: recordings of a DVS128 in 10 class folders, as published (.aedat) or as SpikingJelly's .npz.

AEDAT 2.0 is header lines that begin with #, then big-endian pairs of 32 bits, address and time in us:

    address = ... yyyyyyy xxxxxxxp      y: bits 14..8, x: bits 7..1
    column 127 - y,  row 127 - x,  polarity 1 - p      as SpikingJelly turns them upright
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from ptq4snn.data.events import Events, EventSamples, check_events, class_files, open_integers, read_bytes
from ptq4snn.data.images import height_width
from ptq4snn.data.samples import Origin, Preprocessing
from ptq4snn.errors import DataError

__all__ = ["CIFAR10DVSSamples", "read_aedat", "read_events_npz"]

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SENSOR = 128
STEPS = 10
TRAIN_SHARE = 0.9
EVENT = 8  # bytes


class CIFAR10DVSSamples(EventSamples):
    """Per class the first ceil(0.9 n) recordings, in the order of their names, train; the rest test.

    x is float32 [B, T, 2, H, W]: T = `steps` (10) frames of equally many events, resized to `size`; without a
    size it stays 128 x 128 (Spikformer, QKFormer; the Spike-driven Transformer takes 64).
    """

    sorted_by_class = True  # a calibration set must be drawn, not cut off the front

    def __init__(self, root: Path, train: bool, preprocessing: Preprocessing | None = None) -> None:
        preprocessing = preprocessing or Preprocessing()
        self.steps = STEPS if preprocessing.steps is None else preprocessing.steps
        self.size = height_width(preprocessing.size or SENSOR)
        folder = class_root(root)
        suffix = ".aedat" if any((folder / CLASSES[0]).glob("*.aedat")) else ".npz"
        self.files: list[Path] = []
        labels = []
        for label, files in enumerate(class_files(folder, CLASSES, suffix)):
            cut = math.ceil(len(files) * TRAIN_SHARE)
            part = files[:cut] if train else files[cut:]
            self.files += part
            labels += [label] * len(part)
        if not labels:
            raise DataError(
                f"{folder} leaves no recordings to test with: a class needs 10 files for a 9:1 split"
            )
        self.labels = torch.tensor(labels)

    def origin(self, indices: Sequence[int]) -> Origin:
        labels = [int(self.labels[i]) for i in indices]
        return Origin([self.files[i] for i in indices], [self.steps, self.size, labels])

    def events(self, i: int) -> Events:
        file = self.files[i]
        return read_aedat(file) if file.suffix == ".aedat" else read_events_npz(file)


def class_root(root: Path) -> Path:
    """The folder of the class folders: `root`, or what SpikingJelly makes in it."""
    for folder in (root, root / "events_np", root / "extract"):
        if (folder / CLASSES[0]).is_dir():
            return folder
    raise DataError(f"{root} holds no class folders {CLASSES[0]} .. {CLASSES[-1]}: unpack CIFAR10-DVS there")


def read_aedat(path: Path) -> Events:
    """The events of a DVS128 recording in AEDAT 2.0."""
    data = read_bytes(path)
    start = 0
    while data[start : start + 1] == b"#":  # a DVS128 address never begins with this byte
        start = (data.find(b"\n", start) + 1) or len(data)
    if start == 0 or not data.startswith(b"#!AER-DAT2"):
        raise DataError(f"{path} is not an AEDAT 2.0 recording: give the files of CIFAR10-DVS as published")
    if (len(data) - start) % EVENT:
        raise DataError(f"{path} is truncated: {len(data) - start} bytes are not whole events of {EVENT}")
    address, t = np.frombuffer(data, ">u4", offset=start).astype(np.int64).reshape(-1, 2).T
    x, y, p = 127 - (address >> 8 & 127), 127 - (address >> 1 & 127), 1 - (address & 1)
    return check_events(Events(t, x, y, p, SENSOR, SENSOR), path)


def read_events_npz(path: Path) -> Events:
    """The events of SpikingJelly's events_np: arrays t, x, y, p."""
    t, x, y, p = (v.astype(np.int64) for v in open_integers(path, ("t", "x", "y", "p")))
    return check_events(Events(t, x, y, p, SENSOR, SENSOR), path)
