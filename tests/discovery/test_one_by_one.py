"""Convolutions in float64 one image at a time give what all images at once give."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ptq4snn.discovery.one_by_one import AXES, OneByOne


class Sizes(TorchFunctionMode):
    """Notes how many images convolutions get."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in AXES:
            self.seen.append(len(args[0]))
        return func(*args, **(kwargs or {}))


def sizes(module: nn.Module, x: Tensor) -> tuple[Tensor, list[int]]:
    with torch.no_grad(), Sizes() as noted, OneByOne():
        return module(x), noted.seen


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.Conv1d(3, 4, 3, padding=1), (5, 3, 9)),
        (nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2), (3, 4, 7, 7)),
        (nn.Conv2d(2, 2, 3, padding=1, padding_mode="circular"), (3, 2, 5, 5)),
        (nn.Conv3d(2, 3, 2), (2, 2, 4, 4, 4)),
    ],
)
def test_one_image_at_a_time(module: nn.Module, shape: tuple[int, ...]) -> None:
    module, x = module.double(), torch.randn(shape, dtype=torch.float64)
    with torch.no_grad():
        expected = module(x)
    found, seen = sizes(module, x)
    assert torch.allclose(found, expected, rtol=0, atol=1e-12) and seen == [1] * len(x)


def test_what_is_left_alone() -> None:
    layer = nn.Conv2d(2, 3, 3)
    x = torch.randn(4, 2, 5, 5)
    assert sizes(layer, x)[1] == [4]  # float32
    wide = layer.double()
    assert sizes(wide, x[0].double())[1] == [2]  # no batch: its first axis are channels
    with Sizes() as noted, OneByOne():
        wide(x.double()).sum().backward()
    assert noted.seen == [4]  # a gradient is wanted
