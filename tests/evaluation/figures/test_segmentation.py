"""Pictures of a segmentation, read back by Pillow."""

from __future__ import annotations

import base64
import io
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from ptq4snn.data.samples import VOID
from ptq4snn.evaluation.examples import Example, Examples
from ptq4snn.report.figures import segmentation
from ptq4snn.report.figures.segmentation import paint, palette, seen
from ptq4snn.report.png import data_url, png

Image = pytest.importorskip("PIL.Image")


def read(url: str) -> NDArray[np.uint8]:
    head, _, body = url.partition(",")
    assert head == "data:image/png;base64"
    image = Image.open(io.BytesIO(base64.b64decode(body, validate=True)))
    assert (image.format, image.mode) == ("PNG", "RGB")
    return np.asarray(image)


@pytest.mark.parametrize("shape", [(1, 1), (7, 5), (180, 240)])
def test_a_png_holds_the_pixels(shape: tuple[int, int]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (*shape, 3), dtype=np.uint8)
    image = Image.open(io.BytesIO(png(pixels)))
    image.verify()  # checksums
    assert np.array_equal(read(data_url(pixels)), pixels)
    flat = np.full((*shape, 3), (10, 200, 30), np.uint8)
    assert np.array_equal(read(data_url(flat)), flat)


def test_smooth_pictures_are_small() -> None:
    y, x = np.mgrid[:180, :240]
    smooth = np.stack([x, y, x // 2 + y // 2], 2).astype(np.uint8)
    assert len(png(smooth)) < smooth.size / 50


def test_rows_of_a_report(pixelwise: Any) -> None:
    p, q = pixelwise.prepared, pixelwise.model
    data = q.report["figures"]["segmentation"]
    assert q.report["summary"]["task"] == "segmentation"
    assert data["classes"] == 4 and data["palette"] == palette(4).tolist() and len(data["rows"]) == 4
    x = p.reported[0][:4]
    with torch.no_grad():
        logits = [torch.nn.functional.interpolate(m(x), (8, 6), mode="bilinear") for m in (p.folded.model, q)]
    before, after = (y.argmax(1).numpy() for y in logits)
    colours = np.array(data["palette"])
    for i, row in enumerate(data["rows"]):
        assert np.array_equal(read(row["float"]), colours[before[i]])
        assert np.array_equal(read(row["quantized"]), colours[after[i]])
        assert row["label"] is None
        assert row["differs"] == pytest.approx((before[i] != after[i]).mean(), rel=1e-5)
        image = read(row["image"]).astype(float)
        wanted = x[i].permute(1, 2, 0).numpy()
        wanted = (wanted - wanted.min()) / (wanted.max() - wanted.min()) * 255
        assert np.abs(image - wanted).max() <= 0.51
    assert any(row["differs"] > 0 for row in data["rows"])


def test_pictures_of_events_are_grey_means() -> None:
    x = torch.zeros(3, 2, 4, 5)  # T, polarities, H, W
    x[0, 0, 1, 2], x[2, 1, 3, 4] = 6.0, 3.0
    found = seen(x)
    assert found.shape == (4, 5, 3) and (found[..., 0] == found[..., 2]).all()
    assert (found[1, 2, 0], found[3, 4, 0], int(found[..., 0].astype(int).sum())) == (255, 128, 383)
    assert seen(torch.ones(3, 2, 2)).max() == 0  # nothing to tell apart
    assert seen(torch.tensor([[0.0, 1.0]])).tolist() == [[[0] * 3, [255] * 3]]


def test_large_pictures_are_strided() -> None:
    after = torch.arange(300 * 600).reshape(300, 600) % 5
    x = torch.rand(3, 300, 600, generator=torch.Generator().manual_seed(0))
    row: Any
    (row,) = segmentation.data(Examples(5, (Example(x, after, after, after),)))["rows"]
    sizes = {read(row[name]).shape for name in ("image", "label", "float", "quantized")}
    assert sizes == {(100, 200, 3)} and row["differs"] == 0
    assert np.array_equal(read(row["quantized"]), palette(5)[after.numpy()[::3, ::3]])


def test_what_is_not_known_is_left_out() -> None:
    after = torch.zeros(2, 2, dtype=torch.int64)
    (row,) = segmentation.data(Examples(3, (Example(torch.rand(1, 2, 2), None, after),)))["rows"]
    assert (row["float"], row["label"], row["differs"]) == (None, None, None)


def test_void_and_strangers_are_black() -> None:
    colours = palette(3)
    found = paint(torch.tensor([[0, 2, VOID, 7]]), colours)
    assert found.tolist() == [[colours[0].tolist(), colours[2].tolist(), [0] * 3, [0] * 3]]
    assert paint(torch.tensor([[149]]), palette(150)).tolist() == [[palette(150)[149].tolist()]]


def test_the_palette_can_be_told_apart() -> None:
    colours = palette(21).astype(float)
    assert np.array_equal(palette(30)[:21], palette(21))
    nearest = min(float(np.linalg.norm(a - b)) for a, b in combinations(colours, 2))
    assert nearest > 35 and colours.max(1).min() > 100  # and none is near black
    assert len({tuple(c) for c in palette(150).tolist()}) == 150
