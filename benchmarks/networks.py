"""The trained networks that methods are compared on: those of this repository, and four that others trained.

`case(name, places)` opens one with its samples; `places` says where things are that are not part of this
repository, by their names:

    cifar10, cifar100, nmnist    data sets in the layouts that `ptq4snn data` lists
    braille                      the folder paper/03_rnn of the package nir 1.0.3: two recurrent networks
                                 (current and membrane, T = 256) and their letters
    nmnist-cnn                   the NIR paper's convolutional network as a .nir file (T = 300)
    resnet20                     a checkpoint of akamaster/pytorch_resnet_cifar10, converted by SpikingJelly's
                                 ann2snn (benchmarks/converted_resnet.py)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import ptq4snn
from ptq4snn.data.samples import Preprocessing, SampleBatches
from ptq4snn.data.source import open_samples
from ptq4snn.models.trained import TRAINED

__all__ = ["FOREIGN", "Case", "braille", "case", "nmnist_cnn"]

Places = Mapping[str, str]
BRAILLE = {"subtract": "braille_noDelay_noBias_subtract.nir", "zero": "braille_noDelay_bias_zero.nir"}


@dataclass(frozen=True)
class Case:
    """A trained network with unlabelled samples to calibrate on and labelled ones, (x, y), to test on."""

    data: str
    model: nn.Module
    calibration: Any
    test: Any
    changes: dict[str, Any] = field(default_factory=dict)  # of every recipe, where samples are few or long


def own(name: str, places: Places) -> Case | None:
    entry = TRAINED[name]
    if entry.data not in places:
        return None
    data = f"{entry.data}:{places[entry.data]}"
    train = open_samples(data, "calibration", entry.preprocessing, entry.data)
    test = open_samples(data, "test", entry.preprocessing, entry.data)
    return Case(entry.data, entry.load(), SampleBatches(train, 16), SampleBatches(test, 50))


def braille(places: Places, reset: str) -> Case | None:
    """One of the NIR paper's recurrent networks, by what its neurons do when they fire."""
    if "braille" not in places:
        return None
    folder = Path(places["braille"])
    with torch.serialization.safe_globals([TensorDataset]):
        (x, _), (test, labels) = (
            torch.load(folder / "data" / f"ds_{part}.pt", weights_only=True).tensors
            for part in ("train", "test")
        )
    model = ptq4snn.from_nir(folder / BRAILLE[reset], dt=1e-4, reset=reset)
    return Case("braille", model, x.float(), halves(test.float(), labels))


def halves(x: Tensor, y: Tensor) -> list[tuple[Tensor, Tensor]]:
    middle = len(x) // 2
    return [(x[:middle], y[:middle]), (x[middle:], y[middle:])]


def nmnist_cnn(places: Places) -> Case | None:
    if "nmnist-cnn" not in places or "nmnist" not in places:
        return None
    model = ptq4snn.from_nir(places["nmnist-cnn"], reset="subtract")
    train, test = (
        open_samples(places["nmnist"], split, Preprocessing(steps=300), "nmnist-nir")
        for split in ("calibration", "test")
    )
    changes = {"calibration": 96, "holdout": 32, "micro_batch": 8}
    return Case("nmnist", model, SampleBatches(train, 8), SampleBatches(test, 10), changes)


def resnet20(places: Places) -> Case | None:
    """The first 1,000 test images, and 48 training images to calibrate on: T is 32."""
    if "resnet20" not in places or "cifar10" not in places:
        return None
    from converted_resnet import IMAGES, OverTime, converted, opened, trained

    train, test = opened(Path(places["cifar10"]))
    model = OverTime(converted(trained(Path(places["resnet20"])), train[range(IMAGES)][0]))
    changes = {"calibration": 48, "holdout": 16, "micro_batch": 16}
    few = SampleBatches(test, 50, indices=range(1000))
    return Case("cifar10", model, SampleBatches(train, 8), few, changes)


FOREIGN: dict[str, Callable[[Places], Case | None]] = {
    "braille-subtract": lambda places: braille(places, "subtract"),
    "braille-zero": lambda places: braille(places, "zero"),
    "nmnist-cnn-if": nmnist_cnn,
    "resnet20-ann2snn": resnet20,
}


def case(name: str, places: Places) -> Case | None:
    """A network by its name; None where something that it needs is not among the places."""
    return FOREIGN[name](places) if name in FOREIGN else own(name, places)
