"""The embedded N-MNIST sample is N-MNIST as its reader makes frames of it, bit for bit."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import torch

from ptq4snn.data import event_sample
from ptq4snn.data.nmnist import NMNISTSamples
from ptq4snn.data.sample import checksum
from ptq4snn.data.samples import Preprocessing
from ptq4snn.data.source import Batching, embedded_for, open_data
from ptq4snn.errors import DataError
from ptq4snn.models.zoo import MODELS

ASSET = files("ptq4snn") / "assets" / event_sample.FILE
RECORDINGS = Path(__file__).parents[3] / "shared" / "data" / "nmnist_small_events.npz"


def test_shapes_labels_and_equally_many_events_a_frame() -> None:
    calibration, test, labels = event_sample.nmnist_sample()
    assert calibration.shape == (128, 25, 2, 32, 32) and test.shape == (100, 25, 2, 32, 32)
    assert test.dtype == torch.float32 and int(labels.bincount(minlength=10).min()) >= 2
    events = torch.cat([calibration, test]).sum((2, 3, 4))  # [228, 25]; some lie on the margin cut off
    assert float(events.sum(1).min()) > 500
    assert bool((events[:, :-1].amax(1) - events[:, :-1].amin(1) <= 0.2 * events[:, :-1].amax(1)).all())


def test_asset_is_small_enough() -> None:
    assert len(ASSET.read_bytes()) <= 700_000


def test_codec_is_lossless_at_the_extremes() -> None:
    rng = np.random.default_rng(0)
    shape = (event_sample.CALIBRATION + event_sample.TEST, *event_sample.SHAPE)
    counts = rng.choice(np.array([0, 0, 0, 1, 255], np.uint8), shape)
    labels = rng.integers(0, 10, event_sample.TEST, np.uint8)
    decoded, decoded_labels = event_sample.decode(event_sample.encode(counts, labels))
    assert np.array_equal(decoded, counts) and np.array_equal(decoded_labels, labels)


@pytest.mark.parametrize(
    "damage", [lambda b: b[:1000], lambda b: b"not xz", lambda b: b[:999] + b"\x55" + b[1000:]]
)
def test_altered_asset_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, damage: object) -> None:
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / event_sample.FILE).write_bytes(damage(ASSET.read_bytes()))  # type: ignore[operator]
    monkeypatch.setattr(event_sample, "files", lambda _: tmp_path)
    with pytest.raises(DataError, match="was altered"):
        event_sample.nmnist_sample()


def test_other_counts_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    counts, labels = event_sample.decode(ASSET.read_bytes())
    assert checksum(counts, labels) == event_sample.SHA256
    counts[3, 1, 0, 2, 3] ^= 1
    monkeypatch.setattr(event_sample, "decode", lambda _: (counts, labels))
    with pytest.raises(DataError, match="was altered"):
        event_sample.nmnist_sample()


def test_opens_by_its_name() -> None:
    slow = MODELS["vgg4-16-nmnist-slow"].preprocessing
    batches = list(open_data("nmnist-sample", "test", Batching(3, count=5), slow))
    x, y = batches[1]
    _, test, labels = event_sample.nmnist_sample()
    assert torch.equal(x, test[3:5]) and torch.equal(y, labels[3:5])
    first = next(iter(open_data("nmnist-sample", "calibration", Batching(2))))
    assert isinstance(first, torch.Tensor) and len(first) == 2  # without labels


def test_a_model_that_wants_other_frames_is_refused() -> None:
    ten = MODELS["sdt-2-64-nmnist"].preprocessing
    with pytest.raises(DataError, match=r"T = 25 and size 32, this model takes T = 10 .* nmnist:PATH"):
        open_data("nmnist-sample", "test", preprocessing=ten)
    with pytest.raises(DataError, match="size 34"):
        open_data("nmnist-sample", "test", preprocessing=Preprocessing(size=34))
    assert embedded_for("nmnist", ten) is None
    assert embedded_for("nmnist", MODELS["vgg4-16-nmnist-slow"].preprocessing) == "nmnist-sample"


@pytest.mark.skipif(not RECORDINGS.exists(), reason="the recordings of N-MNIST are not here")
def test_frames_are_those_of_the_reader() -> None:
    calibration, test, labels = event_sample.nmnist_sample()
    preprocessing = MODELS["vgg4-16-nmnist-slow"].preprocessing
    for train, frames in ((True, calibration), (False, test)):
        x, y = NMNISTSamples(RECORDINGS, train, preprocessing)[range(len(frames))]
        assert torch.equal(x, frames)
        assert train or torch.equal(y, labels)
