"""The integer grid against a search over all of its points and against numeric integration."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ptq4snn.numerics.grid import interval_error, largest, numbered, on_levels, quantize, signed_range

BITS = st.sampled_from([2, 3, 4, 8])


def nearest_point(x: float, scale: float, bits: int) -> int:
    """Of all grid points the one at the least distance, in exact arithmetic; of two the even one."""
    points = range(-(2 ** (bits - 1)), 2 ** (bits - 1))
    return min(points, key=lambda q: (abs(Fraction(x) - q * Fraction(scale)), q % 2))


@pytest.mark.parametrize(
    ("bits", "low", "high"), [(2, -2, 1), (4, -8, 7), (8, -128, 127), (16, -32768, 32767)]
)
def test_signed_range(bits: int, low: int, high: int) -> None:
    assert signed_range(bits) == (low, high)


@given(st.integers(-600, 600), st.integers(-6, 6), BITS)
def test_ties_go_to_even(quarters: int, exponent: int, bits: int) -> None:
    scale = 2.0**exponent
    x = quarters / 4 * scale  # halves and quarters of a step, exactly
    found = quantize(torch.tensor([x], dtype=torch.float64), scale, bits)
    assert int(found) == nearest_point(x, scale, bits)


@given(st.lists(st.floats(-50, 50), min_size=1, max_size=20), st.floats(0.01, 20), BITS)
def test_quantize_finds_a_nearest_point(values: list[float], scale: float, bits: int) -> None:
    found = quantize(torch.tensor(values, dtype=torch.float64), scale, bits).tolist()
    for x, q in zip(values, found, strict=True):
        assert q == int(q) and -(2 ** (bits - 1)) <= q < 2 ** (bits - 1)
        least = abs(Fraction(x) - nearest_point(x, scale, bits) * Fraction(scale))
        # the quotient is rounded to 53 bits before it is rounded to an integer
        assert abs(Fraction(x) - int(q) * Fraction(scale)) <= least + Fraction(abs(x) + scale) * Fraction(
            1, 2**50
        )


@given(st.lists(st.integers(-80, 80), min_size=1, max_size=20), st.integers(-6, 6), BITS)
def test_odd_levels_are_the_nearest_ones(eighths: list[int], exponent: int, bits: int) -> None:
    """Between two of them lie even numbers, halves of which go to the even q."""
    scale = 2.0**exponent
    x = torch.tensor(eighths, dtype=torch.float64) / 8 * scale
    levels = range(-(2**bits) + 1, 2**bits, 2)
    for value, q in zip((x / scale).tolist(), quantize(x, scale, bits, odd=True).tolist(), strict=True):
        assert q == min(levels, key=lambda level: (abs(value - level), (level - 1) // 2 % 2))


@pytest.mark.parametrize("bits", [2, 3])
def test_odd_levels_and_their_numbers(bits: int) -> None:
    q = torch.arange(*signed_range(bits))
    levels = on_levels(q, odd=True)
    assert torch.equal(numbered(levels, odd=True), q.float())
    assert int(levels.min()) == -largest(bits, odd=True) == -(2**bits) + 1
    assert torch.equal(on_levels(q, odd=False), q) and largest(bits) == signed_range(bits)[1]


def sampled_error(a: float, b: float, step: float, bits: int, zero: int = 0, n: int = 100_000) -> float:
    lo, hi = -(2 ** (bits - 1)) + zero, 2 ** (bits - 1) - 1 + zero
    x = a + (torch.arange(n, dtype=torch.float64) + 0.5) / n * (b - a)
    q = torch.floor(x / step + 0.5).clamp(lo, hi)
    return float((q * step - x).square().mean())


@given(
    st.sampled_from([-1.0, 1.0]),
    st.floats(0, 30),
    st.floats(0.05, 30),
    st.floats(0.05, 8),
    st.sampled_from([2, 3, 4, 8]),
)
def test_interval_error_is_the_integral(
    side: float, near: float, width: float, step: float, bits: int
) -> None:
    a, b = side * near, side * (near + width)
    low, high, steps = (torch.tensor([v], dtype=torch.float64) for v in (a, b, step))
    found = float(interval_error(low, high, steps, bits))
    expected = sampled_error(a, b, step, bits)
    assert found == pytest.approx(expected, rel=1e-3, abs=1e-6 * step**2)  # midpoints of 100,000 cells


@given(
    st.sampled_from([-1.0, 1.0]),
    st.floats(0, 12),
    st.floats(0.05, 12),
    st.floats(0.2, 4),
    st.sampled_from([2, 3, 4]).flatmap(
        lambda b: st.tuples(st.just(b), st.integers(-(2 ** (b - 1)) + 1, 2 ** (b - 1)))
    ),
)
def test_interval_error_of_shifted_levels_is_the_integral(
    side: float, near: float, width: float, step: float, grid: tuple[int, int]
) -> None:
    bits, zero = grid
    a, b = side * near, side * (near + width)
    low, high, steps = (torch.tensor([v], dtype=torch.float64) for v in (a, b, step))
    found = float(interval_error(low, high, steps, bits, zero))
    assert found == pytest.approx(sampled_error(a, b, step, bits, zero), rel=1e-3, abs=1e-6 * step**2)


def test_without_levels_on_a_side_the_error_is_the_value_itself() -> None:
    """2 bits shifted by 2: the grid is 0, 1, 2, 3. On [-2, -1] the mean of x^2 is 7/3."""
    one = torch.ones(1, dtype=torch.float64)
    assert float(interval_error(-one, -2 * one, one, 2, 2)) == pytest.approx(7 / 3)
    assert float(interval_error(2 * one, 3 * one, one, 2, 2)) == pytest.approx(1 / 12)
    assert float(interval_error(one, 2 * one, one, 2, -1)) == pytest.approx(7 / 3)


def test_the_two_sides_clip_at_their_own_ends() -> None:
    """2 bits, step 1: the grid is -2, -1, 0, 1. On [1, 2] all go to 1, on [-2, -1] to the nearest."""
    one = torch.ones(1, dtype=torch.float64)
    assert float(interval_error(one, 2 * one, one, 2)) == pytest.approx(1 / 3)
    assert float(interval_error(-one, -2 * one, one, 2)) == pytest.approx(1 / 12)
    assert float(interval_error(-2 * one, -3 * one, one, 2)) == pytest.approx(1 / 3)


def test_intervals_broadcast() -> None:
    a = torch.tensor([0.5, -0.5, 3.0], dtype=torch.float64).expand(2, 2, 3)
    b = torch.tensor([0.9, -2.5, 9.0], dtype=torch.float64).expand(2, 2, 3)
    step = torch.tensor([[0.1, 0.3], [0.7, 1.1]], dtype=torch.float64)[:, :, None]
    found = interval_error(a, b, step, 4)
    for i in range(2):
        for j in range(2):
            for k in range(3):
                expected = sampled_error(float(a[i, j, k]), float(b[i, j, k]), float(step[i, j]), 4)
                assert float(found[i, j, k]) == pytest.approx(expected, rel=1e-3)
