"""Make the embedded CIFAR-10 sample from the official binaries.

    python scripts/make_sample.py DATA

DATA holds cifar-10-batches-bin. Writes src/ptq4snn/assets/cifar10_sample.xz and prints the checksum that
belongs into ptq4snn.data.sample.SHA256. Classes are balanced and mixed: any leading part is a fair sample.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ptq4snn.data.cifar import read_cifar10
from ptq4snn.data.sample import CALIBRATION, FILE, TEST, Pixels, checksum, encode

CLASSES = 10
SEED = 0


def choose(labels: npt.NDArray[np.int64], count: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Indices of `count` images in random order, equally many of each class (give or take one)."""
    picks = []
    for c in range(CLASSES):
        share = count // CLASSES + (c < count % CLASSES)
        picks.append(rng.permutation(np.flatnonzero(labels == c))[:share])
    return rng.permutation(np.concatenate(picks))


def sample(data: Path) -> tuple[Pixels, Pixels]:
    """The calibration and test images, and the labels of the latter."""
    rng = np.random.default_rng(SEED)
    (train, train_labels), (test, test_labels) = read_cifar10(data, True), read_cifar10(data, False)
    calibration = choose(train_labels.numpy(), CALIBRATION, rng)
    held_out = choose(test_labels.numpy(), TEST, rng)
    images = np.concatenate([train.numpy()[calibration], test.numpy()[held_out]])
    return images, test_labels.numpy()[held_out].astype(np.uint8)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("data", type=Path, help="folder that holds cifar-10-batches-bin")
    images, labels = sample(p.parse_args().data)
    out = Path(__file__).parents[1] / "src" / "ptq4snn" / "assets" / FILE
    out.parent.mkdir(exist_ok=True)
    out.write_bytes(encode(images, labels))
    print(f"{out}: {out.stat().st_size:,} bytes for {images.size:,} pixels")
    print(f"SHA256 = {checksum(images, labels)!r}")


if __name__ == "__main__":
    main()
