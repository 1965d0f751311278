"""ImageNet folders: torchvision's arithmetic, any image mode, and damaged files by name."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from oracles.image_layouts import picture, write_imagenet
from PIL import Image

from ptq4snn.data.imagenet import ImageNetSamples
from ptq4snn.data.images import center_crop, resize_shorter
from ptq4snn.data.samples import Preprocessing
from ptq4snn.errors import DataError, MissingExtra

CLASSES = ("n01440764", "n02102040", "n15075141")
MEAN, STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])


@pytest.mark.parametrize(
    ("size", "shorter", "scaled"),
    [
        # recorded from torchvision's Resize
        ((500, 375), 256, (341, 256)),
        ((375, 500), 256, (256, 341)),
        ((333, 500), 235, (235, 352)),
        ((500, 333), 224, (336, 224)),
        ((257, 231), 256, (284, 256)),
        ((64, 64), 256, (256, 256)),
    ],
)
def test_resize_rounds_the_longer_side_down(
    size: tuple[int, int], shorter: int, scaled: tuple[int, int]
) -> None:
    assert resize_shorter(Image.new("RGB", size), shorter, "bilinear").size == scaled


@pytest.mark.parametrize("size", [(1, 60_000), (60_000, 1)])
def test_a_strip_of_pixels_does_not_become_gigabytes(size: tuple[int, int]) -> None:
    with pytest.raises(DataError, match="too narrow"):
        resize_shorter(Image.new("L", size), 256, "bilinear")


@pytest.mark.parametrize(("whole", "start"), [(341, 58), (343, 60), (345, 60), (256, 16), (235, 6), (224, 0)])
def test_crop_starts_where_torchvision_does(whole: int, start: int) -> None:
    """Halves go to the even number: (341 - 224) / 2 = 58.5 -> 58, (343 - 224) / 2 = 59.5 -> 60."""
    columns = np.broadcast_to(np.arange(whole) // 2, (224, whole)).astype(np.uint8)
    cut = np.asarray(center_crop(Image.fromarray(columns), 224, 224))
    assert cut.shape == (224, 224) and np.array_equal(cut, columns[:, start : start + 224])


@pytest.mark.parametrize(("interpolation", "kind"), [("bilinear", 2), ("bicubic", 3)])
def test_images_and_labels(tmp_path: Path, interpolation: Any, kind: int) -> None:
    write_imagenet(tmp_path, CLASSES)
    settings = Preprocessing(resize=36, size=32, interpolation=interpolation)
    for split, train in (("train", True), ("val", False)):
        samples = ImageNetSamples(tmp_path, train, settings)
        assert len(samples) == 6 and samples.classes == 3
        x, y = samples[[5, 0, 3]]
        assert y.tolist() == [2, 0, 1] and x.shape == (3, 3, 32, 32) and x.is_contiguous()
        names = [f"{CLASSES[c]}/{CLASSES[c]}_{i}.JPEG" for c, i in ((2, 1), (0, 0), (1, 1))]
        for image, name in zip(x, names, strict=True):
            source = Image.open(tmp_path / split / name)
            w, h = source.size
            w, h = (36, int(36 * h / w)) if w <= h else (int(36 * w / h), 36)
            left, top = round((w - 32) / 2), round((h - 32) / 2)
            pixels = np.asarray(source.resize((w, h), kind), np.float64)[top : top + 32, left : left + 32]
            np.testing.assert_allclose(image.permute(1, 2, 0), (pixels / 255 - MEAN) / STD, atol=1e-5)


def test_published_sizes_without_settings(tmp_path: Path) -> None:
    write_imagenet(tmp_path, CLASSES[:1], 1)
    samples = ImageNetSamples(tmp_path, False)
    assert (samples.shorter, samples.size) == (256, (224, 224)) and samples[[0]][0].shape == (1, 3, 224, 224)
    with pytest.raises(DataError, match="raise resize"):
        ImageNetSamples(tmp_path, False, Preprocessing(resize=200, size=224))


@pytest.mark.parametrize("mode", ["L", "CMYK", "P", "RGBA"])
def test_every_mode_becomes_colours(tmp_path: Path, mode: str) -> None:
    folder = tmp_path / "val" / CLASSES[0]
    folder.mkdir(parents=True)
    kind = "JPEG" if mode in ("L", "CMYK") else "PNG"  # ImageNet has PNGs with the wrong ending
    Image.fromarray(picture(40, 40)).convert(mode).save(folder / "a.JPEG", kind)
    x, _ = ImageNetSamples(tmp_path, False, Preprocessing(resize=40, size=40))[[0]]
    pixels = np.asarray(Image.open(folder / "a.JPEG").convert("RGB"), np.float64) / 255
    np.testing.assert_allclose(x[0].permute(1, 2, 0), (pixels - MEAN) / STD, atol=1e-5)


def test_class_numbers_do_not_depend_on_the_split(tmp_path: Path) -> None:
    """A few training classes for calibration, all classes to test: the same number means the same class."""
    write_imagenet(tmp_path, CLASSES, 1)
    (tmp_path / "train" / CLASSES[0] / f"{CLASSES[0]}_0.JPEG").unlink()
    (tmp_path / "train" / CLASSES[0]).rmdir()
    (tmp_path / "val" / "notes").mkdir()
    samples = ImageNetSamples(tmp_path, True, Preprocessing(resize=36, size=32))
    assert samples.classes == 3 and samples[[0, 1]][1].tolist() == [1, 2]


def test_damaged_images_are_named(tmp_path: Path) -> None:
    write_imagenet(tmp_path, CLASSES[:1], 2)
    samples = ImageNetSamples(tmp_path, False, Preprocessing(resize=36, size=32))
    file = tmp_path / "val" / CLASSES[0] / f"{CLASSES[0]}_1.JPEG"
    whole = file.read_bytes()
    for content in (whole[: len(whole) // 2], whole[:1], b"", b"<html>not found</html>"):
        file.write_bytes(content)
        with pytest.raises(DataError, match=r"_1\.JPEG is truncated or not an image") as e:
            samples[[0, 1]]
        assert "\n" not in str(e.value)
        assert len(samples[[0]][1]) == 1
    file.unlink()
    with pytest.raises(DataError, match=r"there is no image .*_1\.JPEG"):
        samples[[1]]


def test_folders_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no folder .*val"):
        ImageNetSamples(tmp_path, False)
    (tmp_path / "val").mkdir()
    with pytest.raises(DataError, match="holds no class folders"):
        ImageNetSamples(tmp_path, False)
    (tmp_path / "val" / "ILSVRC2012_val_00000001.JPEG").write_bytes(b"")
    (tmp_path / "ILSVRC2012_validation_ground_truth.txt").write_text("490\n")
    with pytest.raises(DataError, match="sort them into folders by class"):
        ImageNetSamples(tmp_path, False)
    (tmp_path / "train" / CLASSES[0]).mkdir(parents=True)
    with pytest.raises(DataError, match="hold no images"):
        ImageNetSamples(tmp_path, True)


def test_without_pillow_the_install_command_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_imagenet(tmp_path, CLASSES[:1], 1)
    real = builtins.__import__

    def no_pillow(name: str, *args: Any, **options: Any) -> Any:
        if name.partition(".")[0] == "PIL":
            raise ModuleNotFoundError(name, name="PIL")
        return real(name, *args, **options)

    samples = ImageNetSamples(tmp_path, False)
    monkeypatch.setattr(builtins, "__import__", no_pillow)
    with pytest.raises(MissingExtra, match=r'pip install "ptq4snn\[images\]"'):
        samples[[0]]


def test_global_random_state_is_left_alone(tmp_path: Path) -> None:
    write_imagenet(tmp_path, CLASSES[:1], 1)
    before = torch.random.get_rng_state()
    ImageNetSamples(tmp_path, True, Preprocessing(resize=36, size=32))[[0]]
    assert torch.equal(before, torch.random.get_rng_state())
