"""CIFAR10-DVS-sim: SIMULATED event recordings of CIFAR-10 images, not the recordings of CIFAR10-DVS."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ptq4snn.data.cifar import CifarSamples
from ptq4snn.data.event_simulator import Camera, simulate_events
from ptq4snn.data.events import Events, EventSamples
from ptq4snn.data.images import height_width
from ptq4snn.data.samples import Origin, Preprocessing
from ptq4snn.errors import DataError

__all__ = ["CAMERA", "CIFAR10DVSSimSamples"]

TRAIN_PER_CLASS, TEST_PER_CLASS = 400, 100
STEPS = 10
TEST_NUMBER = 50_000  # recordings of test images are numbered behind those of training images
LUMA = (0.299, 0.587, 0.114)  # Rec. 601
CAMERA = Camera(sensor=32, amplitude=2.0)


class CIFAR10DVSSimSamples(EventSamples):
    """Simulated recordings of the first 400 training (100 test) images per class, in the order of the files.

    x is float32 [B, T, 2, size, size]: T = `steps` (10) frames of equally many events, counts up to 255.
    A recording is simulated when it is first asked for and its frames are kept: T * 2 * size^2 bytes each.
    """

    name = "CIFAR10-DVS-sim (simulated)"

    def __init__(
        self,
        cifar_root: Path,
        train: bool,
        preprocessing: Preprocessing | None = None,
        count: int | None = None,
        seed: int = 0,
    ) -> None:
        """`count` takes the first recordings only, for a shorter experiment."""
        preprocessing = preprocessing or Preprocessing()
        if count is not None and count < 1:
            raise DataError(f"{self.name} cannot have {count} recordings: give 1 or more")
        self.steps = STEPS if preprocessing.steps is None else preprocessing.steps
        self.camera = camera_of(preprocessing.size or CAMERA.sensor)
        self.size, self.seed = (self.camera.sensor, self.camera.sensor), seed
        cifar = CifarSamples(cifar_root, "cifar10", train)
        labels = np.concatenate([labels for _, labels in cifar.parts])
        chosen = first_per_class(labels, TRAIN_PER_CLASS if train else TEST_PER_CLASS)[:count]
        self.files, self.pixels, self.labels = cifar.files, *cifar.pixels(chosen)
        self.numbers = [i if train else TEST_NUMBER + i for i in chosen]
        self.kept: dict[int, npt.NDArray[np.uint8]] = {}

    def origin(self, indices: Sequence[int]) -> Origin:
        return Origin(self.files, [self.steps, self.size, self.seed, self.numbers])

    def sample(self, i: int) -> Tensor:
        if i not in self.kept:
            self.kept[i] = np.minimum(self.frames(self.events(i)), 255).astype(np.uint8)
        return torch.from_numpy(self.kept[i]).float()

    def events(self, i: int) -> Events:
        """The simulated recording of sample i."""
        luminance = torch.tensordot(torch.tensor(LUMA).double(), self.pixels[i].double() / 255, 1)
        return simulate_events(luminance.numpy(), self.camera, seed=self.seed, number=self.numbers[i])


def camera_of(size: int | tuple[int, int]) -> Camera:
    """The camera with a sensor of `size`; the image still fills it and moves by the same part of itself."""
    h, w = height_width(size)
    if h != w:
        raise DataError(
            f"{CIFAR10DVSSimSamples.name} has a square sensor: give one size instead of {h} x {w}"
        )
    return replace(CAMERA, sensor=h, amplitude=CAMERA.amplitude * h / CAMERA.sensor)


def first_per_class(labels: npt.NDArray[np.integer], count: int) -> list[int]:
    """Numbers of the first `count` samples of each class, in ascending order."""
    first = [np.flatnonzero(labels == c)[:count] for c in np.unique(labels)]
    numbers: list[int] = np.sort(np.concatenate(first)).tolist()
    return numbers
