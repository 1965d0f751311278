"""Shifts, leaks and multipliers against Python's integers and fractions."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ptq4snn.numerics.fixed_point import dyadic_leak, multiplier, rshift_even

A = st.one_of(st.integers(-300, 300), st.integers(-(2**46), 2**46))


@given(st.lists(A, min_size=1, max_size=30), st.integers(0, 40))
def test_rshift_even(values: list[int], n: int) -> None:
    found = rshift_even(torch.tensor(values, dtype=torch.int64), n).tolist()
    assert found == [round(Fraction(a, 2**n)) for a in values]  # Python rounds halves to even


@given(st.lists(st.tuples(A, st.integers(0, 40)), min_size=1, max_size=30))
def test_rshift_even_by_a_tensor(pairs: list[tuple[int, int]]) -> None:
    a, n = (torch.tensor(v, dtype=torch.int64) for v in zip(*pairs, strict=True))
    assert rshift_even(a, n).tolist() == [round(Fraction(x, 2**s)) for x, s in pairs]


@given(st.integers(0, 8), st.data())
def test_dyadic_leaks_are_exact(n: int, data: st.DataObject) -> None:
    m = data.draw(st.integers(0, 2**n))
    found = dyadic_leak(m / 2**n)
    assert Fraction(found.m, 2**found.n) == Fraction(m, 2**n)
    assert found.n == 0 or found.m % 2 == 1  # lowest terms: the least n allows the smallest k


@given(st.floats(0, 1))
def test_other_leaks_are_within_half_a_step_of_15_bits(leak: float) -> None:
    found = dyadic_leak(leak)
    assert found.n in (*range(9), 15)
    assert abs(Fraction(found.m, 2**found.n) - Fraction(leak)) <= Fraction(1, 2**16)
    assert found.value == found.m / 2**found.n


@pytest.mark.parametrize(
    ("leak", "m", "n"), [(1.0, 1, 0), (0.5, 1, 1), (0.75, 3, 2), (0.0, 0, 0), (0.95, 31130, 15)]
)
def test_known_leaks(leak: float, m: int, n: int) -> None:
    assert dyadic_leak(leak) == (m, n)


@given(st.floats(1e-9, 2.0**14))
def test_multiplier_has_15_bits_and_their_precision(x: float) -> None:
    found = multiplier(x)
    assert 1 <= found.m < 2**15 and found.n >= 0
    assert abs(Fraction(found.m, 2**found.n) / Fraction(x) - 1) <= Fraction(1, 2**15)


@given(st.integers(-30, 14))
def test_powers_of_two_are_exact(e: int) -> None:
    found = multiplier(2.0**e)
    assert Fraction(found.m, 2**found.n) == Fraction(2) ** e


@pytest.mark.parametrize("x", [0.0, -1.0, float("inf"), float("nan")])
def test_a_multiplier_is_positive_and_finite(x: float) -> None:
    with pytest.raises(ValueError, match="positive and finite"):
        multiplier(x)
