"""Devices are looked at before they are used: whether they multiply and add integers exactly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from ptq4snn.errors import PTQ4SNNError
from ptq4snn.numerics.device import check_device, find_device, self_test


@pytest.fixture(autouse=True)
def untested() -> Iterator[None]:
    self_test.cache_clear()
    yield
    self_test.cache_clear()


def test_the_cpu_passes() -> None:
    self_test("cpu")
    check_device(torch.device("cpu"))
    check_device(torch.device("meta"))


@pytest.mark.parametrize("name", ["abacus", "hpu", "meta", "xla"])
def test_a_device_that_computes_nothing_here_is_refused(name: str) -> None:
    with pytest.raises(PTQ4SNNError, match=f"^device {name} cannot be used here: "):
        find_device(name, f"device {name}")
    assert find_device("cpu", "device cpu") == torch.device("cpu")


def test_a_device_that_rounds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    real = functional.conv2d

    def rounded(x: Tensor, w: Tensor, **options: Any) -> Tensor:
        """As TF32 does: ten bits of the weights."""
        if w.dtype == torch.float32:
            w = (w.view(torch.int32) & ~0x1FFF).view(torch.float32)
        return real(x, w, **options)

    monkeypatch.setattr(functional, "conv2d", rounded)
    with pytest.raises(PTQ4SNNError, match="does not multiply integers exactly in float32; use the CPU"):
        self_test("cpu")


def test_a_device_without_float64_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Tensor.to

    def to(x: Tensor, *args: Any) -> Tensor:
        if x.dtype == torch.float64 and args == ("cpu",):
            raise TypeError("Cannot convert a MPS Tensor to float64 dtype")
        return real(x, *args)

    monkeypatch.setattr(Tensor, "to", to)
    with pytest.raises(PTQ4SNNError, match=r"has no float64, .* use the CPU"):
        self_test("cpu")
