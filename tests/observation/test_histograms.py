"""Linear bins from logarithmic ones: no mass is lost, and they look like a direct histogram."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ptq4snn.observation.channel_statistics import BINS, bin_index
from ptq4snn.observation.histograms import bins_of, quantiles, rebin, share_outside


def counted(values: Tensor) -> Tensor:
    return torch.bincount(bin_index(values), minlength=BINS)


def states(seed: int, shift: float = 0.0) -> Tensor:
    """Many at zero (a reset), the others around `shift`."""
    g = torch.Generator().manual_seed(seed)
    v = shift + torch.randn(20_000, generator=g, dtype=torch.float64)
    return torch.where(torch.rand(20_000, generator=g) < 0.2, 0.0, v)


values = st.lists(st.floats(-2000, 2000, width=32), min_size=1, max_size=40)


@given(values, st.floats(-5, 5), st.floats(0, 5), st.integers(1, 60))
def test_mass_is_conserved(v: list[float], low: float, width: float, bins: int) -> None:
    found = rebin(counted(torch.tensor(v)), low, low + width, bins)
    assert sum(found["counts"]) == pytest.approx(len(v), rel=1e-9)
    assert min(found["counts"]) >= -1e-9
    assert len(found["edges"]) == bins + 1 and sorted(found["edges"]) == found["edges"]


@pytest.mark.parametrize("shift", [0.0, 0.7, -2.0])
def test_beside_a_direct_histogram(shift: float) -> None:
    """Mass moves only inside a logarithmic bin, so a linear bin is off by at most what the two logarithmic
    bins across its edges hold."""
    v = states(3, shift)
    found = rebin(counted(v), -4.0, 4.0, 48)
    edges = np.array(found["edges"])
    direct, _ = np.histogram(v.clamp(-4.0, 4.0 - 1e-12).numpy(), edges)
    index, step = bin_index(v), 1e-9
    across = np.zeros(len(edges))
    for i, e in enumerate(edges[1:-1], 1):
        sides = {int(b) for b in bin_index(torch.tensor([e - step, e + step]))}
        across[i] = sum(int((index == b).sum()) for b in sides)
    error = np.abs(np.array(found["counts"]) - direct)
    assert (error <= across[:-1] + across[1:] + 1e-6).all()
    assert error.sum() / len(v) < 0.05 and direct.max() > 3000


@given(values)
def test_quantiles_lie_in_their_bin(v: list[float]) -> None:
    """The value at a share, and the quantile found for it, share a bin."""
    h = counted(torch.tensor(v))
    ordered = sorted(v)
    for share in (0.25, 0.5, 1.0):
        (found,) = quantiles(h, [share])
        exact = ordered[max(0, -(-round(share * len(v) * 4) // 4) - 1)]
        wide = 2.0**-9 + abs(exact) / 8  # bins are an eighth of an octave; nobody asks beyond the last
        assert abs(found - exact) <= wide or abs(exact) > 1000


def test_share_outside() -> None:
    v = states(4)
    found = share_outside(counted(v), -1.0, 1.5)  # 1.0 and 1.5 are edges of bins: nothing is cut
    assert found == pytest.approx(float(((v <= -1.0) | (v >= 1.5)).double().mean()))
    assert share_outside(counted(v), -2000.0, 2000.0) == 0.0
    assert share_outside(torch.zeros(BINS, dtype=torch.int64), -1.0, 1.0) == 0.0


def test_no_states_at_all() -> None:
    empty = torch.zeros(BINS, dtype=torch.int64)
    assert quantiles(empty, [0.1, 0.9]) == [0.0, 0.0]
    assert sum(rebin(empty, 0.0, 0.0, 4)["counts"]) == 0.0


def test_values_in_bins() -> None:
    v = torch.tensor([0.0, 0.1, 0.9, 1.0], dtype=torch.float64)
    assert bins_of(v, 2) == {"edges": [0.0, 0.5, 1.0], "counts": [2, 2]}
    assert sum(bins_of(torch.zeros(3, dtype=torch.float64), 2)["counts"]) == 3
