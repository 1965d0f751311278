"""Scores, divergence and the grid of (beta, P)."""

from __future__ import annotations

import math

import pytest
import torch

from ptq4snn.allocation.scores import min_max, scores
from ptq4snn.allocation.search import Verdict, grid_search, preferred
from ptq4snn.modules.readout import divergence, divergences, mean_divergence, temperature


def test_min_max() -> None:
    assert min_max(torch.tensor([3.0, 1.0, 2.0]).double()).tolist() == pytest.approx([1.0, 0.0, 0.5])
    assert min_max(torch.tensor([2.0, 2.0]).double()).tolist() == [0.0, 0.0]  # no channel stands out


@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
def test_scores(beta: float) -> None:
    r, g = [0.1, 0.5, 0.3], [7.0, 1.0, 4.0]
    expected = [beta * (a - 0.1) / 0.4 + (1 - beta) * (b - 1.0) / 6.0 for a, b in zip(r, g, strict=True)]
    assert scores(torch.tensor(r), torch.tensor(g), beta).tolist() == pytest.approx(expected, rel=1e-6)


def test_divergence_by_hand() -> None:
    a, b = [[1.0, 2.0, 0.5], [0.0, 0.0, 3.0]], [[2.0, 1.0, 0.5], [0.1, -0.2, 2.0]]

    def softmax(x: list[float]) -> list[float]:
        e = [math.exp(v) for v in x]
        return [v / sum(e) for v in e]

    kl = 0.0
    for x, y in zip(a, b, strict=True):
        kl += sum(p * math.log(p / q) for p, q in zip(softmax(x), softmax(y), strict=True)) / 2
    assert divergence(torch.tensor(a), torch.tensor(b)) == pytest.approx((kl, 0.5), rel=1e-6)
    assert divergence(torch.tensor(a), torch.tensor(a)) == pytest.approx((0.0, 1.0), abs=1e-12)


def test_divergence_in_batches_is_that_of_all_samples() -> None:
    g = torch.Generator().manual_seed(0)
    a, b = torch.randn(7, 5, 3, generator=g), torch.randn(7, 5, 3, generator=g)
    found = mean_divergence(zip(a.split(3), b.split(3), strict=True))
    assert found == pytest.approx(divergence(a, b), rel=1e-12)


POINTS = [(0.0, 96.0), (0.0, 97.0), (0.5, 96.0), (0.5, 97.0), (1.0, 96.0)]


def test_equal_allocations_are_judged_once() -> None:
    made = {p: torch.tensor([int(p[0] * 2), 4]) for p in POINTS}  # the percentile changes nothing
    judged: list[list[int]] = []

    def judge(bits: torch.Tensor) -> Verdict:
        judged.append(bits.tolist())
        return verdict(1.0 - bits[0].item() / 10)

    bits, best, trials = grid_search(POINTS, lambda b, p: (made[b, p], 4.0), judge)
    assert judged == [[0, 4], [1, 4], [2, 4]]
    assert [(t.beta, t.percentile) for t in trials] == POINTS
    assert trials[0].kl == trials[1].kl == 1.0
    assert bits.tolist() == [2, 4] and (best.beta, best.percentile) == (1.0, 96.0)


@pytest.mark.parametrize(
    ("results", "winner"),
    [
        ([(0.3, 0.1), (0.2, 0.5), (0.25, 0.1), (0.4, 0.1), (0.5, 0.1)], 1),  # outputs that differ decide
        ([(0.3, 0.5), (0.3, 0.1), (0.3, 0.2), (0.4, 0.0), (0.3, 0.3)], 1),  # then the flips
        ([(0.3, 0.1), (0.2, 0.3), (0.2, 0.3), (0.2, 0.3), (0.9, 0.1)], 1),  # then the first
    ],
)
def test_best_trial(results: list[tuple[float, float]], winner: int) -> None:
    bits = [torch.tensor([i]) for i in range(5)]
    found, best, _ = grid_search(
        POINTS, lambda b, p: (bits[POINTS.index((b, p))], 4.0), lambda x: verdict(*results[int(x)])
    )
    assert int(found) == winner and (best.beta, best.percentile) == POINTS[winner]
    assert (best.kl, best.flips, best.average_bits) == (*results[winner], 4.0)


def test_outputs_that_scatter_leave_it_to_the_flips() -> None:
    """The one with more flips has the better mean, by less than two standard errors of the difference."""
    noise = torch.randn(64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    base = torch.full((64,), 1.0, dtype=torch.float64)
    better, worse = verdict(1.0, 0.5, base), verdict(1.0, 0.1, base + noise - noise.mean() + 0.1)
    error = float(noise.std()) / 8
    assert 2 * error > 0.1 and preferred([better, worse]) == 1
    worse = verdict(1.0, 0.1, base + noise - noise.mean() + 3 * error)
    assert preferred([better, worse]) == 0


def test_outputs_that_overflow_never_win() -> None:
    broken = verdict(float("nan"), 0.0)
    assert preferred([broken, verdict(9.0, 5.0)]) == 1
    assert preferred([broken, broken]) == 0


def test_temperature_makes_scales_alike() -> None:
    """The same decisions as sums of spikes, as rates and as logits are as far apart."""
    g = torch.Generator().manual_seed(1)
    a, b = torch.randn(40, 5, generator=g), torch.randn(40, 5, generator=g)
    expected = divergences(a, b, temperature([a]))
    for scale in (300.0, 1 / 300):
        found = divergences(scale * a, scale * b, temperature([scale * a]))
        assert torch.allclose(found, expected, rtol=1e-5)
    top = (a / temperature([a])).topk(2, 1).values
    assert float((top[:, 0] - top[:, 1]).mean()) == pytest.approx(4.0, rel=1e-6)
    assert temperature([torch.zeros(3, 5)]) == temperature([torch.zeros(3, 1)]) == 1.0


def verdict(kl: float, flips: float = 0.0, apart: torch.Tensor | None = None) -> Verdict:
    each = torch.full((8,), kl, dtype=torch.float64) if apart is None else apart
    return Verdict(kl, 0.5, flips, each)
