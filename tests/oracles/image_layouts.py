"""Small image data sets, written byte for byte in their official layouts."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np

IMAGE = 3072
TRAIN10 = [f"data_batch_{i}" for i in range(1, 6)]


def cifar_arrays(classes: int = 10, count: int = 23) -> tuple[np.ndarray, np.ndarray]:
    """Random images [N, 3072] and class numbers that count up."""
    images = np.random.default_rng(classes).integers(0, 256, (count, IMAGE), np.uint8)
    return images, (np.arange(count) * (1 if classes == 10 else 7)) % classes


def shares(name: str, ending: str) -> dict[str, slice]:
    """File names and their parts of 23 samples: the train files share 20, the test file has 3."""
    if name == "cifar100":
        return {f"train{ending}": slice(0, 20), f"test{ending}": slice(20, 23)}
    parts = {f"{file}{ending}": slice(4 * i, 4 * i + 4) for i, file in enumerate(TRAIN10)}
    return {**parts, f"test_batch{ending}": slice(20, 23)}


def write_cifar(root: Path, name: str, version: str) -> tuple[Path, np.ndarray, np.ndarray]:
    """The folder, the images [23, 3072] and the class numbers [23]."""
    images, labels = cifar_arrays(10 if name == "cifar10" else 100)
    folders = {
        "cifar10": {"binary": "cifar-10-batches-bin", "python": "cifar-10-batches-py"},
        "cifar100": {"binary": "cifar-100-binary", "python": "cifar-100-python"},
    }
    folder = root / folders[name][version]
    folder.mkdir(parents=True)
    for file, part in shares(name, ".bin" if version == "binary" else "").items():
        pairs = zip(images[part], labels[part].tolist(), strict=True)
        if version == "binary":
            before = b"" if name == "cifar10" else b"\x13"  # the coarse label
            content = b"".join(before + bytes([y]) + x.tobytes() for x, y in pairs)
        else:
            content = python2_pickle(images[part], labels[part].tolist(), name)
        (folder / file).write_bytes(content)
    return folder, images, labels


def text(s: bytes) -> bytes:
    """A `str` as Python 2 pickles it."""
    return b"U" + bytes([len(s)]) + s if len(s) < 256 else b"T" + struct.pack("<i", len(s)) + s


def number(n: int) -> bytes:
    return b"K" + bytes([n]) if n < 256 else b"M" + struct.pack("<H", n)


def array(images: np.ndarray) -> bytes:
    """A C-ordered uint8 matrix as numpy under Python 2 pickles it."""
    dtype = b"cnumpy\ndtype\n" + text(b"u1") + b"K\x00K\x01\x87R"
    order = b"(K\x03" + text(b"|") + b"NNN" + 2 * b"J\xff\xff\xff\xff" + b"K\x00tb"
    shape = number(len(images)) + number(images.shape[1]) + b"\x86"
    empty = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text(b"b") + b"\x87R"
    return empty + b"(K\x01" + shape + dtype + order + b"\x89" + text(images.tobytes()) + b"tb"


def python2_pickle(images: np.ndarray, labels: list[int], name: str) -> bytes:
    """Protocol 2, as the official archives are."""
    key = b"labels" if name == "cifar10" else b"fine_labels"
    items = [
        text(b"batch_label") + text(b"training batch 1 of 5"),
        text(key) + b"](" + b"".join(number(y) for y in labels) + b"e",
        text(b"data") + array(images),
        text(b"filenames") + b"](" + b"".join(text(b"camion_s_%d.png" % y) for y in labels) + b"e",
    ]
    if name == "cifar100":
        items.append(text(b"coarse_labels") + b"](" + b"K\x13" * len(labels) + b"e")
    return b"\x80\x02}(" + b"".join(items) + b"u."


def picture(height: int, width: int, seed: int = 0) -> np.ndarray:
    """A smooth colour picture [H, W, 3] with some noise."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    waves = [np.sin(y / rng.uniform(3, 9) + x / rng.uniform(3, 9)) for _ in range(3)]
    return np.clip(127 + 90 * np.stack(waves, 2) + rng.normal(0, 8, (height, width, 3)), 0, 255).astype(
        np.uint8
    )


def write_imagenet(root: Path, classes: tuple[str, ...], each: int = 2) -> None:
    """train and val with `each` JPEGs a class, of different sizes."""
    from PIL import Image

    for s, split in enumerate(("train", "val")):
        for c, wnid in enumerate(classes):
            folder = root / split / wnid
            folder.mkdir(parents=True)
            for i in range(each):
                image = Image.fromarray(picture(40 + 7 * i + c, 50 - 9 * i, 100 * s + 10 * c + i))
                image.save(folder / f"{wnid}_{i}.JPEG", "JPEG")


def write_voc(root: Path, sizes: dict[str, tuple[int, int]], split: str = "val") -> dict[str, np.ndarray]:
    """Images of the given (height, width) by name, and their label maps."""
    from PIL import Image

    for folder in ("JPEGImages", "SegmentationClass", "ImageSets/Segmentation"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    labels = {}
    for seed, (name, (h, w)) in enumerate(sizes.items()):
        Image.fromarray(picture(h, w, seed)).save(root / "JPEGImages" / f"{name}.jpg")
        label = np.random.default_rng(seed).choice(np.array([0, 1, 20, 255], np.uint8), (h, w))
        image = Image.fromarray(label)
        image.putpalette(np.random.default_rng(9).integers(0, 256, 768, np.uint8).tobytes())  # mode becomes P
        image.save(root / "SegmentationClass" / f"{name}.png")
        labels[name] = label
    (root / "ImageSets/Segmentation" / f"{split}.txt").write_text("".join(f"{name}\n" for name in sizes))
    return labels


def write_camvid(file: Path, height: int = 12, width: int = 10) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {}
    for split, count in (("train", 5), ("val", 2), ("test", 3)):
        arrays[f"{split}_x"] = rng.integers(0, 256, (count, height, width, 3), np.uint8)
        arrays[f"{split}_y"] = rng.integers(0, 12, (count, height, width), np.uint8)
        arrays[f"{split}_name"] = np.array([f"{i}.png" for i in range(count)])
    np.savez_compressed(file, **arrays)
    return arrays
