"""What is kept, by the estimate less its standard error; and its intervals against known values and against
counting all outcomes."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from ptq4snn.frontier.goal import Goal, Outcome
from ptq4snn.recipe import Recipe


def bools(right: int, n: int) -> Tensor:
    return torch.arange(n) < right


def test_agreement_is_a_share_with_wilsons_interval() -> None:
    goal = Goal.of(Recipe(agreement=97))
    found = goal.quality(Outcome(bools(97, 100).double()), None)
    assert not found.kept and found.value == pytest.approx(97)
    # R: prop.test(97, 100, correct = FALSE)$conf.int
    assert (found.low, found.high) == pytest.approx((91.5483, 98.9744), abs=1e-3)
    error = (found.high - found.low) / (2 * 1.959964)
    assert Goal("agreement", 97 - error - 0.01).quality(Outcome(bools(97, 100).double()), None).kept
    assert not Goal("agreement", 97 - error + 0.01).quality(Outcome(bools(97, 100).double()), None).kept
    sure = goal.quality(Outcome(torch.ones(50, dtype=torch.float64)), None)
    assert sure.high == pytest.approx(100) and sure.low == pytest.approx(
        100 * 50 / (50 + 1.95996**2), abs=1e-3
    )


def test_shares_of_maps_have_a_normal_interval() -> None:
    shares = torch.tensor([0.9, 0.95, 1.0, 0.8], dtype=torch.float64)
    found = Goal("agreement", 90).quality(Outcome(shares), None)
    half = 100 * 1.959964 * float(shares.std()) / 2
    assert (found.value, found.high) == pytest.approx((91.25, 91.25 + half))
    assert found.low == pytest.approx(91.25 - half)


def test_a_drop_is_counted_on_the_same_samples() -> None:
    """Ten of 200 are lost, four won: three points."""
    before = bools(160, 200)
    after = before.clone()
    after[:10], after[190:194] = False, True
    won, lost, n = 5 / 202, 11 / 202, 202
    error = 100 * math.sqrt((won + lost - (won - lost) ** 2) / n)
    for asked, kept in ((3.01 + error, True), (2.99 + error, False)):
        goal = Goal.of(Recipe(max_drop=asked))
        found = goal.quality(Outcome(torch.ones(200), after), before)
        assert found.kept is kept and found.value == pytest.approx(77) and goal.limit(before) == 80 - asked
    half = 1.959964 * error / 100
    assert found.low == pytest.approx(100 * (0.8 + won - lost - half))
    assert found.high == pytest.approx(100 * (0.8 + won - lost + half))
    assert f"a drop of at most {2.99 + error:g} points" in str(goal) and "97 %" in str(Goal("agreement", 97))


def test_an_interval_has_a_width_where_no_sample_differs() -> None:
    before = bools(90, 100)
    found = Goal("accuracy", 0).quality(Outcome(torch.ones(100), before.clone()), before)
    assert found.low < 90 < found.high


@pytest.mark.parametrize("p", [0.9, 0.97])
def test_wilsons_interval_holds_the_truth(p: float) -> None:
    """Over all outcomes of 200 samples, weighted by how likely they are."""
    n = 200
    covered = 0.0
    for k in range(n + 1):
        found = Goal("agreement", 50).quality(Outcome(bools(k, n).double()), None)
        likely = math.comb(n, k) * p**k * (1 - p) ** (n - k)
        covered += likely * (found.low <= 100 * p <= found.high)
    assert 0.92 < covered < 0.98
