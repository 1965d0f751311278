"""ReLU between projections: integers of 8 bits without a sign."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from end_to_end.structures import agreement, drawn, quantized, seeded
from torch import Tensor, nn

import ptq4snn
from ptq4snn.errors import UnsupportedOperation
from ptq4snn.models.neuron import LIF
from ptq4snn.network.program import Clip

STEPS = 4


class Stem(nn.Module):
    """conv, BatchNorm, ReLU, max-pool, conv, ReLU, conv in front of the first neuron."""

    def __init__(self, late: bool = False) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(2, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(inplace=True), *([nn.BatchNorm2d(8)] if late else []),
        )  # fmt: skip
        self.conv, self.n = nn.Conv2d(8, 6, 3, padding=1), LIF(v_threshold=0.5)
        self.fc, self.m, self.head = nn.Linear(6, 12), LIF(v_threshold=0.5), nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.n(self.conv(self.stem(x)).expand(STEPS, -1, -1, -1, -1))
        out: Tensor = self.head(self.m(torch.relu(self.fc(y.mean((3, 4)))))).mean(0)
        return out


IMAGES = drawn(32, 2, 8, 8)


@pytest.mark.parametrize("recipe", ["fast+w4m4", "w4m4", "fast+w8m8"])
def test_a_stem_of_relus(recipe: str, tmp_path: Path) -> None:
    net = seeded(Stem)
    q = quantized(net, IMAGES, tmp_path, recipe)
    assert q.program is not None
    clips = [op for op in q.program.operations if isinstance(op, Clip)]
    assert [(c.low, c.high) for c in clips] == [(0, None)] * 3
    rescaled = {n: p.rescale.bits for n, p in q.plan.projections.items() if p.rescale is not None}
    assert rescaled == {"stem.0": 9, "stem.4": 9}  # 0..255 behind the ReLU
    if "w8" in recipe:
        assert agreement(net, q, IMAGES) > 0.8


def test_a_norm_behind_a_relu_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedOperation, match=r"'stem\.6' comes behind 'relu'"):
        ptq4snn.quantize(seeded(lambda: Stem(late=True)), IMAGES, "fast+w4m4")
