"""The embedded sample is CIFAR-10, bit for bit."""

from __future__ import annotations

import hashlib
import lzma
import os
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from ptq4snn.data import sample
from ptq4snn.data.cifar import read_cifar10
from ptq4snn.errors import DataError

ASSET = files("ptq4snn") / "assets" / sample.FILE
CIFAR10 = os.environ.get("PTQ4SNN_CIFAR10", "")


def test_shapes_balance_and_checksum() -> None:
    calibration, test, labels = sample.default_sample()
    assert calibration.shape == (1024, 3, 32, 32) and test.shape == (2000, 3, 32, 32)
    assert labels.bincount().tolist() == [200] * 10
    content = bytes(labels.tolist()) + calibration.numpy().tobytes() + test.numpy().tobytes()
    assert hashlib.sha256(content).hexdigest() == sample.SHA256


def test_pixels_look_like_cifar10() -> None:
    """The published channel means and deviations of the train split, within sampling error."""
    calibration = sample.default_sample()[0].double() / 255
    for c, (mean, std) in enumerate(zip((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616), strict=True)):
        assert abs(float(calibration[:, c].mean()) - mean) < 0.015
        assert abs(float(calibration[:, c].std()) - std) < 0.015


def test_leading_parts_mix_the_classes() -> None:
    assert int(sample.default_sample()[2][:100].bincount(minlength=10).min()) >= 3


def test_asset_is_small_enough() -> None:
    assert len(ASSET.read_bytes()) <= 9_000_000


def test_codec_is_lossless_at_the_extremes() -> None:
    rng = np.random.default_rng(0)
    images = rng.choice(np.array([0, 1, 127, 128, 255], np.uint8), (5, 3, 32, 32))
    labels = rng.integers(0, 10, sample.TEST, np.uint8)
    before = images.copy()
    decoded, decoded_labels = sample.decode(sample.encode(images, labels))
    assert np.array_equal(decoded, images) and np.array_equal(decoded_labels, labels)
    assert np.array_equal(images, before)


def test_residuals_follow_the_documented_formula() -> None:
    rng = np.random.default_rng(1)
    image = rng.integers(0, 256, (1, 3, 32, 32), np.uint8)
    raw = lzma.decompress(sample.encode(image, np.zeros(sample.TEST, np.uint8)))[sample.TEST :]
    stored = np.frombuffer(raw, np.uint8).reshape(3, 32, 32)
    p = np.pad(image[0].astype(int), ((0, 0), (1, 0), (1, 0)))
    y, x = 7, 12  # position in the padded image is one further
    d = [p[c, y + 1, x + 1] - p[c, y, x + 1] - p[c, y + 1, x] + p[c, y, x] for c in range(3)]
    assert stored[:, y, x].tolist() == [(d[0] - d[1]) % 256, d[1] % 256, (d[2] - d[1]) % 256]


@pytest.mark.parametrize(
    "damage", [lambda b: b[:1000], lambda b: b"not xz", lambda b: b[:999] + b"\x55" + b[1000:]]
)
def test_altered_asset_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, damage: object) -> None:
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / sample.FILE).write_bytes(damage(ASSET.read_bytes()))  # type: ignore[operator]
    monkeypatch.setattr(sample, "files", lambda _: tmp_path)
    with pytest.raises(DataError, match="was altered"):
        sample.default_sample()


def test_other_pixels_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    images, labels = sample.decode(ASSET.read_bytes())
    images[3, 1, 2, 3] ^= 1
    monkeypatch.setattr(sample, "decode", lambda _: (images, labels))
    with pytest.raises(DataError, match="was altered"):
        sample.default_sample()


@pytest.mark.skipif(not CIFAR10, reason="PTQ4SNN_CIFAR10 does not name a folder with cifar-10-batches-bin")
def test_every_image_is_in_the_official_split() -> None:
    calibration, test, labels = sample.default_sample()
    for images, train in ((calibration, True), (test, False)):
        official, official_labels = read_cifar10(Path(CIFAR10), train)
        known = {image.numpy().tobytes(): int(y) for image, y in zip(official, official_labels, strict=True)}
        found = [known[image.numpy().tobytes()] for image in images]
        if train:
            assert sorted(np.bincount(found)) == [102] * 6 + [103] * 4
        else:
            assert found == labels.tolist()
