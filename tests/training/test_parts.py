"""Learning rate, loss and class weights against formulas written out."""

from __future__ import annotations

import math

import pytest
import torch

from ptq4snn.data.samples import VOID
from ptq4snn.training.losses import class_weights, loss
from ptq4snn.training.schedule import learning_rate


def test_learning_rate_rises_to_the_peak_and_falls_to_zero() -> None:
    rates = [learning_rate(i, 100, 2.0, 0.15) for i in range(100)]
    top = rates.index(max(rates))
    assert max(rates) == pytest.approx(2.0) and top == 15
    assert rates[: top + 1] == sorted(rates[: top + 1]) and 0.0 < rates[0] < 0.2
    assert rates[top:] == sorted(rates[top:], reverse=True) and rates[-1] < 1e-3
    assert rates[15 + 85 // 2] == pytest.approx(1.0 + math.cos(math.pi * 42 / 85), rel=1e-12)


def test_learning_rate_without_warm_up() -> None:
    assert learning_rate(0, 10, 3.0, 0.0) == 3.0
    assert learning_rate(0, 1, 3.0, 1.0) > 0.0


def test_loss_of_maps_ignores_void_and_enlarges_logits() -> None:
    logits = torch.tensor([[2.0, -1.0]]).view(1, 2, 1, 1).repeat(1, 1, 2, 2)
    y = torch.tensor([[[0, 1, 0, 1], [VOID] * 4, [0] * 4, [1] * 4]])
    p0 = math.exp(2.0) / (math.exp(2.0) + math.exp(-1.0))
    expected = -(6 * math.log(p0) + 6 * math.log(1 - p0)) / 12
    assert float(loss(logits, y, 0.0)) == pytest.approx(expected, rel=1e-6)


def test_class_weights_are_inverse_roots_of_frequencies() -> None:
    maps = [torch.tensor([[[0] * 16, [1] * 4 + [VOID] * 12]])]
    weights = class_weights(maps, 2)
    assert float(weights.mean()) == pytest.approx(1.0)
    assert float(weights[1] / weights[0]) == pytest.approx(2.0)


def test_class_255_is_not_void() -> None:
    logits = torch.zeros(2, 1000)
    assert float(loss(logits, torch.tensor([255, 255]), 0.0)) == pytest.approx(math.log(1000.0))
