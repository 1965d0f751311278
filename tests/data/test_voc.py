"""VOC2012: MMSegmentation's test sizes, labels untouched at native size, damaged files by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from oracles.image_layouts import picture, write_voc
from PIL import Image

from ptq4snn.data.samples import Preprocessing
from ptq4snn.data.voc import VOCSamples
from ptq4snn.errors import DataError

MEAN, STD = np.array([123.675, 116.28, 103.53]), np.array([58.395, 57.12, 57.375])  # of pixels in 0 .. 255
SIZES = {"2007_000033": (37, 50), "2007_000042": (50, 37), "2007_000061": (37, 50)}


@pytest.mark.parametrize("home", ["", "VOC2012", "VOCdevkit/VOC2012"])
def test_folders(tmp_path: Path, home: str) -> None:
    labels = write_voc(tmp_path / home, SIZES)
    samples = VOCSamples(tmp_path, False, Preprocessing(resize=20))
    assert len(samples) == 3 and samples.classes == 21
    assert np.array_equal(samples[[2]][1][0], labels["2007_000061"])


def test_whole_images_and_native_labels(tmp_path: Path) -> None:
    labels = write_voc(tmp_path, SIZES)
    x, y = VOCSamples(tmp_path, False)[[1]]
    assert np.array_equal(y[0], labels["2007_000042"]) and y.dtype == torch.int64
    assert x.shape == (1, 3, 692, 512)  # 512 / 37 = 13.84: 50 -> 691.89, rounded
    source = Image.open(tmp_path / "JPEGImages/2007_000042.jpg").resize((512, 692), 2)
    np.testing.assert_allclose(
        x[0].permute(1, 2, 0), (np.asarray(source, np.float64) - MEAN) / STD, atol=2e-5
    )


@pytest.mark.parametrize(
    ("native", "scaled"),  # (width, height); mmcv.rescale_size((w, h), (2048, 512))
    [
        ((500, 375), (683, 512)),
        ((375, 500), (512, 683)),
        ((500, 333), (769, 512)),
        ((500, 100), (2048, 410)),
        ((1024, 640), (819, 512)),
    ],
)
def test_scaled_size(tmp_path: Path, native: tuple[int, int], scaled: tuple[int, int]) -> None:
    write_voc(tmp_path, {"a": (4, 4)})
    assert VOCSamples(tmp_path, False)._scaled(*native) == scaled[::-1]


def test_a_batch_has_one_size(tmp_path: Path) -> None:
    write_voc(tmp_path, SIZES)
    samples = VOCSamples(tmp_path, False, Preprocessing(resize=20))
    assert samples.sizes_differ and samples[[0, 2]][0].shape == (2, 3, 20, 27)
    with pytest.raises(DataError, match="use batch size 1"):
        samples[[0, 1]]


def test_fixed_size_for_training(tmp_path: Path) -> None:
    labels = write_voc(tmp_path, SIZES, "train")
    samples = VOCSamples(tmp_path, True, Preprocessing(size=(74, 25)))
    x, y = samples[[0, 1]]
    assert not samples.sizes_differ and x.shape == (2, 3, 74, 25) and y.shape == (2, 74, 25)
    assert np.array_equal(y[0], labels["2007_000033"].repeat(2, 0)[:, 1::2])  # nearest to the pixel's centre
    square = VOCSamples(tmp_path, True, Preprocessing(size=16, mean=(0.0,) * 3, std=(1.0,) * 3))
    pixels = np.asarray(Image.open(tmp_path / "JPEGImages/2007_000061.jpg").resize((16, 16), 2), np.float64)
    np.testing.assert_allclose(square[[2]][0][0].permute(1, 2, 0), pixels / 255, atol=1e-6)


def save(file: Path, array: np.ndarray) -> None:
    Image.fromarray(array).save(file)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda png, jpg: png.write_bytes(png.read_bytes()[:200]), r"a\.png is truncated or not an image"),
        (lambda png, jpg: jpg.write_bytes(jpg.read_bytes()[:300]), r"a\.jpg is truncated or not an image"),
        (
            lambda png, jpg: save(png, np.zeros((30, 41), np.uint8)),
            r"a\.png has \(41, 30\) pixels, its image \(40, 30\)",
        ),
        (lambda png, jpg: save(png, picture(30, 40)), r"a\.png has no class numbers but mode RGB"),
        (lambda png, jpg: save(png, np.full((30, 40), 21, np.uint8)), r"a\.png has class 21"),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, damage: object, message: str) -> None:
    write_voc(tmp_path, {"a": (30, 40)})
    damage(tmp_path / "SegmentationClass/a.png", tmp_path / "JPEGImages/a.jpg")  # type: ignore[operator]
    with pytest.raises(DataError, match=message) as e:
        VOCSamples(tmp_path, False)[[0]]
    assert "\n" not in str(e.value)


def test_lists_must_fit_the_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no VOC2012"):
        VOCSamples(tmp_path, False)
    write_voc(tmp_path, {"a": (30, 40)})
    with pytest.raises(DataError, match=r"there is no list .*train\.txt"):
        VOCSamples(tmp_path, True)
    names = tmp_path / "ImageSets/Segmentation/val.txt"
    names.write_text("a\nb\n")
    with pytest.raises(DataError, match=r"there is no .*JPEGImages.b\.jpg, which VOC2012's list names"):
        VOCSamples(tmp_path, False)
    names.write_text("\n")
    with pytest.raises(DataError, match="is empty"):
        VOCSamples(tmp_path, False)
    names.write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="cannot read the list"):
        VOCSamples(tmp_path, False)
