"""Segmentation scores against loops over pixels, and against examples worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from ptq4snn.data.samples import VOID, SampleBatches
from ptq4snn.errors import DataError
from ptq4snn.evaluation.metrics import evaluate
from ptq4snn.evaluation.segmentation_score import Segmentation, confusion, predict

Maps = list[list[list[int]]]


def one_hot(prediction: Any, outputs: int) -> Tensor:
    """Logits [B, outputs, H, W] whose largest is the prediction."""
    return nn.functional.one_hot(torch.tensor(prediction), outputs).movedim(-1, 1).float()


def score(prediction: Any, label: Any, outputs: int, classes: int | None = None) -> Any:
    s, logits = Segmentation(classes), one_hot(prediction, outputs)
    s.add(logits, logits, torch.tensor(label))
    return s.result()


def by_sets(prediction: Maps, label: Maps, classes: int) -> dict[str, Any]:
    """Every area as a set of pixels."""
    pixels = [
        ((b, i, j), p, t)
        for b, (rows, truth) in enumerate(zip(prediction, label, strict=True))
        for i, (row, line) in enumerate(zip(rows, truth, strict=True))
        for j, (p, t) in enumerate(zip(row, line, strict=True))
        if t != VOID
    ]
    iou, accuracy = [], []
    for c in range(classes):
        predicted, labelled = {k for k, p, _ in pixels if p == c}, {k for k, _, t in pixels if t == c}
        hit = len(predicted & labelled)
        iou.append(100 * hit / len(predicted | labelled) if predicted | labelled else None)
        accuracy.append(100 * hit / len(labelled) if labelled else None)
    return {
        "pixels": len(pixels),
        "aAcc": 100 * sum(p == t for _, p, t in pixels) / len(pixels) if pixels else None,
        "mIoU": mean(iou),
        "mAcc": mean(accuracy),
        "class_iou": iou,
        "class_accuracy": accuracy,
    }


def mean(values: Sequence[float | None]) -> Any:
    array = np.array([np.nan if v is None else v for v in values])
    return None if np.isnan(array).all() else pytest.approx(np.nanmean(array))


@st.composite
def cases(draw: st.DrawFn) -> tuple[Maps, Maps, int, int]:
    """Predictions, labels, outputs, classes."""
    classes = draw(st.integers(1, 5))
    outputs = draw(st.integers(1, 7))
    shape = [draw(st.integers(1, 3)) for _ in range(3)]
    size = int(np.prod(shape))

    def maps(values: st.SearchStrategy[int]) -> Any:
        return np.array(draw(st.lists(values, min_size=size, max_size=size))).reshape(shape).tolist()

    truth = st.sampled_from([*range(classes), VOID])
    return maps(st.integers(0, outputs - 1)), maps(truth), outputs, classes


@given(cases())
def test_scores_by_sets_of_pixels(case: tuple[Maps, Maps, int, int]) -> None:
    prediction, label, outputs, classes = case
    found, expected = score(prediction, label, outputs, classes), by_sets(prediction, label, classes)
    assert {k: found[k] for k in expected} == expected
    assert (found["task"], found["classes"]) == ("segmentation", classes)


@given(cases())
def test_areas_by_histograms(case: tuple[Maps, Maps, int, int]) -> None:
    """mmseg's definition: histograms over the classes, from which predictions of no class drop out."""
    prediction, label, _, classes = case
    p, t = np.array(prediction).ravel(), np.array(label).ravel()
    p, t = p[t != VOID], t[t != VOID]
    bins = np.arange(classes + 1) - 0.5
    hit, predicted, labelled = (np.histogram(v, bins)[0] for v in (p[p == t], p, t))
    m = sum(
        confusion(torch.tensor(a), torch.tensor(b), classes) for a, b in zip(prediction, label, strict=True)
    )
    assert isinstance(m, Tensor) and m.dtype == torch.int64 and m.shape == (classes, classes + 1)
    assert m.diagonal().tolist() == hit.tolist()
    assert m.sum(1).tolist() == labelled.tolist()
    assert m[:, :classes].sum(0).tolist() == predicted.tolist()


def test_by_hand() -> None:
    found = score([[[0, 0, 1], [1, 1, 2]]], [[[0, 1, 1], [1, VOID, 2]]], 3)
    assert found["pixels"] == 5 and found["aAcc"] == 80.0
    assert found["class_iou"] == pytest.approx([50.0, 200 / 3, 100.0])  # 1/2, 2/3, 1/1
    assert found["class_accuracy"] == pytest.approx([100.0, 200 / 3, 100.0])
    assert found["mIoU"] == pytest.approx(650 / 9) and found["mAcc"] == pytest.approx(800 / 9)


def test_absent_classes() -> None:
    found = score([[[0, 3]]], [[[0, 0]]], 5)  # 3 is predicted only, 1, 2 and 4 do not occur
    assert found["class_iou"] == [50.0, None, None, 0.0, None]
    assert found["class_accuracy"] == [50.0, None, None, None, None]
    assert (found["aAcc"], found["mIoU"], found["mAcc"]) == (50.0, 25.0, 50.0)


def test_more_outputs_than_classes() -> None:
    """Pixel 1 is predicted as class 9 of two: wrong for its label, in no other union."""
    found = score([[[0, 9, 1, 1]]], [[[0, 0, 1, 1]]], 10, classes=2)
    assert (found["aAcc"], found["class_iou"]) == (75.0, [50.0, 100.0])
    inside = score([[[0, 1, 1, 1]]], [[[0, 0, 1, 1]]], 10, classes=2)
    assert inside["class_iou"] == pytest.approx([50.0, 200 / 3])


def test_nothing_is_labelled() -> None:
    found = score([[[0, 1]]], [[[VOID, VOID]]], 2)
    assert (found["pixels"], found["aAcc"], found["mIoU"], found["mAcc"]) == (0, None, None, None)
    assert found["class_iou"] == [None, None]
    unlabelled = evaluate(nn.Identity(), [torch.zeros(2, 3, 4, 4)], task="segmentation")
    assert (unlabelled["samples"], unlabelled["mIoU"], unlabelled["class_iou"]) == (2, None, [])


@pytest.mark.parametrize(("stray", "classes"), [(3, 3), (11, 3), (254, 3), (-1, 3)])
def test_stray_labels_are_refused(stray: int, classes: int) -> None:
    with pytest.raises(DataError, match=f"holds class {stray} but there are 3 classes.* with 255"):
        score([[[0, 0]]], [[[0, stray]]], 5, classes)


def bilinear(plane: list[list[float]], height: int, width: int) -> list[list[float]]:
    """Pixel centres at (i + 0.5) / size, borders repeated."""

    def taps(i: int, target: int, source: int) -> tuple[int, int, float]:
        at = max(0.0, (i + 0.5) * source / target - 0.5)
        low = min(int(at), source - 1)
        return low, min(low + 1, source - 1), at - low

    out = []
    for i in range(height):
        a, b, u = taps(i, height, len(plane))
        row = []
        for j in range(width):
            c, d, v = taps(j, width, len(plane[0]))
            top = plane[a][c] * (1 - v) + plane[a][d] * v
            row.append(top * (1 - u) + (plane[b][c] * (1 - v) + plane[b][d] * v) * u)
        out.append(row)
    return out


def classes_of(planes: list[list[list[float]]]) -> list[list[int]]:
    height, width = len(planes[0]), len(planes[0][0])
    return [
        [max(range(len(planes)), key=lambda c: planes[c][i][j]) for j in range(width)] for i in range(height)
    ]


@pytest.mark.parametrize(
    "sizes", [[(8, 10), (8, 10)], [(8, 10), (12, 15)], [(8, 10), (5, 7)], [(4, 5), (4, 5)]]
)
def test_logits_are_resized_to_the_input_and_then_to_the_label(sizes: list[tuple[int, int]]) -> None:
    logits = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0))
    planes = logits.tolist()
    for size in sizes:
        planes = [bilinear(p, *size) for p in planes]
    assert predict(logits, *sizes).tolist() == classes_of(planes)


class Halved(nn.Module):
    """Logits [B, 5, H/2, W/2] of images [B, 3, H, W]."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 5, 3, 2, 1)
        g = torch.Generator().manual_seed(0)
        for p in self.parameters():
            p.data = torch.randn(p.shape, generator=g)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(x)
        return y


class Photos:
    """Images of two sizes, of which `classes` are labelled."""

    classes = 3

    def __init__(self) -> None:
        g = torch.Generator().manual_seed(1)
        sizes = [(6, 8)] * 2 + [(9, 7)] * 2
        self.images = [torch.randn(3, *s, generator=g) for s in sizes]
        self.maps = [torch.randint(0, 4, s, generator=g) for s in sizes]
        for m in self.maps:
            m[m == 3] = VOID

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        return torch.stack([self.images[i] for i in indices]), torch.stack([self.maps[i] for i in indices])


def test_whole_images_at_their_own_sizes() -> None:
    photos, model = Photos(), Halved()
    predictions = []
    for x, y in zip(photos.images, photos.maps, strict=True):
        with torch.no_grad():
            planes = [bilinear(p, *y.shape) for p in model(x[None])[0].tolist()]
        predictions.append(classes_of(planes))
    expected = by_sets(predictions, [m.tolist() for m in photos.maps], 3)
    for size in (1, 2):
        found: Any = evaluate(model, SampleBatches(photos, size))
        assert {k: found[k] for k in expected} == expected
        assert (found["samples"], found["classes"], found["task"]) == (4, 3, "segmentation")
        assert all(v > 0 for v in found["throughput"].values())
    assert max(v for p in predictions for row in p for v in row) > 2  # outputs beyond the classes are chosen
    half = evaluate(model, SampleBatches(photos, 1), limit=2)
    assert half["pixels"] == int(sum((m != VOID).sum() for m in photos.maps[:2])) and half["samples"] == 2


def test_classes_without_a_data_set_are_the_outputs() -> None:
    x, y = Photos()[[0, 1]]
    found = evaluate(Halved(), [(x, y.to(torch.uint8))])
    assert found["classes"] == 5 and len(found["class_iou"]) == 5
    assert found["aAcc"] == evaluate(Halved(), SampleBatches(Photos(), 2), limit=2)["aAcc"]


def test_a_quantized_model_at_another_size(pixelwise: Any) -> None:
    """A large image gives the logits of its parts, to the last bit, wherever they see the same pixels."""
    q = pixelwise.model  # calibrated on images of 8 x 6
    x = 3 * torch.randn(1, 3, 16, 12, generator=torch.Generator().manual_seed(6))
    with torch.no_grad():
        whole, corner, middle = q(x), q(x[..., :8, :6]), q(x[..., 4:12, 4:12])
    assert torch.equal(whole[..., :3, :2], corner[..., :3, :2]) and whole.std() > 0
    assert torch.equal(whole[..., 4, 4], middle[..., 2, 2])
    found = evaluate(q, [(x, whole.argmax(1)), (x[..., :8, :6], corner.argmax(1))])
    assert (found["samples"], found["pixels"]) == (2, 8 * 6 + 4 * 3)
