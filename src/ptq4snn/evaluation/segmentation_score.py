"""Scores of a segmentation, defined as in mmseg, so that published figures can be compared.

Counted are the pixels of the whole data set whose label is not VOID; n is its number of classes.

    confusion   M[l, p] pixels of label l that were predicted as p; M[l, n] as no class of the data set
    areas       I_c = M[c, c],   L_c = sum_p M[c, p] with p = n,   P_c = sum_l M[l, c]
    aAcc        sum_c I_c / sum_c L_c
    mIoU        mean of I_c / (L_c + P_c - I_c) over the classes that are labelled or predicted anywhere
    mAcc        mean of I_c / L_c over the classes that are labelled anywhere

A model may have more outputs than the data set has classes (150 for the 21 of VOC). Such a prediction is
wrong: it stays in L of its label, but it is in no P and so enlarges no other union. A class that is predicted
but never labelled has an IoU of 0, which counts; a class that is neither has none.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from ptq4snn.data.samples import VOID
from ptq4snn.errors import DataError
from ptq4snn.schema.score_types import Scores

__all__ = ["Segmentation", "predict"]


class Segmentation:
    """Adds up M [n, n + 1]; n is the number of the model's outputs where `classes` is not known."""

    def __init__(self, classes: int | None = None) -> None:
        self.classes = classes
        self.confusion: Tensor | None = None

    def add(self, x: Tensor, logits: Tensor, y: Tensor) -> None:
        """Inputs [..., H, W], logits [B, outputs, h, w], label maps [B, H', W']."""
        if logits.dim() != 4 or y.dim() != 3:
            raise DataError(
                f"labels of shape {list(y.shape)} do not fit outputs of shape {list(logits.shape)}: "
                "segmentation takes label maps [B, H, W] and outputs [B, classes, h, w]"
            )
        if self.classes is None:
            self.classes = logits.shape[1]
        for one, label in zip(logits, y, strict=True):  # logits of full size are large: one image at a time
            found = confusion(predict(one, x.shape[-2:], label.shape), label.long(), self.classes)
            self.confusion = found if self.confusion is None else self.confusion + found

    def merge(self, other: Segmentation) -> None:
        """With what another process has counted."""
        self.classes = other.classes if self.classes is None else self.classes
        if other.confusion is not None:
            own = self.confusion
            self.confusion = other.confusion if own is None else own + other.confusion

    def result(self) -> Scores:
        """In %; None where nothing was labelled, and for a class that does not occur."""
        n = self.classes or 0
        m = torch.zeros(n, n + 1, dtype=torch.int64) if self.confusion is None else self.confusion
        hit, label, prediction = m.diagonal(), m.sum(1), m[:, :-1].sum(0)  # I, L, P [n]
        iou = [share(i, u) for i, u in zip(hit, label + prediction - hit, strict=True)]
        accuracy = [share(i, a) for i, a in zip(hit, label, strict=True)]
        return {
            "task": "segmentation",
            "classes": self.classes,
            "pixels": int(label.sum()),
            "aAcc": share(hit.sum(), label.sum()),
            "mIoU": mean(iou),
            "mAcc": mean(accuracy),
            "class_iou": iou,
            "class_accuracy": accuracy,
        }


def predict(logits: Tensor, inner: Sequence[int], outer: Sequence[int]) -> Tensor:
    """The class of every pixel of the label's size `outer`, from logits [outputs, h, w].

    As mmseg does, by way of the input's size `inner`, which differs where the input was resized.
    """
    found = logits.unsqueeze(0)
    for size in (inner, outer):
        if found.shape[-2:] != tuple(size):
            found = F.interpolate(found, size=tuple(size), mode="bilinear", align_corners=False)
    return found[0].argmax(0)


def confusion(prediction: Tensor, label: Tensor, classes: int) -> Tensor:
    """M [classes, classes + 1] of one image; both [H, W]."""
    scored = label != VOID
    label, prediction = label[scored], prediction[scored].clamp_max(classes)
    stray = label[(label < 0) | (label >= classes)]
    if len(stray):
        raise DataError(
            f"a label map holds class {int(stray[0])} but there are {classes} classes: "
            f"number them from 0, and mark pixels that are not scored with {VOID}"
        )
    pairs = torch.bincount(label * (classes + 1) + prediction, minlength=classes * (classes + 1))
    return pairs.view(classes, classes + 1)


def share(part: Tensor, whole: Tensor) -> float | None:
    return 100.0 * int(part) / int(whole) if int(whole) else None


def mean(values: Sequence[float | None]) -> float | None:
    """Of those that are there."""
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else None
