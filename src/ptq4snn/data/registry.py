"""The data sets by name: how each is opened, and how its folder or file is recognised.

Readers that recognition does not need are imported when their data set is opened.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from ptq4snn.data.arrays import UNREADABLE
from ptq4snn.data.cifar import CifarSamples, Name, find_cifar
from ptq4snn.data.imagenet import ImageNetSamples, holds_imagenet
from ptq4snn.data.samples import Preprocessing, Samples
from ptq4snn.data.voc import SHORTER, VOCSamples, find_voc
from ptq4snn.errors import DataError

__all__ = ["DATA", "DataSet", "Split", "recognise"]

Split = Literal["train", "calibration", "test", "val"]  # calibration reads the train split


@dataclass(frozen=True)
class DataSet:
    open: Callable[[Path, Split, Preprocessing], Samples]
    found: Callable[[Path], bool] = lambda path: False  # whether a path without a name is this data set


def is_train(split: Split) -> bool:
    return split in ("train", "calibration")


def open_cifar(path: Path, split: Split, preprocessing: Preprocessing, name: Name) -> Samples:
    return CifarSamples(path, name, is_train(split), preprocessing)


def open_imagenet(path: Path, split: Split, preprocessing: Preprocessing) -> Samples:
    return ImageNetSamples(path, is_train(split), preprocessing)


def open_voc(path: Path, split: Split, preprocessing: Preprocessing) -> Samples:
    """Tested at native size; trained and calibrated at one size, because samples of a batch must have one."""
    if is_train(split) and preprocessing.size is None:
        preprocessing = replace(preprocessing, size=preprocessing.resize or SHORTER)
    return VOCSamples(path, is_train(split), preprocessing)


def open_camvid(path: Path, split: Split, preprocessing: Preprocessing) -> Samples:
    from ptq4snn.data.camvid import CamVidSamples

    return CamVidSamples(path, "train" if split == "calibration" else split, preprocessing)


def open_cifar10_dvs(path: Path, split: Split, preprocessing: Preprocessing) -> Samples:
    from ptq4snn.data.cifar10_dvs import CIFAR10DVSSamples

    return CIFAR10DVSSamples(path, is_train(split), preprocessing)


def open_cifar10_dvs_sim(path: Path, split: Split, preprocessing: Preprocessing) -> Samples:
    from ptq4snn.data.cifar10_dvs_sim import CIFAR10DVSSimSamples

    return CIFAR10DVSSimSamples(path, is_train(split), preprocessing)


def open_nmnist(path: Path, split: Split, preprocessing: Preprocessing) -> Samples:
    from ptq4snn.data.nmnist import NMNISTSamples

    return NMNISTSamples(path, is_train(split), preprocessing)


def open_nmnist_nir(path: Path, split: Split, preprocessing: Preprocessing) -> Samples:
    """The NIR paper's binning is fixed: there is nothing to preprocess."""
    from ptq4snn.data.nmnist import NMNISTNIRSamples

    return NMNISTNIRSamples(path, is_train(split))


def is_camvid(path: Path) -> bool:
    names = npz_names(path)
    return {"train_x", "train_y"} <= names and "train_t_us" not in names


def is_nmnist(path: Path) -> bool:
    folders = any((path / split / "0").is_dir() for split in ("Train", "Test"))
    return folders or "train_t_us" in npz_names(path)


def is_cifar10_dvs(path: Path) -> bool:
    folders = [path / "airplane", path / "extract" / "airplane", path / "events_np" / "airplane"]
    return any(file.suffix in (".aedat", ".npz") for folder in folders for file in folder.glob("*"))


def npz_names(path: Path) -> set[str]:
    """Names of the arrays, without reading them; none where it is no such file."""
    if path.suffix != ".npz" or not path.is_file() or not zipfile.is_zipfile(path):
        return set()
    try:
        with zipfile.ZipFile(path) as file:
            return {name.removesuffix(".npy") for name in file.namelist()}
    except (*UNREADABLE, OSError):
        return set()


DATA: Mapping[str, DataSet] = {
    "cifar10": DataSet(partial(open_cifar, name="cifar10"), lambda p: find_cifar(p, "cifar10") is not None),
    "cifar100": DataSet(
        partial(open_cifar, name="cifar100"), lambda p: find_cifar(p, "cifar100") is not None
    ),
    "imagenet": DataSet(open_imagenet, holds_imagenet),
    "voc2012": DataSet(open_voc, lambda p: find_voc(p) is not None),
    "camvid": DataSet(open_camvid, is_camvid),
    "cifar10-dvs": DataSet(open_cifar10_dvs, is_cifar10_dvs),
    "cifar10-dvs-sim": DataSet(open_cifar10_dvs_sim),  # made from CIFAR-10's own folder: named, never guessed
    "nmnist": DataSet(open_nmnist, is_nmnist),
    "nmnist-nir": DataSet(open_nmnist_nir),  # the files of nmnist
}


def recognise(path: Path) -> str | None:
    """The data set that a folder or file holds, if it is one."""
    names = [name for name, data in DATA.items() if data.found(path)]
    if len(names) > 1:
        raise DataError(
            f"{path} holds {' and '.join(names)}: choose with {names[0]}:{path} or {names[1]}:{path}"
        )
    return names[0] if names else None
