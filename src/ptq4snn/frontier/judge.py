"""The samples that judge: the float network runs on them once, every candidate once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ptq4snn.data.samples import check_labels
from ptq4snn.errors import DataError
from ptq4snn.frontier.dealing import Dealt
from ptq4snn.frontier.goal import Outcome
from ptq4snn.prepared import Prepared

__all__ = ["Judge"]


@dataclass(frozen=True)
class Judge:
    prepared: Prepared
    dealt: Dealt
    expected: list[Tensor]  # decisions of the float network, a batch each
    right: Tensor | None  # [n] of the float network; None: no labels

    @classmethod
    def of(cls, prepared: Prepared, dealt: Dealt) -> Judge:
        known = list(_decisions(prepared, dealt, prepared.folded.model))
        return cls(prepared, dealt, known, _right(known, dealt.labels))

    def outcome(self, model: nn.Module) -> Outcome:
        found = list(_decisions(self.prepared, self.dealt, model))
        pairs = zip(self.expected, found, strict=True)
        agree = torch.cat([(a == b).double().flatten(1).mean(1) for a, b in pairs])
        return Outcome(agree, _right(found, self.dealt.labels))


def _decisions(prepared: Prepared, dealt: Dealt, model: nn.Module) -> Iterator[Tensor]:
    """[B, 1] of classes, [B, ...] of maps."""
    like = prepared.sample
    batches = (b.unpack().to(like) for b in dealt.judging)
    total = len(dealt.judging)
    tracked = prepared.progress.track(batches, total, "judging")
    for y in prepared.logits(model, tracked):
        if dealt.labels is not None:
            _check(dealt.labels, y)
        yield y.argmax(1).reshape(len(y), -1).cpu()


def _check(labels: Tensor, y: Tensor) -> None:
    if y.dim() != 2:
        raise DataError(
            f"max_drop takes networks that decide over whole samples, and this one's outputs have shape "
            f"{list(y.shape)}: ask for an agreement"
        )
    check_labels(labels, y.shape[1])


def _right(decisions: list[Tensor], labels: Tensor | None) -> Tensor | None:
    return None if labels is None else torch.cat(decisions)[:, 0] == labels
