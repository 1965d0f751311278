"""State scales against a search over every candidate with errors taken directly from the states."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from ptq4snn.bridge.couplings import ExponentTable, NeuronView, StateScales, choose_scales
from ptq4snn.bridge.objective import SquaredError
from ptq4snn.observation.channel_statistics import BINS, ChannelStatistics, bin_edges, bin_index

KS = range(-6, 16)


def states(channels: int, seed: int) -> Tensor:
    """States [C, n] in theta that fill their bins evenly, as the histogram takes them to."""
    g = torch.Generator().manual_seed(seed)
    inner, outer = bin_edges()
    rows = []
    for c in range(channels):
        spread = float(torch.rand((), generator=g)) * 4 + 0.2
        raw = torch.randn(60, generator=g) * spread - 0.3
        bins = bin_index(torch.where(raw >= 1, 0.0, raw))
        fill = (torch.arange(400, dtype=torch.float64) + 0.5) / 400
        rows.append((inner[bins][:, None] + (outer - inner)[bins][:, None] * fill).flatten())
        assert c < channels
    return torch.stack(rows)


def view_of(v: Tensor, seed: int) -> NeuronView:
    g = torch.Generator().manual_seed(seed)
    c = len(v)
    st = ChannelStatistics.empty(c)
    st.histogram = torch.stack([torch.bincount(bin_index(r.float()), minlength=BINS) for r in v])
    st.low, st.high = v.amin(1), v.amax(1)
    theta = torch.rand(c, generator=g, dtype=torch.float64) + 0.5
    scale = theta * (0.02 + 0.2 * torch.rand(c, generator=g, dtype=torch.float64))
    return NeuronView(st, theta, scale, scale / 0.5, KS)


def direct(v: Tensor, s: float, bits: int) -> float:
    lo, hi = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return float(((v / s).round().clamp(lo, hi) * s - v).square().mean())


def choose(coupling: str, view: NeuronView, bits: list[int]) -> StateScales:
    return choose_scales(coupling, ExponentTable(view, SquaredError()), torch.tensor(bits))


BITS = [2, 4, 8, 4, 2, 16, 8, 4]


@pytest.mark.parametrize("seed", range(4))
def test_bridge_is_brute_force_over_k(seed: int) -> None:
    v = states(8, seed)
    view = view_of(v, seed)
    found = choose("bridge", view, BITS)
    assert found.k is not None
    clear = 0
    for c, b in enumerate(BITS):
        s, theta = float(view.scale[c]), float(view.theta[c])
        costs = {k: direct(v[c] * theta, s * 2.0**k, b) for k in KS}
        best, second = sorted(costs, key=lambda k: (costs[k], k))[:2]
        k = int(found.k[c])
        assert float(found.scales[c]) == s * 2.0**k
        assert costs[k] <= costs[best] * 1.01 + 1e-9
        if costs[second] > costs[best] * 1.02 + 1e-9:
            clear += 1
            assert k == best
    assert clear >= 4


@pytest.mark.parametrize("coupling", ["layerwise", "flowq"])
@pytest.mark.parametrize("seed", range(3))
def test_layerwise_is_brute_force_over_one_k(coupling: str, seed: int) -> None:
    v = states(8, 10 + seed)
    view = view_of(v, seed)
    found = choose(coupling, view, BITS)
    assert found.k is not None and len(set(found.k.tolist())) == 1
    costs = {
        k: sum(
            direct(v[c] * float(view.theta[c]), float(view.scale[c]) * 2.0**k, b) for c, b in enumerate(BITS)
        )
        for k in KS
    }
    best, second = sorted(costs, key=lambda k: costs[k])[:2]
    assert costs[second] > costs[best] * 1.02  # the case is clear
    assert int(found.k[0]) == best
    assert torch.equal(found.scales, view.scale * 2.0**best)


def test_reuse_is_the_weights_own_scale() -> None:
    view = view_of(states(8, 0), 0)
    found = choose("reuse", view, BITS)
    assert torch.equal(found.scales, view.own)


@pytest.mark.parametrize("seed", range(3))
def test_independent_is_brute_force_over_the_shrink_factors(seed: int) -> None:
    v = states(8, 20 + seed)
    view = view_of(v, seed)
    found = choose("independent", view, BITS)
    for c, b in enumerate(BITS):
        real = v[c] * float(view.theta[c])
        full = float(real.abs().max()) / (2 ** (b - 1) - 1)
        costs = [direct(real, full * 2 ** (-i / 12), b) for i in range(61)]
        s = float(found.scales[c])
        position = -12 * math.log2(s / full)
        assert position == pytest.approx(round(position), abs=1e-6) and 0 <= round(position) <= 60
        assert costs[round(position)] <= min(costs) * 1.01 + 1e-9


def test_a_channel_that_never_moves_gets_a_scale_all_the_same() -> None:
    view = view_of(torch.zeros(8, 100, dtype=torch.float64), 0)
    for coupling in ("bridge", "layerwise", "independent", "reuse"):
        scales = choose(coupling, view, BITS).scales
        assert bool((scales > 0).all()) and bool(torch.isfinite(scales).all())


def test_unobserved_statistics_give_finite_scales() -> None:
    empty = ChannelStatistics.empty(2)
    one = torch.ones(2, dtype=torch.float64)
    view = NeuronView(empty, one, one, one, KS)
    for coupling in ("bridge", "independent"):
        assert bool(torch.isfinite(choose(coupling, view, [4, 4]).scales).all())
