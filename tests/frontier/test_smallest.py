"""The search against trying all: the same answer wherever wider does no worse, with fewer tests."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from ptq4snn.frontier.smallest import smallest


@dataclass(frozen=True)
class At:
    widths: tuple[float, ...]
    bytes: int


def grid(costs: list[list[int]]) -> list[At]:
    """A point for each choice; wider costs more in every respect."""
    totals = [[sum(c[: i + 1]) for i in range(len(c))] for c in costs]
    choices = [list(enumerate(t)) for t in totals]
    return [At(tuple(float(i) for i, _ in p), sum(c for _, c in p)) for p in product(*choices)]


costs = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=5), min_size=1, max_size=3)


@given(costs, st.lists(st.tuples(*[st.integers(0, 4)] * 3), max_size=4))
def test_the_answer_of_trying_all(costs: list[list[int]], corners: list[tuple[int, ...]]) -> None:
    """Passing is at or above any of the corners: every monotone test is like that."""
    points = grid(costs)
    tested: list[At] = []

    def passes(p: At) -> bool:
        tested.append(p)
        return good(p)

    def good(p: At) -> bool:
        return any(all(w >= c for w, c in zip(p.widths, corner, strict=False)) for corner in corners)

    found = smallest(points, passes)
    all_good = [p for p in points if good(p)]
    assert (found is None) == (not all_good)
    if found is not None:
        assert good(found) and found.bytes == min(p.bytes for p in all_good)
    assert len(set(tested)) == len(tested), "nothing is tested twice"


def test_few_are_tested() -> None:
    points = grid([[10, 10, 10, 40], [5, 1, 1, 2, 8], [2, 4, 8]])
    for corner in product(range(4), range(5), range(3)):
        tested: list[At] = []

        def passes(p: At, corner: tuple[int, ...] = corner, tested: list[At] = tested) -> bool:
            tested.append(p)
            return all(w >= c for w, c in zip(p.widths, corner, strict=True))

        found = smallest(points, passes)
        assert found is not None
        assert tuple(map(int, found.widths)) == corner and len(tested) <= 16, "of 60"


def test_nothing_to_choose_from() -> None:
    assert smallest([], lambda p: True) is None
