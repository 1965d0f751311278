"""Projections that read a membrane stream: the stream's 16-bit integers are the input."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from end_to_end.structures import agreement, drawn, quantized, seeded
from torch import Tensor, nn

import ptq4snn
from ptq4snn.models.neuron import LIF

STEPS = 4


class Block(nn.Module):
    """MS-ResNet's: neurons in front of convolutions, a projection of the stream where its size changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.n1, self.conv1, self.bn1 = (
            LIF(v_threshold=0.5),
            _conv(inputs, outputs, stride),
            nn.BatchNorm2d(outputs),
        )
        self.n2, self.conv2, self.bn2 = (
            LIF(v_threshold=0.5),
            _conv(outputs, outputs, 1),
            nn.BatchNorm2d(outputs),
        )
        self.down = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False) if stride > 1 else None
        self.bn3 = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        lead = x.shape[:2]
        y = self.bn1(self.conv1(self.n1(x).flatten(0, 1))).unflatten(0, lead)
        y = self.bn2(self.conv2(self.n2(y).flatten(0, 1))).unflatten(0, lead)
        return y + (x if self.down is None else self.bn3(self.down(x.flatten(0, 1))).unflatten(0, lead))


def _conv(inputs: int, outputs: int, stride: int) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)


class MembraneShortcuts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.bn = nn.Conv2d(2, 6, 3, padding=1), nn.BatchNorm2d(6)
        self.blocks = nn.Sequential(Block(6, 8, 2), Block(8, 8, 1), Block(8, 12, 2))
        self.n, self.head = LIF(v_threshold=0.5), nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn(self.stem(x)).expand(STEPS, -1, -1, -1, -1)
        out: Tensor = self.head(self.n(self.blocks(y)).mean((3, 4))).mean(0)
        return out


class Pooled(nn.Module):
    """A linear layer that reads the mean of a stream, one that reads its flattened positions."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(2, 6, 3, padding=1)
        self.n, self.conv = LIF(v_threshold=0.5), nn.Conv2d(6, 6, 3, padding=1)
        self.mean, self.flat, self.m, self.head = (
            nn.Linear(6, 12),
            nn.Linear(54, 12),
            LIF(v_threshold=0.5),
            nn.Linear(12, 4),
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.stem(x).expand(STEPS, -1, -1, -1, -1)
        y = y + self.conv(self.n(y).flatten(0, 1)).unflatten(0, y.shape[:2])
        small = torch.nn.functional.avg_pool2d(y.flatten(0, 1), 2).unflatten(0, y.shape[:2])
        out: Tensor = self.head(self.m(self.mean(y.mean((3, 4))) + self.flat(small.flatten(2)))).mean(0)
        return out


IMAGES = drawn(32, 2, 8, 8)
SMALL = drawn(32, 2, 6, 6)


@pytest.mark.parametrize("recipe", ["fast+w4m4", "w4m4", "paper+nearest+w4m4", "fast+w8m8"])
def test_a_downsampling_projection_of_the_stream(recipe: str, tmp_path: Path) -> None:
    net = seeded(MembraneShortcuts)
    q = quantized(net, IMAGES, tmp_path, recipe)
    assert {n: p.role for n, p in q.plan.projections.items() if "down" in n or n == "stem"} == {
        "stem": "stream", "blocks.0.down": "stream", "blocks.2.down": "stream",
    }  # fmt: skip
    if "w8" in recipe:
        assert agreement(net, q, IMAGES) > 0.8


def test_means_and_flattened_positions_of_a_stream(tmp_path: Path) -> None:
    net = seeded(Pooled)
    q = quantized(net, SMALL, tmp_path, "fast+w8m8")
    assert agreement(net, q, SMALL) > 0.8


def test_the_scales_of_the_stream_are_in_the_weight() -> None:
    """W x = sum over the inputs of W u_i * integer_i, so that one scale a row is left."""
    net = seeded(MembraneShortcuts)
    q = ptq4snn.quantize(net, IMAGES, "fast+w8m8", rounding="nearest")
    writer, reader = q.plan.projections["stem"], q.plan.projections["blocks.0.down"]
    assert writer.rescale is not None
    u = torch.tensor(writer.rescale.scales)
    weight = q.integers["blocks.0.down"].weight.flatten(1) * torch.tensor(reader.scales)[:, None] / u
    gain = net.blocks[0].bn3.weight / (net.blocks[0].bn3.running_var + 1e-5).sqrt()  # type: ignore[index,union-attr]
    wanted = (net.blocks[0].down.weight.flatten(1) * gain[:, None]).double()  # type: ignore[index,union-attr]
    assert float((weight - wanted).abs().max()) < 0.01 * float(wanted.abs().max())
