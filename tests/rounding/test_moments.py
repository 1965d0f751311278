"""Sums of x x^T: bytes give what floats give, on every kind of projection."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from ptq4snn.rounding import moments
from ptq4snn.rounding.moments import Hessian

LAYERS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "linear": (nn.Linear(6, 5), (3, 7, 6)),
    "plain": (nn.Conv2d(4, 5, 3, padding=1), (3, 4, 7, 6)),
    "strided": (nn.Conv2d(3, 5, (3, 2), stride=(2, 1), dilation=(1, 2), padding=(2, 1)), (3, 3, 9, 8)),
    "same": (nn.Conv2d(3, 5, (4, 3), padding="same"), (3, 3, 6, 5)),
    "grouped": (nn.Conv2d(6, 6, 3, padding=1, groups=3), (2, 3, 6, 5, 5)),
    "depthwise": (nn.Conv2d(4, 4, 3, groups=4), (3, 4, 5, 5)),
    "mirrored": (nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect"), (3, 2, 5, 6)),
    "one axis": (nn.Conv1d(3, 4, 5, padding=2, stride=2), (3, 3, 11)),
    "three axes": (nn.Conv3d(2, 3, (2, 3, 1), padding=(0, 1, 0)), (3, 2, 4, 5, 3)),
    "wide": (nn.Conv2d(40, 3, 3, padding=1), (2, 40, 5, 5)),
}


def counts(shape: tuple[int, ...], largest: int, unit: float) -> Tensor:
    g = torch.Generator().manual_seed(largest)
    return torch.randint(-largest, largest + 1, shape, generator=g) * unit


def summed(module: nn.Module, x: Tensor, unit: float, calls: int | None) -> Hessian:
    found = Hessian(module, calls, unit)
    for number in range(2):
        found.begin(number, 1.0, 1)
        found.update(x + number * unit)
        found.end(keep=False)
    return found


@pytest.mark.parametrize("calls", [None, 2])
@pytest.mark.parametrize("name", LAYERS)
def test_bytes_give_the_sums_of_floats(name: str, calls: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moments, "AT_LEAST", 16)  # so that with calls some positions are left out
    monkeypatch.setattr(moments, "PER_INPUT", 0)
    module, shape = LAYERS[name]
    x = counts(shape, 5, 0.25)
    found = summed(module, x, 0.25, calls)
    assert found.small is not None and found.total is None
    monkeypatch.setattr(moments, "SMALL", -1)
    floats = summed(module, x, 0.25, calls)
    assert floats.small is None and floats.every == found.every == (1 if calls is None else floats.every)
    assert found.count == floats.count and torch.equal(found.value(), floats.value())


def test_large_counts_and_small_ones_add_up() -> None:
    module, shape = LAYERS["plain"]
    small, large = counts(shape, 3, 1.0), counts(shape, 90, 1.0)
    both = Hessian(module, unit=1.0)
    both.update(small)
    both.update(large)
    assert both.small is not None and both.total is not None  # one went as bytes, the other could not
    x = torch.cat([moments.columns(module, small), moments.columns(module, large)], 2).double()
    assert torch.equal(both.value(), x @ x.transpose(1, 2) * (2 / x.shape[2]))


def test_sums_of_bytes_do_not_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    module, shape = LAYERS["linear"]
    monkeypatch.setattr(moments, "LARGEST", 3**2 * 21)  # 21 columns of 3 reach it
    found = Hessian(module, unit=1.0)
    found.update(torch.full(shape, 3.0))
    assert found.small is None and found.total is not None


@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 1, 4, 3)])
def test_places_on_every_axis(shape: tuple[int, ...]) -> None:
    places = torch.arange(math.prod(shape))
    for mine, theirs in zip(
        moments.unravelled(places, shape), torch.unravel_index(places, shape), strict=True
    ):
        assert torch.equal(mine, theirs)
