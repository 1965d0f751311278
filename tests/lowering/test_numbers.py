"""Programs of every kind of plan: dithered states, zero points, mirrors, shared scales, 32-bit states."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from lowering.small import images, lively, program_of, quantized
from oracles.simulation import check_same
from torch import Tensor, nn

from ptq4snn.lowering import lower
from ptq4snn.lowering.numbering import number, same_numbers, split
from ptq4snn.models.neuron import LIF
from ptq4snn.models.patches import per_step
from ptq4snn.models.sdt import SpikeDrivenTransformer
from ptq4snn.network.program import Affine, Gather


class Mirrored(nn.Module):
    """A BatchNorm with gains of both signs behind a max-pool; tokens behind it have their channels last."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.n1 = nn.Conv2d(2, 6, 3, padding=1), LIF(v_threshold=0.5)
        self.b, self.pool, self.bn, self.n2 = (
            nn.Conv2d(6, 6, 3, padding=1),
            nn.MaxPool2d(2),
            nn.BatchNorm2d(6),
            LIF(),
        )
        self.head = nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        s = self.n1(self.a(x).expand(3, len(x), 6, 8, 8))
        y = per_step(self.bn, per_step(self.pool, per_step(self.b, s)))
        tokens = self.n2(y.flatten(3).transpose(-1, -2))  # [T, B, N, C]
        logits: Tensor = self.head(tokens.mean(2)).mean(0)
        return logits


def mirrored() -> nn.Module:
    model = lively(Mirrored, images())
    with torch.no_grad():
        model.get_parameter("bn.weight")[::2] *= -1
    return model


RECIPES: dict[str, dict[str, Any]] = {
    "dither": {"state_rounding": "dither"},
    "zero points": {"zero_point": "channel", "objective": "replay"},
    "several widths": {"allocation": "mpba", "beta": 0.8, "percentile": 97.0, "sensitivity_batches": 1},
    "layerwise": {"coupling": "layerwise"},
    "independent": {"coupling": "independent"},
    "none": {"coupling": "none"},
}


@pytest.mark.parametrize("name", RECIPES)
def test_plan(name: str) -> None:
    q = quantized(mirrored(), images(), **RECIPES[name])
    assert q.program is not None, q.not_lowered
    trace = check_same(q, program_of(q), images(3, seed=1))
    assert all(s.mean() > 0.02 for s in trace.spikes.values())
    assert any(isinstance(o, Affine) for o in program_of(q).operations)
    assert min(next(iter(q.plan.mirrors.values())).signs) == -1
    assert not any(isinstance(o, Gather) for o in program_of(q).operations)


def test_the_program_does_not_depend_on_the_numbers() -> None:
    programs = [quantized(mirrored(), images(), **changes).program for changes in RECIPES.values()]
    assert all(p == programs[0] for p in programs)


@pytest.mark.parametrize("changes", [{"stream": "shift"}, {"state_rounding": "dither", "first_membrane": 4}])
def test_streams(changes: dict[str, Any]) -> None:
    x = images()
    q = quantized(lively(lambda: SpikeDrivenTransformer(16, 1, 2, 5, 2, 2, mlp_ratio=1), x), x, **changes)
    check_same(q, program_of(q), images(3, seed=1))
    assert lower(q, images(5, seed=3)) == q.program


def test_numbers_are_short_where_that_holds_them() -> None:
    """And the same, also where some are long: equal numbers of both kinds are equal."""
    sample, element = torch.arange(4).view(4, 1, 1), torch.arange(6).view(1, 2, 3)
    short, long = number(sample, element, 6), number(sample, element + 2**31, 2**31 + 6)
    assert (short.dtype, long.dtype) == (torch.int32, torch.int64)
    assert short.tolist() == torch.arange(24).view(4, 2, 3).tolist()
    assert same_numbers(short, short.long()) and not same_numbers(short, short.long() + 1)
    for numbers, elements in ((short, 6), (long, 2**31 + 6)):
        s = split(numbers, elements)
        assert s.sample.flatten().tolist() == [0, 1, 2, 3] and s.element.dtype == torch.int64
        assert torch.equal(s.element[0], element[0] + (elements - 6))


def test_a_row_that_differs_is_seen() -> None:
    """Numbers are compared with their parts row by row; the last counts as the first."""
    numbers = torch.arange(4).view(4, 1, 1) * 6 + torch.arange(6).view(1, 2, 3)
    numbers[3, 1, 2] = 21
    assert not split(numbers.int(), 6).separate
