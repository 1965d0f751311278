"""The embedded lossless CIFAR-10 sample: 1,024 calibration images and 2,000 labelled test images.

Bytes after LZMA: 2,000 labels, then 3,024 images [3, 32, 32] as residuals. All arithmetic is modulo 256:

    D(y, x) = P(y, x) - P(y-1, x) - P(y, x-1) + P(y-1, x-1)          per colour
    stored    D_red - D_green,  D_green,  D_blue - D_green

Natural images are smooth and their colours move together, so residuals are small: they compress by 45 %,
the raw pixels by 24 %. Decoding is two cumulative sums.
"""

from __future__ import annotations

import hashlib
import lzma
from importlib.resources import files

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ptq4snn.errors import DataError

__all__ = ["CALIBRATION", "FILE", "SHA256", "TEST", "decode", "default_sample", "encode"]

Pixels = npt.NDArray[np.uint8]

CALIBRATION, TEST = 1024, 2000
FILE = "cifar10_sample.xz"
SHA256 = "cb56380329512daf8a67c747980e79c303db55a76936e1c986b6b29316d45d36"  # labels, then pixels
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9, "lc": 4, "lp": 0, "pb": 0}]  # bytes, no alignment


def default_sample() -> tuple[Tensor, Tensor, Tensor]:
    """uint8 calibration images [1024, 3, 32, 32], uint8 test images [2000, 3, 32, 32], int64 test labels."""
    images, labels = decode((files("ptq4snn") / "assets" / FILE).read_bytes())
    if checksum(images, labels) != SHA256:
        raise DataError(f"the embedded sample {FILE} was altered: install ptq4snn again")
    pixels = torch.from_numpy(images)
    return pixels[:CALIBRATION], pixels[CALIBRATION:], torch.from_numpy(labels).long()


def checksum(images: Pixels, labels: Pixels) -> str:
    return hashlib.sha256(labels.tobytes() + images.tobytes()).hexdigest()


def encode(images: Pixels, labels: Pixels) -> bytes:
    """Images [N, 3, H, W] and labels [TEST] to the bytes of the asset."""
    d = images.copy()
    d[:, :, 1:] -= images[:, :, :-1]
    d[..., 1:] -= d[..., :-1].copy()
    d[:, 0] -= d[:, 1]
    d[:, 2] -= d[:, 1]
    return lzma.compress(labels.tobytes() + d.tobytes(), lzma.FORMAT_XZ, filters=FILTERS)


def decode(data: bytes) -> tuple[Pixels, Pixels]:
    """The images [N, 3, 32, 32] and labels [TEST] of `encode`."""
    try:
        raw = np.frombuffer(lzma.decompress(data, lzma.FORMAT_XZ), np.uint8)
        d = raw[TEST:].reshape(-1, 3, 32, 32).copy()
    except (lzma.LZMAError, EOFError, ValueError) as e:
        raise DataError(f"the embedded sample {FILE} was altered: install ptq4snn again") from e
    d[:, 0] += d[:, 1]
    d[:, 2] += d[:, 1]
    for axis in (3, 2):
        np.cumsum(d, axis, np.uint8, out=d)
    return d, raw[:TEST].copy()
