"""CIFAR in four layouts, against the bytes that were written; pickles that name anything else are refused."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from fuzz.bounds import bounded
from oracles.image_layouts import array, cifar_arrays, python2_pickle, text, write_cifar

from ptq4snn.data.cifar import CifarSamples, normalize, read_cifar10
from ptq4snn.data.cifar_python import read_python
from ptq4snn.data.samples import Preprocessing
from ptq4snn.errors import DataError

PUBLISHED = {
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "cifar100": ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
}
LAYOUTS = [(name, version) for name in PUBLISHED for version in ("binary", "python")]


def expected(images: np.ndarray, mean: tuple[float, ...], std: tuple[float, ...]) -> np.ndarray:
    x = images.reshape(-1, 3, 32, 32).astype(np.float64) / 255
    return (x - np.reshape(mean, (3, 1, 1))) / np.reshape(std, (3, 1, 1))


@pytest.mark.parametrize(("name", "version"), LAYOUTS)
@pytest.mark.parametrize("train", [True, False])
def test_every_layout_gives_its_bytes(tmp_path: Path, name: str, version: str, train: bool) -> None:
    folder, images, labels = write_cifar(tmp_path, name, version)
    part = slice(0, 20) if train else slice(20, 23)
    for root in (tmp_path, folder):
        samples = CifarSamples(root, name, train)  # type: ignore[arg-type]
        assert len(samples) == len(labels[part]) and samples.classes == (10 if name == "cifar10" else 100)
        order = np.random.default_rng(1).permutation(len(samples)).tolist()
        x, y = samples[order]  # across the borders of files, and back
        assert x.dtype == torch.float32 and y.dtype == torch.int64
        assert y.tolist() == labels[part][order].tolist()
        np.testing.assert_allclose(x, expected(images[part][order], *PUBLISHED[name]), atol=2e-6)


def test_models_can_ask_for_other_colours(tmp_path: Path) -> None:
    _, images, _ = write_cifar(tmp_path, "cifar100", "binary")
    mean, std = PUBLISHED["cifar10"]
    samples = CifarSamples(tmp_path, "cifar100", False, Preprocessing(mean=mean, std=std))
    np.testing.assert_allclose(samples[[0, 2]][0], expected(images[[20, 22]], mean, std), atol=2e-6)
    with pytest.raises(DataError, match="3 colours"):
        CifarSamples(tmp_path, "cifar100", False, Preprocessing(mean=(0.5,)))
    with pytest.raises(DataError, match="32 x 32"):
        CifarSamples(tmp_path, "cifar100", False, Preprocessing(size=64))


def test_pixels_of_one_split(tmp_path: Path) -> None:
    _, images, labels = write_cifar(tmp_path, "cifar10", "python")
    pixels, y = read_cifar10(tmp_path, True)
    assert np.array_equal(pixels.flatten(1), images[:20]) and y.tolist() == labels[:20].tolist()
    assert torch.equal(normalize(pixels), CifarSamples(tmp_path, "cifar10", True)[range(20)][0])


@pytest.mark.parametrize("keys", [str, str.encode])
def test_pickles_written_by_python_3(tmp_path: Path, keys: object) -> None:
    """The same dictionaries, saved again: other names of numpy's functions, bytes as encoded text."""
    folder, images, labels = write_cifar(tmp_path, "cifar10", "python")
    content = {"data": np.asfortranarray(images[20:]), "labels": labels[20:].tolist(), "batch_label": b"t"}
    renamed = {keys(k): v for k, v in content.items()}  # type: ignore[operator]
    (folder / "test_batch").write_bytes(pickle.dumps(renamed, protocol=2))
    pixels, y = read_cifar10(tmp_path, False)
    assert np.array_equal(pixels.flatten(1), images[20:]) and y.tolist() == labels[20:].tolist()


class Evil:
    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (Path("touched"),)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (pickle.dumps({b"data": Evil()}, 2), "which CIFAR's files do not"),
        (b"cos\nsystem\n(S'touch touched'\ntR.", "names os.system"),
        (
            b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00xX\x06\x00\x00\x00base64\x86R.",
            "names the encoding base64",
        ),
        (b"\x80\x02cnumpy\nload\nU\x07touched\x85R.", "names numpy.load"),
        (python2_pickle(*cifar_arrays(10, 3), "cifar10")[:-40], "is truncated"),  # type: ignore[arg-type]
        (b"", "is truncated"),
        (b"not a pickle at all", "is truncated"),
        (pickle.dumps([1, 2], 2), "is truncated or not a CIFAR file"),
        (pickle.dumps({b"labels": [1]}, 2), "is truncated or not a CIFAR file with data and labels"),
        (pickle.dumps({b"data": np.zeros((2, 3072)), b"labels": [1, 1]}, 2), "is truncated or not a CIFAR"),
        (pickle.dumps({b"data": np.zeros((2, 9), np.uint8), b"labels": [1, 1]}, 2), "data has shape [2, 9]"),
        (pickle.dumps({b"data": np.zeros((2, 3072), np.uint8), b"labels": [1]}, 2), "and labels [1] instead"),
        (
            b"\x80\x02}(" + text(b"data") + array(np.zeros((2, 3072), np.uint8))[:-40] + b"tb" + b"u.",
            "is trunc",
        ),
    ],
)
def test_bad_pickles_are_named_and_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, message: str
) -> None:
    folder, _, _ = write_cifar(tmp_path, "cifar10", "python")
    (folder / "test_batch").write_bytes(content)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError) as e:
        len(CifarSamples(tmp_path, "cifar10", False))
    assert message in str(e.value) and str(folder / "test_batch") in str(e.value) and "\n" not in str(e.value)
    assert not (tmp_path / "touched").exists()


@pytest.mark.parametrize(("name", "version"), LAYOUTS)
def test_missing_files_and_foreign_labels_are_named(tmp_path: Path, name: str, version: str) -> None:
    with pytest.raises(DataError, match=r"holds no cifar-10.* or cifar-10.*: give the folder"):
        CifarSamples(tmp_path, name, False)  # type: ignore[arg-type]
    folder, images, _ = write_cifar(tmp_path, name, version)
    test = next(f for f in folder.iterdir() if f.name.startswith("test"))
    if version == "binary":
        broken = bytearray(test.read_bytes())
        broken[len(broken) // 3 + (0 if name == "cifar10" else 1)] = 200  # the second record's label
        test.write_bytes(broken)
    else:
        test.write_bytes(python2_pickle(images[20:], [1, 200, 2], name))
    samples = CifarSamples(tmp_path, name, False)  # type: ignore[arg-type]
    assert len(samples[[0, 2]][1]) == 2
    with pytest.raises(DataError, match=rf"{test.name} is damaged: it has labels outside"):
        samples[[0, 1]]
    test.unlink()
    with pytest.raises(DataError, match=rf"there is no data file .*{test.name}"):
        CifarSamples(tmp_path, name, False)  # type: ignore[arg-type]


def test_records_of_the_other_data_set_do_not_fit(tmp_path: Path) -> None:
    folder, _, _ = write_cifar(tmp_path, "cifar100", "binary")
    (folder / "test.bin").write_bytes(bytes(3 * 3073))
    with pytest.raises(
        DataError, match=r"test\.bin is truncated: its 9219 bytes are not whole records of 3074"
    ):
        len(CifarSamples(tmp_path, "cifar100", False))


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x02}r\x00\x00\x00\x30.",  # place 805,306,368, for which Python would take 6 GiB
        b"\x80\x05\x96\x00\x00\x00\x00\x04\x00\x00\x00.",  # 16 GiB of bytes that do not follow
    ],
)
def test_a_pickle_that_asks_for_gigabytes_is_refused_first(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "batch").write_bytes(data)
    with bounded(), pytest.raises(DataError, match="truncated or not a CIFAR file") as found:
        read_python(tmp_path / "batch", "labels", 3072)
    assert isinstance(found.value.__cause__, ValueError)  # and no MemoryError
