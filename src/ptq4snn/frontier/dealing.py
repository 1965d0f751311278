"""Samples are dealt: half calibrate and report, half judge the candidates; no sample does both.

Of every two samples in their order one judges, by a coin of the recipe's seed, so that data which are sorted
or alternate between classes are split evenly. When `calibration` samples calibrate, all others judge, up to
JUDGES: to know a share of 97 % to half a point takes some 4,500.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ptq4snn.calibration.calibration_set import check
from ptq4snn.calibration.packed import PackedBatch, pack
from ptq4snn.errors import DataError
from ptq4snn.forms import batches_in, inputs_and_labels
from ptq4snn.recipe import Recipe

__all__ = ["Dealt", "deal"]

FEWEST = 2  # samples to deal
JUDGES = 8192
TOGETHER = 64  # samples that are judged in one batch


@dataclass(frozen=True)
class Dealt:
    """Batches that calibrate, batches that judge, and the labels [n] of these where they are asked for."""

    calibration: list[Tensor]
    judging: list[PackedBatch]
    labels: Tensor | None
    judges: int  # samples that judge


def deal(samples: Any, recipe: Recipe, batch_axis: int) -> Dealt:
    """Both halves of whatever `quantize` takes; labels are read where the goal is one of accuracy."""
    labelled = recipe.max_drop is not None
    sides = _sides(recipe)
    most = len(sides)
    halves: tuple[list[Tensor], list[Tensor]] = ([], [])
    labels: list[Tensor] = []
    seen = 0
    for batch in batches_in(samples, batch_axis, labels=labelled):
        x, y = inputs_and_labels(batch, labels=labelled)
        check(x, halves[0][0] if halves[0] else None, batch_axis, seen)
        x = x.narrow(batch_axis, 0, min(x.shape[batch_axis], most - seen))
        side = sides[seen : seen + x.shape[batch_axis]]
        seen += len(side)
        for half, mine in zip(halves, (~side, side), strict=True):
            if bool(mine.any()):
                half.append(x.index_select(batch_axis, mine.nonzero().flatten().to(x.device)))
        if labelled:
            labels.append(_labels(y, len(side))[side])
        if seen >= most:
            break
    if seen < FEWEST or not all(halves):
        raise DataError(
            f"{seen} samples cannot be dealt: max_drop and agreement need some to calibrate with and others "
            "to judge by, a few hundred of each"
        )
    joined = _joined(halves[1], batch_axis)
    judges = sum(x.shape[batch_axis] for x in halves[1])
    return Dealt(
        halves[0], [pack(x, batch_axis) for x in joined], torch.cat(labels) if labels else None, judges
    )


def _sides(recipe: Recipe) -> Tensor:
    """Whether a sample judges, by its number."""
    pairs = min(recipe.calibration, JUDGES)
    coins = torch.randint(2, (pairs,), generator=torch.Generator().manual_seed(recipe.seed)) == 1
    rest = [recipe.calibration - pairs, JUDGES - pairs]
    return torch.cat(
        [
            torch.stack([coins, ~coins], 1).flatten(),
            torch.tensor([False, True]).repeat_interleave(torch.tensor(rest)),
        ]
    )


def _labels(y: Tensor | None, count: int) -> Tensor:
    """Class numbers [B] of a batch, of which the first `count` samples are used."""
    if y is None:
        raise DataError(
            "max_drop needs samples with labels, and these have none: give (x, y), or ask for an agreement "
            "with the float model, which needs no labels"
        )
    if y.dim() != 1 or len(y) < count or y.is_floating_point():
        raise DataError(
            f"max_drop needs one class number for each sample, and the labels have shape {list(y.shape)} and "
            f"type {y.dtype}: for maps and other targets ask for an agreement"
        )
    return y[:count].cpu()


def _joined(parts: list[Tensor], batch_axis: int) -> list[Tensor]:
    """Neighbours of one shape in batches of some TOGETHER samples, in the order they have."""
    out: list[list[Tensor]] = []
    for x in parts:
        shape = [n for d, n in enumerate(x.shape) if d != batch_axis]
        last = out[-1] if out else []
        fits = last and shape == [n for d, n in enumerate(last[0].shape) if d != batch_axis]
        if fits and sum(p.shape[batch_axis] for p in last) < TOGETHER:
            last.append(x)
        else:
            out.append([x])
    return [piece for p in out for piece in torch.cat(p, batch_axis).split(TOGETHER, batch_axis)]
