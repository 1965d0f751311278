"""Transposed convolutions: zeros between the elements, and a convolution."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from end_to_end.structures import agreement, drawn, quantized, seeded
from torch import Tensor, nn

from ptq4snn.discovery.transposing import Untransposed
from ptq4snn.models.neuron import LIF

STEPS = 4
SETTINGS: list[dict[str, Any]] = [
    {"kernel_size": 2, "stride": 2},
    {"kernel_size": 3, "stride": 2, "padding": 1, "output_padding": 1},
    {"kernel_size": 3, "padding": 1, "groups": 2},
    {"kernel_size": (3, 2), "stride": (1, 3), "dilation": (2, 1), "padding": (0, 1), "bias": False},
    {"kernel_size": 1, "stride": 2, "padding": 1},
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_convolution_is_the_transposed_one(settings: dict[str, Any]) -> None:
    for kind, size in (
        (nn.ConvTranspose2d, (5, 4)),
        (nn.ConvTranspose1d, (6,)),
        (nn.ConvTranspose3d, (3, 4, 3)),
    ):
        if len(size) != 2 and any(isinstance(v, tuple) for v in settings.values()):
            continue
        module = seeded(partial(kind, 4, 6, **settings)).double()
        x = drawn(3, 4, *size).double()
        torch.testing.assert_close(Untransposed(module)(x), module(x), rtol=1e-12, atol=1e-12)


class Decoder(nn.Module):
    """A spiking encoder and decoder; the output is a map."""

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__()
        self.stem, self.n = nn.Conv2d(2, 4, 3, stride=2, padding=1), LIF(v_threshold=0.5)
        self.up, self.bn, self.m = (
            nn.ConvTranspose2d(4, 6, **settings),
            nn.BatchNorm2d(6),
            LIF(v_threshold=0.5),
        )
        self.head = nn.Conv2d(6, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.n(self.stem(x).expand(STEPS, -1, -1, -1, -1)).flatten(0, 1)
        y = self.m(self.bn(self.up(y)).unflatten(0, (STEPS, -1)))
        out: Tensor = self.head(y.flatten(0, 1)).unflatten(0, (STEPS, -1)).mean(0)
        return out


@pytest.mark.parametrize("settings", SETTINGS)
def test_decoders(settings: dict[str, Any], tmp_path: Path) -> None:
    x = drawn(16, 2, 8, 8)
    net = seeded(lambda: Decoder(settings), gain=4.0)
    q = quantized(net, x, tmp_path, "fast+w8m8")
    assert "up.plain" in q.plan.projections and bool(q(x).any())
    assert agreement(net, q, x) > 0.5
