"""The budget against a scan of every boundary, in exact arithmetic."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ptq4snn.allocation.budget import Channels, allocate, average_bits


def family(
    order: list[int], protected: list[bool], tops: range, fours: str, protect: bool
) -> list[list[int]]:
    """Allocations by rank. `fours`: "rest" gives 4 to all others, "none" 2, "any" moves the boundary."""
    out = []
    n = len(order)
    for n8 in tops:
        counts = {"rest": [n - n8], "none": [0], "any": list(range(n - n8 + 1))}[fours]
        for n4 in counts:
            bits = [0] * n
            for rank, c in enumerate(order):
                bits[c] = 8 if rank < n8 else 4 if rank < n8 + n4 else 2
                if protect and protected[c]:
                    bits[c] = max(bits[c], 4)
            out.append(bits)
    return out


def mean(bits: list[int], elements: list[int]) -> Fraction:
    return Fraction(sum(b * e for b, e in zip(bits, elements, strict=True)), sum(elements))


def scan(
    scores: list[float], elements: list[int], protected: list[bool], budget: float, percentile: float
) -> tuple[Fraction, bool]:
    """Average of the best allocation, and whether protection can be kept."""
    n = len(scores)
    order = sorted(range(n), key=lambda c: (-scores[c], c))
    n8 = round((100 - percentile) / 100 * n)
    wanted = Fraction(budget)
    protect = mean(family(order, protected, range(1), "none", True)[0], elements) <= wanted
    fixed = family(order, protected, range(n8, n8 + 1), "any", protect)
    averages = [mean(b, elements) for b in fixed]
    if max(averages) < wanted:
        candidates = family(order, protected, range(n + 1), "rest", protect)
    elif min(averages) > wanted:
        candidates = family(order, protected, range(n + 1), "none", protect)
    else:
        candidates = fixed
    best = min((mean(b, elements) for b in candidates), key=lambda a: (abs(a - wanted), a))  # ties: below
    return best, protect


CHANNEL = st.tuples(
    st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9, 1.0]), st.sampled_from([1, 4, 16, 49, 64, 1000]), st.booleans()
)


@given(
    st.lists(CHANNEL, min_size=1, max_size=40),
    st.one_of(st.sampled_from([2.0, 2.5, 3.5, 4.0, 5.0, 8.0]), st.floats(2, 8)),
    st.sampled_from([0.0, 50.0, 90.0, 96.0, 97.0, 99.0, 100.0]),
)
def test_bisection_is_the_scan(
    channels: list[tuple[float, int, bool]], budget: float, percentile: float
) -> None:
    scores, elements, protected = (list(v) for v in zip(*channels, strict=True))
    bits = allocate(
        torch.tensor(scores, dtype=torch.float64),
        Channels(torch.tensor(elements), torch.tensor(protected)),
        budget,
        percentile,
    ).tolist()
    expected, protect = scan(scores, elements, protected, budget, percentile)
    assert mean(bits, elements) == expected
    assert set(bits) <= {2, 4, 8}
    if protect:
        assert all(b >= 4 for b, p in zip(bits, protected, strict=True) if p)
    order = sorted(range(len(scores)), key=lambda c: (-scores[c], c))
    free = [bits[c] for c in order if not protected[c] or not protect]
    assert free == sorted(free, reverse=True)  # never more bits for less score


@pytest.mark.parametrize("budget", [2.0, 2.1, 2.5, 3.0, 3.3, 4.0, 4.7, 5.7, 6.0, 7.9, 8.0])
@pytest.mark.parametrize("percentile", [96.0, 99.0])
def test_every_budget_is_met(budget: float, percentile: float) -> None:
    """With many channels the average misses by no more than half of what one channel's step changes."""
    g = torch.Generator().manual_seed(0)
    elements = torch.tensor([1024, 256, 64]).repeat_interleave(100)
    score = torch.rand(300, generator=g, dtype=torch.float64)
    bits = allocate(score, Channels(elements, torch.zeros(300, dtype=torch.bool)), budget, percentile)
    assert abs(average_bits(bits, elements) - budget) <= 6 * 1024 / float(elements.sum()) / 2


def test_ties_go_below() -> None:
    """Two channels, budget 3.5 of averages 2, 3, 4: 3 and 4 are equally near."""
    channels = Channels(torch.tensor([1, 1]), torch.zeros(2, dtype=torch.bool))
    assert allocate(torch.tensor([1.0, 0.5]), channels, 3.5, 100.0).tolist() == [4, 2]


def test_ties_go_below_in_exact_arithmetic() -> None:
    """Averages of 30/7, 32/7, ...: seven elements do not divide evenly in binary."""
    for elements in ([3, 2, 2], [5, 7, 9], [1, 1, 1], [11, 13, 25, 6]):
        channels = Channels(torch.tensor(elements), torch.zeros(len(elements), dtype=torch.bool))
        score = torch.arange(len(elements), 0, -1).double()
        total = sum(elements)
        for i in range(len(elements)):
            low = 2 * total + 2 * sum(elements[:i])
            middle = Fraction(2 * low + 2 * elements[i], 2 * total)
            if Fraction(float(middle)) != middle:
                continue
            bits = allocate(score, channels, float(middle), 100.0).tolist()
            assert mean(bits, elements) == Fraction(low, total)


def test_equal_scores_are_ordered_by_position() -> None:
    channels = Channels(torch.ones(10, dtype=torch.int64), torch.zeros(10, dtype=torch.bool))
    bits = allocate(torch.full((10,), 0.5), channels, 3.0, 100.0)
    assert bits.tolist() == [4] * 5 + [2] * 5


def test_protection_is_inside_the_budget() -> None:
    protected = torch.zeros(10, dtype=torch.bool)
    protected[7:] = True
    channels = Channels(torch.ones(10, dtype=torch.int64), protected)
    score = torch.arange(10, 0, -1).double()
    bits = allocate(score, channels, 3.0, 100.0)
    assert bits.tolist() == [4, 4, 2, 2, 2, 2, 2, 4, 4, 4]
    # where even the protected channels alone cost more than the budget, the budget wins
    assert allocate(score, channels, 2.0, 100.0).tolist() == [2] * 10


def test_average_is_weighted_by_elements() -> None:
    assert average_bits(torch.tensor([8, 2]), torch.tensor([1, 3])) == 14 / 4
