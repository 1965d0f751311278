"""The error of a membrane potential and its gradient, against the neuron itself and autograd."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from ptq4snn.frameworks.adapter import NeuronSpec
from ptq4snn.frameworks.core import FloatCore
from ptq4snn.rounding.error import Potential, potential_error

T, SHAPE = 6, (3, 4)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def target(begins: tuple[bool, ...] | None = None, hard: bool = True) -> Potential:
    resets = tuple((random(*SHAPE, seed=t + 9) > 0.5) if hard else None for t in range(T))
    starts = begins or (True, *[False] * (T - 1))
    return Potential(tuple(random(T, *SHAPE, seed=1)), resets, starts, 0.7, 0.5)


def by_hand(p: Potential, currents: list[Tensor]) -> Tensor:
    total, e = torch.zeros((), dtype=torch.float64), torch.zeros(SHAPE, dtype=torch.float64)
    for t, x in enumerate(currents):
        if p.begins[t]:
            e = torch.zeros_like(e)
        e = p.leak * e + p.gain * (x - p.currents[t])
        total = total + e.square().sum()
        reset = p.resets[t]
        if reset is not None:
            e = torch.where(reset, torch.zeros_like(e), e)
    return 0.3 * total


@pytest.mark.parametrize("hard", [True, False])
@pytest.mark.parametrize("begins", [None, (True, False, False, True, False, False)])
def test_value_and_gradient(hard: bool, begins: tuple[bool, ...] | None) -> None:
    p = target(begins, hard)
    a = random(T, *SHAPE, seed=2).requires_grad_()
    b = a.detach().clone().requires_grad_()
    found, expected = potential_error(p, list(a), 0.3), by_hand(p, list(b))
    torch.testing.assert_close(found, expected)
    (2 * found).backward()
    (2 * expected).backward()
    torch.testing.assert_close(a.grad, b.grad)


@pytest.mark.parametrize("reset", ["hard", "soft"])
def test_it_is_the_difference_of_two_neurons_that_fire_alike(reset: str) -> None:
    """Both neurons reset where the first one fires: then their potentials differ by e exactly."""
    number = torch.tensor
    spec = NeuronSpec(
        number(0.7), number(0.5), number(1.0), number(1.0), ">=", reset, lambda u: u  # type: ignore[arg-type]
    )  # fmt: skip
    core = FloatCore(spec)
    exact, other = random(T, *SHAPE, seed=3) + 1, random(T, *SHAPE, seed=4) + 1
    v = w = None
    expected, resets = 0.0, []
    for t in range(T):
        s, v, h = core.step(exact[t], v, t)
        pre = core.charge(other[t], w)
        w = core.settle(pre, s, t)
        expected += float((pre - h).square().sum())
        resets.append(s.bool() if reset == "hard" else None)
    assert any(r is None or bool(r.any()) for r in resets)
    p = replace(target(), currents=tuple(exact), resets=tuple(resets), leak=float(spec.leak), gain=0.5)
    assert float(potential_error(p, list(other), 1.0)) == pytest.approx(expected, rel=1e-12)
