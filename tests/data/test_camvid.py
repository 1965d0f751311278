"""CamVid: middle rows, void pixels, and files that are something else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from oracles.image_layouts import write_camvid

from ptq4snn.data.camvid import CamVidSamples
from ptq4snn.data.samples import VOID, Preprocessing
from ptq4snn.errors import DataError

MEAN, STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])


@pytest.mark.parametrize("split", ["train", "val", "test"])
@pytest.mark.parametrize(("size", "rows"), [((8, 10), slice(2, 10)), (None, slice(0, 12))])
def test_middle_rows_of_images_and_labels(tmp_path: Path, split: Any, size: Any, rows: slice) -> None:
    arrays = write_camvid(tmp_path / "c.npz")
    samples = CamVidSamples(tmp_path / "c.npz", split, Preprocessing(size=size))
    images, labels = arrays[f"{split}_x"][:, rows], arrays[f"{split}_y"][:, rows].astype(int)
    assert len(samples) == len(images) and samples.classes == 11
    x, y = samples[[1, 0]]
    assert y.dtype == torch.int64 and x.dtype == torch.float32 and x.is_contiguous()
    assert np.array_equal(y, np.where(labels == 11, VOID, labels)[[1, 0]]) and VOID in y and 11 not in y
    np.testing.assert_allclose(x.permute(0, 2, 3, 1), (images[[1, 0]] / 255 - MEAN) / STD, atol=1e-5)


def test_it_is_never_resized(tmp_path: Path) -> None:
    write_camvid(tmp_path / "c.npz")
    with pytest.raises(DataError, match="12 x 10: 16 x 16 cannot be cut"):
        len(CamVidSamples(tmp_path / "c.npz", "test", Preprocessing(size=16)))
    with pytest.raises(DataError, match="not resized"):
        CamVidSamples(tmp_path / "c.npz", "test", Preprocessing(resize=10))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"test_x": None}, "test_x"),
        ({"test_x": np.zeros((3, 12, 10), np.uint8)}, r"test_x is uint8 \[3, 12, 10\]"),
        ({"test_x": np.zeros((3, 12, 10, 3))}, "test_x is float64"),
        ({"test_y": np.zeros((2, 12, 10), np.uint8)}, r"test_y uint8 \[2, 12, 10\]"),
        ({"test_y": np.full((3, 12, 10), 12, np.uint8)}, "has class 12"),
        ({"test_x": np.array([{}], object)}, "truncated or not"),
    ],
)
def test_other_arrays_are_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    arrays = {**write_camvid(tmp_path / "c.npz"), **change}
    np.savez(tmp_path / "c.npz", **{k: v for k, v in arrays.items() if v is not None})
    with pytest.raises(DataError, match=message) as e:
        len(CamVidSamples(tmp_path / "c.npz", "test"))
    assert "c.npz" in str(e.value) and "\n" not in str(e.value)


def test_damaged_files_are_named(tmp_path: Path) -> None:
    file = tmp_path / "c.npz"
    with pytest.raises(DataError, match=r"there is no data file .*c\.npz"):
        len(CamVidSamples(file, "test"))
    write_camvid(file)
    whole = file.read_bytes()
    middle = len(whole) // 5  # inside the compressed train images
    for content in (whole[:500], b"", whole[:middle] + bytes(99) + whole[middle + 99 :]):
        file.write_bytes(content)
        with pytest.raises(DataError, match=r"c\.npz is truncated or not"):
            len(CamVidSamples(file, "train"))
