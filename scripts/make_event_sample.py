"""Make the embedded N-MNIST sample.

    python scripts/make_event_sample.py DATA

DATA is what `--data nmnist:DATA` takes: a folder with Train and Test, or an .npz file of events. Its first
test recordings with labels and its first training recordings without are taken, in the order of the data set
where that mixes the classes, else in a random one. Writes src/ptq4snn/assets/nmnist_sample.xz and prints the
checksum that belongs into ptq4snn.data.event_sample.SHA256.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from ptq4snn.data.event_sample import CALIBRATION, FILE, SIZE, STEPS, TEST, encode
from ptq4snn.data.nmnist import NMNISTSamples
from ptq4snn.data.sample import Pixels, checksum
from ptq4snn.data.samples import Preprocessing

SEED = 0


def first(data: Path, train: bool, count: int) -> tuple[Pixels, Pixels]:
    """Counts [count, 25, 2, 32, 32] and labels of the leading recordings."""
    samples = NMNISTSamples(data, train, Preprocessing(size=SIZE, steps=STEPS))
    mixed = np.random.default_rng(SEED).permutation(len(samples)).tolist()
    frames, labels = samples[(mixed if samples.sorted_by_class else list(range(len(samples))))[:count]]
    return frames.numpy().astype(np.uint8), labels.numpy().astype(np.uint8)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("data", type=Path, help="folder of N-MNIST, or an .npz file of its events")
    data = p.parse_args().data
    test, labels = first(data, False, TEST)
    counts = np.concatenate([test, first(data, True, CALIBRATION)[0]])
    out = Path(__file__).parents[1] / "src" / "ptq4snn" / "assets" / FILE
    out.write_bytes(encode(counts, labels))
    print(f"{out}: {out.stat().st_size:,} bytes for {int(counts.sum()):,} events")
    print(f"SHA256 = {checksum(counts, labels)!r}")


if __name__ == "__main__":
    main()
