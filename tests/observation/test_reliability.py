"""Split-half reliability against a rank correlation written a second time, and against its limits."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ptq4snn.observation.reliability import Sensitivity, rank_correlation


def by_counting(a: list[float], b: list[float]) -> float:
    """Spearman's with mean ranks: a rank is how many are less, and half of those that are equal."""

    def ranks(x: list[float]) -> list[float]:
        return [sum(v < u for v in x) + sum(v == u for v in x) / 2 for u in x]

    x, y = ranks(a), ranks(b)
    mx, my = sum(x) / len(x), sum(y) / len(y)
    top = sum((u - mx) * (v - my) for u, v in zip(x, y, strict=True))
    return float(top / (sum((u - mx) ** 2 for u in x) * sum((v - my) ** 2 for v in y)) ** 0.5)


@pytest.mark.parametrize("seed", range(5))
def test_rank_correlation_with_ties(seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    a, b = (torch.randint(0, 6, (20,), generator=g).double() for _ in range(2))
    assert rank_correlation(a, b) == pytest.approx(by_counting(a.tolist(), b.tolist()))
    assert rank_correlation(a, a.exp()) == pytest.approx(1.0)
    assert rank_correlation(a, -a) == pytest.approx(-1.0)


def test_what_has_no_ranks_has_no_correlation() -> None:
    assert rank_correlation(torch.zeros(5), torch.arange(5.0)) is None
    assert rank_correlation(torch.arange(2.0), torch.arange(2.0)) is None


def noisy(batches: int, noise: float, seed: int = 0) -> tuple[Sensitivity, dict[str, Tensor]]:
    """Two neurons whose true sensitivities are known, seen through noise."""
    g = torch.Generator().manual_seed(seed)
    true = {n: torch.rand(200, generator=g).double() for n in ("a", "b")}
    seen = Sensitivity()
    for _ in range(batches):
        seen.add({n: t + noise * torch.randn(200, generator=g).double() for n, t in true.items()})
    return seen, true


def test_the_mean_is_that_of_all_batches() -> None:
    seen = Sensitivity()
    for value in (1.0, 2.0, 6.0):
        seen.add({"a": torch.full((2,), value).double()})
    assert seen.mean()["a"].tolist() == [3.0, 3.0] and seen.batches == 3


def test_reliability_predicts_how_far_it_would_come_out_again() -> None:
    """The corrected value is the correlation of two independent means of as many batches."""
    seen, _ = noisy(10, 1.0)
    again = Sensitivity()
    g = torch.Generator().manual_seed(9)
    _, true = noisy(0, 0.0)
    for _ in range(10):
        again.add({n: t + torch.randn(200, generator=g).double() for n, t in true.items()})
    one, other = (torch.cat(list(s.mean().values())) for s in (seen, again))
    found = seen.reliability(["a", "b"])
    assert found.overall == pytest.approx(rank_correlation(one, other), abs=0.1)
    assert found.batches == 10 and found.within == pytest.approx(found.overall, abs=0.15)


def test_more_batches_are_more_reliable_and_noise_is_not() -> None:
    few, many, none = (
        noisy(n, s)[0].reliability(["a", "b"]).overall for n, s in ((4, 1), (64, 1), (10, 1e4))
    )
    assert few is not None and many is not None and none is not None
    assert few < many - 0.1 and abs(none) < 0.35


def test_layers_that_differ_hide_what_is_noise_inside_of_them() -> None:
    g = torch.Generator().manual_seed(0)
    seen = Sensitivity()
    for _ in range(8):
        seen.add({n: offset + torch.rand(50, generator=g).double() for n, offset in (("a", 0.0), ("b", 9.0))})
    found = seen.reliability(["a", "b"])
    assert found.overall is not None and found.within is not None
    assert found.overall > 0.7 and found.within < 0.5


def test_one_batch_says_nothing() -> None:
    found = noisy(1, 1.0)[0].reliability(["a", "b"])
    assert (found.batches, found.overall, found.within) == (1, None, None)
