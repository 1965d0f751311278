"""Weight scales against a plain loop over the 61 shrink factors."""

from __future__ import annotations

import pytest
import torch

from ptq4snn.numerics import scales
from ptq4snn.numerics.nearest import round_nearest
from ptq4snn.numerics.scales import weight_scales

FACTORS = [0.40 + 0.01 * i for i in range(61)]


def error_at(row: list[float], s: float, bits: int) -> float:
    """Python's round() goes to even too."""
    lo, hi = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return sum((min(max(round(w / s), lo), hi) * s - w) ** 2 for w in row)


def brute_force(row: list[float], bits: int, floor: float = 0.0) -> float:
    """The scale of least squared error; of equal errors the largest."""
    full = max(max(abs(w) for w in row) / (2 ** (bits - 1) - 1), floor)
    candidates = [max(full * f, floor) for f in FACTORS]
    return min(candidates, key=lambda s: (error_at(row, s, bits), -s))


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize("seed", range(3))
def test_per_channel(bits: int, seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    w = torch.randn(6, 5, 3, 3, generator=g, dtype=torch.float64) * torch.rand(6, 1, 1, 1, generator=g) ** 3
    found = weight_scales(w, bits).tolist()
    assert found == pytest.approx([brute_force(r, bits) for r in w.flatten(1).tolist()], rel=1e-12)


@pytest.mark.parametrize("bits", [2, 3])
def test_odd_levels(bits: int) -> None:
    """Of many normal weights two bits lose less on odd levels than on whole ones."""

    def error(row: list[float], s: float) -> float:
        levels = [s * level for level in range(-(2**bits) + 1, 2**bits, 2)]
        return sum(min((level - w) ** 2 for level in levels) for w in row)

    w = torch.randn(3, 400, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    found = weight_scales(w, bits, odd=True).tolist()
    for row, s in zip(w.tolist(), found, strict=True):
        full = max(map(abs, row)) / (2**bits - 1)
        best = min((full * f for f in FACTORS), key=lambda s: error(row, s))
        assert error(row, s) == pytest.approx(error(row, best), rel=1e-9)
        assert bits > 2 or error(row, s) < 0.85 * error_at(row, brute_force(row, bits), bits)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_per_tensor(bits: int) -> None:
    w = torch.randn(4, 30, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = weight_scales(w, bits, per_tensor=True)
    assert len(found) == 4
    assert found.tolist() == pytest.approx([brute_force(w.flatten().tolist(), bits)] * 4, rel=1e-12)


def test_shrinking_pays_for_an_outlier() -> None:
    """Many values of one size and an outlier: the scale must leave its start, where nothing is clipped."""
    row = [0.5] * 200 + [4.0]
    found = float(weight_scales(torch.tensor([row], dtype=torch.float64), 4))
    assert found < 4.0 / 7 * 0.999
    assert found == pytest.approx(brute_force(row, 4), rel=1e-12)


def test_floor() -> None:
    g = torch.Generator().manual_seed(2)
    w = (
        torch.randn(5, 20, generator=g, dtype=torch.float64)
        * torch.tensor([1.0, 0.1, 0.02, 1e-4, 0.0])[:, None]
    )
    floor = torch.tensor([0.0, 0.01, 0.005, 0.003, 0.002], dtype=torch.float64)
    found = weight_scales(w, 4, floor)
    assert bool((found >= floor).all())
    expected = [brute_force(r, 4, f) for r, f in zip(w.tolist(), floor.tolist(), strict=True)]
    assert found.tolist() == pytest.approx(expected, rel=1e-12)


def test_floor_keeps_one_scale_per_tensor() -> None:
    """One scale for all channels also where their thresholds, and so their floors, differ."""
    w = torch.full((3, 4), 1e-3, dtype=torch.float64)
    found = weight_scales(w, 4, torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64), per_tensor=True)
    assert found.tolist() == [0.3, 0.3, 0.3]


def test_zero_channel_has_a_usable_scale() -> None:
    w = torch.zeros(2, 9)
    w[1] = 1.0
    found = weight_scales(w, 4)
    assert bool((found > 0).all()) and bool(torch.isfinite(1 / found).all())


def test_a_grid_that_fits_is_found_exactly() -> None:
    """Weights on the full 4-bit grid: no error at the start, so nothing is shrunk."""
    w = torch.arange(-7, 8, dtype=torch.float64)[None] * 0.25
    assert weight_scales(w, 4).tolist() == [0.25]


@pytest.mark.parametrize("odd", [False, True])
@pytest.mark.parametrize("per_tensor", [False, True])
def test_rows_are_rounded_alike_in_blocks_of_any_size(
    odd: bool, per_tensor: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    w = torch.randn(150, 3, 5, generator=torch.Generator().manual_seed(2))
    whole = round_nearest(w, 2, per_tensor=per_tensor, odd=odd)
    monkeypatch.setattr(scales, "BLOCK", 1)
    monkeypatch.setattr(scales, "ROWS", 7)
    parts = round_nearest(w, 2, per_tensor=per_tensor, odd=odd)
    assert torch.equal(whole.scales, parts.scales) and torch.equal(whole.integers, parts.integers)
    assert parts.integers.shape == w.shape
