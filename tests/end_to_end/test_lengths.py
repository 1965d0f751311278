"""Recordings of different lengths: T differs between the batches that are calibrated, evaluated and run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from end_to_end.structures import drawn, seeded
from torch import Tensor, nn

import ptq4snn
from ptq4snn import runtime
from ptq4snn.errors import DataError
from ptq4snn.models.neuron import LIF
from ptq4snn.runtime.native import available

LENGTHS = (5, 9, 7, 5, 9, 5)


class Frames(nn.Module):
    """Events [T, B, 8]; a mean over time in front of the head."""

    def __init__(self, late: bool = True) -> None:
        super().__init__()
        self.a, self.n, self.b, self.m = nn.Linear(8, 16), LIF(), nn.Linear(16, 16), LIF(v_threshold=0.5)
        self.head, self.late = nn.Linear(16, 4), late

    def forward(self, x: Tensor) -> Tensor:
        s = self.m(self.b(self.n(self.a(x))))
        out: Tensor = self.head(s.mean(0)) if self.late else self.head(s).mean(0)
        return out


def recordings(count: int = 8) -> list[Tensor]:
    return [(drawn(t, count, 8, seed=i) < 0.5).float() * 2 for i, t in enumerate(LENGTHS)]


class Recordings(torch.utils.data.Dataset[Any]):
    """One recording [T, 8] of its own length at a time."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        return (drawn(LENGTHS[i % len(LENGTHS)], 8, seed=i) < 0.5).float() * 2, i % 4


def check(q: ptq4snn.QuantizedModel, net: nn.Module, folder: Path) -> None:
    """The program is the simulation at every length, also one that was never seen."""
    assert q.program is not None, q.not_lowered
    q.save(folder / "q.ptq")
    again = ptq4snn.load(folder / "q.ptq", net)
    for x in [*recordings(), drawn(13, 6, 8) * 2]:
        expected = q(x)
        assert torch.equal(again(x), expected)
        for kernels in ("numpy", *available()):
            rt = runtime.load(folder / "q.ptq", kernels=kernels)
            np.testing.assert_array_equal(rt(x.numpy()), expected.numpy())


@pytest.mark.parametrize("late", [True, False])
@pytest.mark.parametrize("recipe", ["fast+w4m4", "w4m4", "paper+w4m2+brecq"])
def test_batches_of_different_lengths(recipe: str, late: bool, tmp_path: Path) -> None:
    net = seeded(lambda: Frames(late))
    q = ptq4snn.quantize(net, recordings(), recipe, batch_axis=1, iterations=3, micro_batch=4, holdout=8)
    assert q.report["summary"]["samples"] == 48
    check(q, net, tmp_path)


def test_a_data_set_of_recordings(tmp_path: Path) -> None:
    net = seeded(Frames)
    q = ptq4snn.quantize(net, Recordings(), "fast+w4m4", batch_axis=1)
    assert q.report["summary"]["samples"] == 40
    check(q, net, tmp_path)
    for model in (q, net):
        data: Any = Recordings()
        found = ptq4snn.evaluate(model, data, batch_axis=1, progress=False)
        assert found["samples"] == 40 and found["accuracy"] is not None


def test_one_length_gives_what_it_gave(tmp_path: Path) -> None:
    """Recordings sorted by length are the same calibration as unsorted ones."""
    net = seeded(Frames)
    parts = recordings()
    same = [x for x in parts if len(x) == 5]
    a = ptq4snn.quantize(net, same, "fast+w4m4", batch_axis=1)
    b = ptq4snn.quantize(net, torch.cat(same, 1), "fast+w4m4", batch_axis=1)
    assert a.plan == b.plan


def test_what_else_differs_is_refused() -> None:
    class Images(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.n, self.head = nn.Conv2d(1, 4, 3), LIF(v_threshold=0.3), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            y = self.n(self.a(x).expand(4, -1, -1, -1, -1))
            out: Tensor = self.head(y.mean((3, 4))).mean(0)
            return out

    samples = [drawn(4, 1, 8, 8), drawn(4, 1, 8, 9)]
    with pytest.raises(DataError, match="not that of the 4 time steps, which alone may differ"):
        ptq4snn.quantize(Images(), samples, "fast+w4m4")
    with pytest.raises(DataError, match="different shapes"):
        ptq4snn.quantize(Images(), [drawn(4, 1, 8, 8), drawn(4, 1, 9, 9)], "fast+w4m4")
