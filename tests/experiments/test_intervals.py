"""The paired interval against the plain formula and a bootstrap."""

from __future__ import annotations

import math

import pytest
import torch

from ptq4snn.experiments.intervals import mean, paired, spread


def draws(n: int, seeds: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    g = torch.Generator().manual_seed(3)
    hard = torch.rand(n, generator=g)  # both methods fail on the same samples
    a = [hard + 0.1 * torch.randn(n, generator=g) < 0.75 for _ in range(seeds)]
    b = [hard + 0.1 * torch.randn(n, generator=g) < 0.80 for _ in range(seeds)]
    return a, b


def test_formula() -> None:
    a, b = draws(50, 3)
    found = paired(a, b)
    d = [sum(int(x[i]) - int(y[i]) for x, y in zip(a, b, strict=True)) / 3 for i in range(50)]
    m = sum(d) / 50
    half = 1.96 * math.sqrt(sum((v - m) ** 2 for v in d) / 49) / math.sqrt(50)
    assert found.change == pytest.approx(100 * m)
    assert (found.low, found.high) == pytest.approx((100 * (m - half), 100 * (m + half)), abs=1e-3)


def test_bootstrap_of_the_samples_agrees() -> None:
    a, b = draws(2000, 3)
    found = paired(a, b)
    d = torch.stack([x.double() - y.double() for x, y in zip(a, b, strict=True)]).mean(0)
    g = torch.Generator().manual_seed(0)
    means = torch.stack([d[torch.randint(2000, (2000,), generator=g)].mean() for _ in range(4000)])
    low, high = (100 * float(means.quantile(q)) for q in (0.025, 0.975))
    width = high - low
    assert abs(found.low - low) < 0.06 * width and abs(found.high - high) < 0.06 * width
    alone = 100 * 1.96 * math.sqrt(float(a[0].double().var() + b[0].double().var()) / 2000)
    assert found.high - found.low < 2 * alone  # narrower than the difference of two separate tests


def test_equal_methods_have_no_width() -> None:
    a, _ = draws(20, 2)
    found = paired(a, a)
    assert (found.change, found.low, found.high) == (0.0, 0.0, 0.0)


def test_spread_is_the_sample_deviation() -> None:
    assert spread([1.0, 3.0]) == pytest.approx(math.sqrt(2))
    assert spread([1.0]) is None and spread([1.0, None]) is None
    assert mean([1.0, None, 2.0]) == 1.5 and mean([None]) is None
