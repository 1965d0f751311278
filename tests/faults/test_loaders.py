"""Samples that go wrong on the way: loaders that raise, repeat themselves, shrink, or turn into NaN."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from cli.nets import NET
from torch import Tensor, nn

import ptq4snn
from ptq4snn.errors import DataError, PTQ4SNNError

BATCHES = 12  # of 8 samples; holdout takes the first ones


@pytest.fixture
def net(tmp_path: Path) -> nn.Module:
    made: dict[str, Callable[[], nn.Module]] = {}
    exec(NET, made)
    return made["net"]()


def batches(g: int = 0) -> list[Tensor]:
    x = torch.randn(8 * BATCHES, 6, generator=torch.Generator().manual_seed(g))
    return list(x.split(8))


def quantized(net: nn.Module, samples: object) -> dict[str, Tensor]:
    return ptq4snn.quantize(net, samples, "fast+w4m4", holdout=16, progress=False).state_dict()


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


@pytest.mark.parametrize("when", [0, 1, 3, BATCHES - 1])
def test_what_a_loader_raises_comes_out_as_it_is(net: nn.Module, when: int) -> None:
    class Lost(Exception):
        pass

    def loader() -> Iterator[Tensor]:
        for i, x in enumerate(batches()):
            if i == when:
                raise Lost("the disk is gone")
            yield x

    with pytest.raises(Lost, match="the disk is gone"):
        quantized(net, loader())
    assert same(quantized(net, batches()), quantized(net, batches()))  # the model is as it was


@pytest.mark.parametrize("when", [0, 3, BATCHES - 1])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_value_that_is_none_is_named_wherever_it_comes(net: nn.Module, when: int, value: float) -> None:
    x = batches()
    x[when][-1, 2] = value
    with pytest.raises(DataError, match="NaN or infinite"):
        quantized(net, x)


def test_a_loader_that_repeats_itself_is_read_up_to_the_limit(net: nn.Module) -> None:
    def endless() -> Iterator[Tensor]:
        while True:
            yield from batches()

    found = ptq4snn.quantize(net, endless(), "fast+w4m4", holdout=16, calibration=8 * BATCHES, progress=False)
    assert same(found.state_dict(), quantized(net, batches()))


def test_a_loader_whose_batches_shrink_gives_the_same_as_even_ones(net: nn.Module) -> None:
    x = torch.cat(batches())
    sizes = [30, 20, 15, 10, 8, 5, 3, 2, 1, 1, 1]
    assert sum(sizes) == len(x)
    assert same(quantized(net, list(x.split(sizes))), quantized(net, batches()))


def test_a_loader_that_is_empty_the_second_time_is_not_read_twice(net: nn.Module) -> None:
    assert same(quantized(net, iter(batches())), quantized(net, batches()))


def test_samples_that_change_their_shape_are_told(net: nn.Module) -> None:
    x = batches()
    x[5] = x[5][:, :5]
    with pytest.raises(PTQ4SNNError, match="different shapes"):
        quantized(net, x)
