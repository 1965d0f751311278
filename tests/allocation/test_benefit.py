"""Bits by benefit against every allocation there is."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ptq4snn.allocation.benefit import cheapest
from ptq4snn.allocation.budget import Channels, average_bits

WIDTHS = (2, 3, 4, 8)


def channels(elements: list[int], protected: list[bool] | None = None) -> Channels:
    return Channels(torch.tensor(elements), torch.tensor(protected or [False] * len(elements)))


def total(costs: Tensor, bits: Tensor, widths: tuple[int, ...] = WIDTHS) -> float:
    return sum(float(costs[i, widths.index(int(b))]) for i, b in enumerate(bits))


def optimum(costs: Tensor, elements: list[int], budget: float, least: list[int]) -> float:
    best = float("inf")
    for bits in product(WIDTHS, repeat=len(elements)):
        if any(b < m for b, m in zip(bits, least, strict=True)):
            continue
        if sum(b * e for b, e in zip(bits, elements, strict=True)) <= budget * sum(elements) + 1e-9:
            best = min(best, total(costs, torch.tensor(bits)))
    return best


def falling(rows: list[list[float]]) -> Tensor:
    """Costs that fall with the width."""
    return torch.tensor([sorted(r, reverse=True) for r in rows], dtype=torch.float64)


COST = st.lists(st.floats(0, 10).map(lambda x: round(x, 3)), min_size=4, max_size=4)
CASE = st.integers(1, 5).flatmap(
    lambda n: st.tuples(
        st.lists(COST, min_size=n, max_size=n),
        st.lists(st.sampled_from([1, 4, 9, 16]), min_size=n, max_size=n),
        st.lists(st.booleans(), min_size=n, max_size=n),
        st.floats(2, 8),
    )
)


@settings(max_examples=60)
@given(CASE)
def test_within_the_budget_and_one_step_of_the_optimum(
    case: tuple[list[list[float]], list[int], list[bool], float],
) -> None:
    rows, elements, protected, budget = case
    costs = falling(rows)
    found = cheapest(costs, WIDTHS, channels(elements, protected), budget)
    assert set(found.tolist()) <= set(WIDTHS)
    assert average_bits(found, torch.tensor(elements)) <= budget + 1e-9
    possible = sum(max(2, 4 * p) * e for p, e in zip(protected, elements, strict=True)) <= budget * sum(
        elements
    )
    least = [4 if p and possible else 2 for p in protected]
    assert all(int(b) >= m for b, m in zip(found, least, strict=True))
    # a Lagrangian solution misses at most what one channel's widening gains
    step = max(float(r[WIDTHS.index(m)] - r[-1]) for r, m in zip(costs, least, strict=True))
    assert total(costs, found) <= optimum(costs, elements, budget, least) + step + 1e-9
    again = cheapest(costs, WIDTHS, channels(elements, protected), budget)
    assert torch.equal(found, again)


@settings(max_examples=60)
@given(
    st.integers(2, 6).flatmap(
        lambda n: st.lists(st.tuples(*[st.floats(0.01, 5)] * 2), min_size=n, max_size=n)
    ),
    st.integers(0, 12),
)
def test_equal_channels_with_falling_gains_get_the_optimum(
    gains: list[tuple[float, float]], extra: int
) -> None:
    """Steps of one bit, each gaining less than the one before: taking the best first is exact."""
    n = len(gains)
    rows = [[sum(sorted(g)), min(g), 0.0, 0.0] for g in gains]
    costs = torch.tensor(rows, dtype=torch.float64)
    budget = 2 + min(extra, 2 * n) / n
    found = cheapest(costs, WIDTHS, channels([3] * n), budget)
    assert total(costs, found) == pytest.approx(optimum(costs, [3] * n, budget, [2] * n), abs=1e-9)


def test_many_channels_of_one_price_share_what_there_is() -> None:
    """All change at the same price: half of them can be paid for, also where the way leads past a width."""
    linear = torch.tensor([[3.0, 2.0, 1.0, 1.0]] * 6, dtype=torch.float64)
    assert total(linear, cheapest(linear, WIDTHS, channels([5] * 6), 3.0)) == 12.0
    leap = torch.tensor([[10.0, 10.0, 10.0, 0.0]] * 6, dtype=torch.float64)
    found = cheapest(leap, WIDTHS, channels([5] * 6), 5.0)
    assert sorted(found.tolist()) == [2, 2, 2, 8, 8, 8]


def test_bits_that_gain_nothing_are_not_spent() -> None:
    costs = torch.tensor([[0.0, 0.0, 0.0, 0.0], [5.0, 1.0, 1.0, 1.0]], dtype=torch.float64)
    assert cheapest(costs, WIDTHS, channels([1, 1]), 8.0).tolist() == [2, 3]


def test_a_cost_that_rises_with_the_width_is_noise() -> None:
    costs = torch.tensor([[5.0, 1.0, 3.0, 2.0]], dtype=torch.float64)
    assert cheapest(costs, WIDTHS, channels([7]), 8.0).tolist() == [3]
    protected = torch.tensor([[1.0, 1.0, 5.0, 4.9]], dtype=torch.float64)
    assert cheapest(protected, WIDTHS, channels([7], [True]), 8.0).tolist() == [4]


def test_protected_channels() -> None:
    costs = torch.tensor([[1.0, 1.0, 1.0, 1.0], [9.0, 5.0, 2.0, 0.0]], dtype=torch.float64)
    last = channels([4, 4], [True, False])
    assert cheapest(costs, WIDTHS, last, 3.0).tolist() == [4, 2]
    assert cheapest(costs, WIDTHS, last, 2.5).tolist() == [2, 3]  # 4 cannot be paid for
    narrow = torch.tensor([[9.0, 1.0], [9.0, 1.0]], dtype=torch.float64)
    assert cheapest(narrow, (2, 3), channels([4, 4], [True, True]), 3.0).tolist() == [3, 3]


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_the_size_of_costs_does_not_matter(scale: float) -> None:
    g = torch.Generator().manual_seed(0)
    costs = torch.rand(40, 4, generator=g, dtype=torch.float64).sort(1, descending=True).values
    sizes = channels(torch.randint(1, 65, (40,), generator=g).tolist())
    found = cheapest(costs * scale, WIDTHS, sizes, 3.5)
    assert torch.equal(found, cheapest(costs, WIDTHS, sizes, 3.5))
    assert average_bits(found, sizes.elements) == pytest.approx(3.5, abs=0.05)
