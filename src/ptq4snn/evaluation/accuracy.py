"""Acc@1 and Acc@5 of a classifier."""

from __future__ import annotations

import torch
from torch import Tensor

from ptq4snn.data.samples import check_labels
from ptq4snn.errors import DataError
from ptq4snn.schema.score_types import Scores

__all__ = ["Accuracy"]

TOP = 5


class Accuracy:
    """Counts the samples whose label has the largest, or one of the five largest, of the logits."""

    def __init__(self) -> None:
        self.labelled = self.first = self.among = 0

    def add(self, x: Tensor, logits: Tensor, y: Tensor) -> None:
        """Inputs, logits [B, classes], labels [B]; of a model that ends with argmax decisions [B]."""
        if logits.dim() == y.dim() == 1 and logits.dtype == torch.int64:
            hits = int((logits == y).sum())
            self.labelled += len(y)
            self.first += hits
            self.among += hits
            return
        if logits.dim() != 2 or y.dim() != 1:
            raise DataError(
                f"labels of shape {list(y.shape)} do not fit outputs of shape {list(logits.shape)}: "
                "classification takes one class number a sample and outputs [B, classes]"
            )
        check_labels(y, logits.shape[1])
        best = logits.topk(min(TOP, logits.shape[1]), 1).indices == y.unsqueeze(1)
        self.labelled += len(y)
        self.first += int((logits.argmax(1) == y).sum())  # of equal logits the first, as users count
        self.among += int(best.sum())

    def merge(self, other: Accuracy) -> None:
        """With what another process has counted."""
        self.labelled += other.labelled
        self.first += other.first
        self.among += other.among

    def result(self) -> Scores:
        """In %; None where no sample had a label."""
        return {
            "task": "classification",
            "accuracy": 100.0 * self.first / self.labelled if self.labelled else None,
            "accuracy_top5": 100.0 * self.among / self.labelled if self.labelled else None,
        }
