"""Recordings of an event camera, and their frames: counts [T, 2, H, W] of events per pixel and polarity.

No library does this here: expelliarmus 1.1.12 reads neither AEDAT 2.0 nor .bin and has no wheels for Python
3.12; tonic 1.7.0 needs it, fails on AEDAT 2.0, and drops the rest of the events when it makes T equal frames.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ptq4snn.errors import DataError

__all__ = [
    "EventSamples",
    "Events",
    "Integers",
    "check_events",
    "class_files",
    "frames_by_number",
    "frames_by_time",
    "open_integers",
    "open_npz",
    "read_bytes",
    "resize",
]

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Events:
    """Events in the order of the recording."""

    t: Integers  # microseconds
    x: Integers  # column, 0 .. width - 1
    y: Integers  # row, 0 .. height - 1
    p: Integers  # 1 brighter, 0 darker
    width: int
    height: int

    def __len__(self) -> int:
        return len(self.t)


def check_events(events: Events, name: object) -> Events:
    """`events` if they fit their sensor; `name` is what the user knows the recording by."""
    if len({len(v) for v in (events.t, events.x, events.y, events.p)}) != 1:
        raise DataError(f"{name} is damaged: t, x, y and p have different lengths; get it again")
    if len(events) == 0:
        raise DataError(f"{name} holds no events: get it again")
    for key, values, end in (
        ("x", events.x, events.width),
        ("y", events.y, events.height),
        ("p", events.p, 2),
    ):
        outside = values[(values < 0) | (values >= end)]
        if len(outside):
            raise DataError(
                f"{name} is damaged or of another camera: {key} = {outside[0]} is not in 0 .. {end - 1}"
            )
    return events


def frames_by_number(events: Events, steps: int) -> Integers:
    """Counts [T, 2, H, W] of T frames with floor(N / T) events each; the last one takes the rest as well.

    SpikingJelly's split_by='number'.
    """
    need_frames(steps)
    number, share = np.arange(len(events)), len(events) // steps
    # fewer events than frames: all of them are the rest
    frame = np.minimum(number // share, steps - 1) if share else np.full_like(number, steps - 1)
    return count(events, frame, steps)


def frames_by_time(events: Events, steps: int, width_us: int) -> Integers:
    """Counts [T, 2, H, W] of T bins of `width_us` from time 0; later events are left out."""
    need_frames(steps)
    frame = events.t // width_us
    inside = (frame >= 0) & (frame < steps)
    t, x, y, p = (v[inside] for v in (events.t, events.x, events.y, events.p))
    return count(Events(t, x, y, p, events.width, events.height), frame[inside], steps)


def need_frames(steps: int) -> None:
    if steps < 1:
        raise DataError(f"a recording cannot be cut into {steps} frames: give 1 or more steps")


def count(events: Events, frame: Integers, steps: int) -> Integers:
    h, w = events.height, events.width
    cell = ((frame * 2 + events.p) * h + events.y) * w + events.x
    return np.bincount(cell, minlength=steps * 2 * h * w).reshape(steps, 2, h, w)


def resize(x: Tensor, size: tuple[int, int]) -> Tensor:
    """Images or frames [..., H, W] at another size: bilinear with antialiasing.

    That is torchvision's Resize of tensors since 0.17; before, it did not smooth unless asked to.
    """
    if tuple(x.shape[-2:]) == size:
        return x
    flat = x.reshape(-1, 1, *x.shape[-2:])
    scaled = torch.nn.functional.interpolate(flat, size, mode="bilinear", align_corners=False, antialias=True)
    return scaled.reshape(*x.shape[:-2], *size)


class EventSamples(ABC):
    """Labelled recordings as frames: x float32 [B, T, 2, H, W] without normalisation, y int64 [B]."""

    classes = 10
    labels: Tensor  # int64 [N]
    steps: int  # T
    size: tuple[int, int]  # H, W

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        picked = [range(len(self))[i] for i in indices]  # raises IndexError behind the end
        return torch.stack([self.sample(i) for i in picked]), self.labels[picked]

    def sample(self, i: int) -> Tensor:
        """float32 [T, 2, H, W] of recording i."""
        return self.fit(torch.from_numpy(self.frames(self.events(i))).float())

    @abstractmethod
    def events(self, i: int) -> Events:
        """Recording i, checked."""

    def frames(self, events: Events) -> Integers:
        return frames_by_number(events, self.steps)

    def fit(self, frames: Tensor) -> Tensor:
        return resize(frames, self.size)


def class_files(folder: Path, names: Sequence[str], suffix: str) -> list[list[Path]]:
    """The files of each class folder, in the order of their names."""
    files = []
    for name in names:
        found = sorted((folder / name).glob(f"*{suffix}"), key=lambda f: f.name)
        if not found:
            raise DataError(f"the folder {folder / name} holds no {suffix} files: unpack the data set again")
        files.append(found)
    return files


def read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as e:
        raise DataError(f"cannot read the recording {path}: {e.strerror or e}") from e


def open_npz(path: Path, keys: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
    """The named arrays of an .npz file, in the order of `keys`; pickled objects are refused unread."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {k: file[k] for k in keys if k in file.files}
            if any(
                isinstance(a, bytes) for a in arrays.values()
            ):  # NumPy's answer to a part that is no array
                raise ValueError("not an array")
    except FileNotFoundError as e:
        raise DataError(f"there is no data file {path}") from e
    except OSError as e:
        raise DataError(f"cannot read the data file {path}: {e.strerror or e}") from e
    except Exception as e:  # arbitrary bytes make the parsers raise anything, zlib.error included
        raise DataError(f"{path} is truncated or not an .npz file of numbers: get it again") from e
    if missing := [k for k in keys if k not in arrays]:
        raise DataError(f"{path} holds no {', '.join(missing)}: expected the arrays {', '.join(keys)}")
    return arrays


def open_integers(path: Path, keys: Sequence[str]) -> list[npt.NDArray[Any]]:
    """The named arrays of an .npz file, each of integers [n]."""
    arrays = open_npz(path, keys)
    for key, values in arrays.items():
        if values.ndim != 1 or values.dtype.kind not in "biu":
            raise DataError(
                f"{path}: {key} is {values.dtype} {list(values.shape)} instead of integers [n]: get it again"
            )
    return list(arrays.values())
