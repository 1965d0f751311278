"""The embedded N-MNIST sample: 128 calibration recordings and 100 labelled test recordings, as frames.

Frames are counts [T = 25, 2, 32, 32] of events per pixel and polarity, T frames of equally many events, what
`NMNISTSamples` makes of the recordings with size 32 and 25 steps. Bytes after LZMA:

    100 labels;  for every count one bit: whether it is above 0, first bit first;  the counts above 0

Test recordings come first. Six counts in a hundred are above 0, so the bits take a tenth of what the counts
would, and xz makes less than 400 KB of it all. N-MNIST (Orchard et al., 2015) is CC BY-SA 4.0, and so is the
sample: assets/README.md.
"""

from __future__ import annotations

import lzma
from importlib.resources import files

import numpy as np
import torch
from torch import Tensor

from ptq4snn.data.images import height_width
from ptq4snn.data.sample import FILTERS, Pixels, checksum
from ptq4snn.data.samples import Preprocessing
from ptq4snn.errors import DataError

__all__ = ["CALIBRATION", "FILE", "NAME", "SHA256", "TEST", "decode", "encode", "fits", "nmnist_sample"]

NAME = "nmnist-sample"  # as --data has it
CALIBRATION, TEST = 128, 100
STEPS, SIZE = 25, 32
SHAPE = (STEPS, 2, SIZE, SIZE)
FILE = "nmnist_sample.xz"
SHA256 = "1b533e5ec613b9c8bd0c9e91b2df8b5bd1c2db416635444560f3a243f057ff78"  # labels, then counts


def nmnist_sample(preprocessing: Preprocessing | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """float32 frames [128, 25, 2, 32, 32] to calibrate, [100, 25, 2, 32, 32] to test, int64 test labels."""
    if preprocessing is not None and not fits(preprocessing):
        raise DataError(
            f"{NAME} holds frames for T = {STEPS} and size {SIZE}, this model takes "
            f"T = {preprocessing.steps} and size {preprocessing.size}: "
            "give the recordings of N-MNIST, --data nmnist:PATH"
        )
    counts, labels = decode((files("ptq4snn") / "assets" / FILE).read_bytes())
    if checksum(counts, labels) != SHA256:
        raise DataError(altered())
    frames = torch.from_numpy(counts).float()
    return frames[TEST:], frames[:TEST], torch.from_numpy(labels).long()


def fits(preprocessing: Preprocessing) -> bool:
    """Whether a model that asks for `preprocessing` gets it; what is not asked for is as it is here."""
    size = preprocessing.size
    return preprocessing.steps in (None, STEPS) and (size is None or height_width(size) == (SIZE, SIZE))


def encode(counts: Pixels, labels: Pixels) -> bytes:
    """Counts [N, 25, 2, 32, 32] and labels [TEST] to the bytes of the asset."""
    raw = labels.tobytes() + np.packbits(counts > 0).tobytes() + counts[counts > 0].tobytes()
    return lzma.compress(raw, lzma.FORMAT_XZ, filters=FILTERS)


def decode(data: bytes) -> tuple[Pixels, Pixels]:
    """The counts [CALIBRATION + TEST, 25, 2, 32, 32] and labels [TEST] of `encode`."""
    shape = (CALIBRATION + TEST, *SHAPE)
    bits = int(np.prod(shape)) // 8
    try:
        raw = np.frombuffer(lzma.decompress(data, lzma.FORMAT_XZ), np.uint8)
        events = np.unpackbits(raw[TEST : TEST + bits]).reshape(shape).astype(bool)
        counts = np.zeros(shape, np.uint8)
        counts[events] = raw[TEST + bits :]
    except (lzma.LZMAError, EOFError, ValueError) as e:
        raise DataError(altered()) from e
    return counts, raw[:TEST].copy()


def altered() -> str:
    return f"the embedded sample {FILE} was altered: install ptq4snn again"
