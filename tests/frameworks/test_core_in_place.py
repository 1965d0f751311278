"""A neuron that nobody watches runs in place: the bits of its steps one by one; nothing given is changed."""

from __future__ import annotations

import itertools
from typing import Literal

import pytest
import torch
from torch import Tensor

from ptq4snn.frameworks.adapter import NeuronSpec
from ptq4snn.frameworks.core import FloatCore, NeuronCore

Reset = Literal["hard", "soft", "none"]
Comparator = Literal[">=", ">"]
Case = tuple[Reset, Comparator, float, float | None, bool]
RESETS: tuple[Reset, ...] = ("hard", "soft", "none")
COMPARATORS: tuple[Comparator, ...] = (">=", ">")
CASES: list[Case] = list(itertools.product(RESETS, COMPARATORS, (1.0, 0.3), (None, -0.4), (False, True)))


def vector(value: float, wide: bool, shape: tuple[int, ...] = (3, 1, 1)) -> Tensor:
    spread = torch.linspace(0.9, 1.1, 3, dtype=torch.float64).view(shape)
    return value * spread if wide else torch.tensor(value, dtype=torch.float64)


def spec(reset: Reset, comparator: Comparator, gain: float, floor: float | None, wide: bool) -> NeuronSpec:
    return NeuronSpec(
        leak=vector(0.7, wide), gain=vector(gain, wide) if gain != 1.0 else vector(gain, False),
        theta=vector(0.8, wide), rho=vector(0.8, wide), comparator=comparator, reset=reset,
        surrogate=lambda u: u, floor=None if floor is None else vector(floor, wide),
    )  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_same_bits_as_step_by_step(case: Case, dtype: torch.dtype) -> None:
    core = FloatCore(spec(*case))
    g = torch.Generator().manual_seed(0)
    x = torch.randn(6, 4, 3, 5, 5, generator=g, dtype=torch.float64).to(dtype)
    begun = torch.randn(4, 3, 5, 5, generator=g, dtype=torch.float64).to(dtype)
    x[2, 0, 0] = 0.8  # on the threshold of a neuron at rest
    for v in (None, begun):
        given = x.clone(), begun.clone()
        found = core.run(x, v)
        expected = NeuronCore.run(core, x, v)
        for a, b in zip(found, expected, strict=True):
            assert a is not None and b is not None
            assert a.dtype == b.dtype and torch.equal(a, b) and float(a.abs().sum()) > 0
        assert torch.equal(x, given[0]) and torch.equal(begun, given[1])


def test_views_and_whoever_asks_for_gradients() -> None:
    core = FloatCore(spec("soft", ">=", 1.0, None, False))
    x = torch.randn(4, 3, 6, generator=torch.Generator().manual_seed(1))
    turned = x.transpose(0, 2)  # [6, 3, 4], strided
    assert torch.equal(core.run(turned, None)[0], NeuronCore.run(core, turned, None)[0])
    asked = x.clone().requires_grad_()
    state = core.run(asked, None)[1]
    assert state is not None and state.requires_grad
