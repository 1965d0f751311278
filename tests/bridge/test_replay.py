"""Replay against a neuron written in plain Python, and against the integers it stands for."""

from __future__ import annotations

import math
import random

import pytest
import torch
from torch import Tensor

from ptq4snn.bridge.couplings import ExponentTable, NeuronView, choose_scales, zero_points
from ptq4snn.bridge.objective import SquaredError
from ptq4snn.bridge.replay import Dynamics, Replay, offsets, replay_cost
from ptq4snn.numerics.dither import rshift_dither
from ptq4snn.numerics.grid import signed_range
from ptq4snn.observation.channel_statistics import BINS, ChannelStatistics, bin_index
from ptq4snn.observation.traces import Trace

# --- the reference -------------------------------------------------------------------------------


def phase(place: int, t: int) -> float:
    """BEYOND's offset before its shift, as a part of 2^16."""
    reversed_bits = int(f"{t % 16:04b}"[::-1], 2)
    return ((40503 * place + (reversed_bits << 12) + 2048) % 2**16) / 2**16


def slow(
    currents: list[float], fired: list[bool], place: int, leak: float, theta: float, rho: float, reset: str,
    strict: bool, rounding: str, step: float, lo: int, hi: int, most: int = 1,
) -> tuple[int, int, float]:  # fmt: skip
    """Flips, difference of counts and sum of differences of the potential of one trajectory."""
    v = exact = apart = 0.0
    flips = drift = 0

    def after(h: float, s: int) -> float:
        return {"hard": 0.0 if s else h, "soft": h - rho * s, "none": h}[reset]

    for t, (x, f) in enumerate(zip(currents, fired, strict=True)):
        h, reference = x + leak * v, x + leak * exact
        s = int(h > theta if strict else h >= theta)
        s = s if most == 1 else min(most, max(0, math.floor(h / theta)))
        flips += abs(s - f)
        drift += s - f
        apart += min(1.0, abs(h - reference) / theta)
        exact = after(reference, f)
        q = after(h, s) / step
        q = math.floor(q + phase(place, t)) if rounding == "dither" else round(q)
        v = min(max(q, lo), hi) * step
    return flips, drift, apart


def expected_cost(rows: list[tuple[int, int, float]]) -> float:
    n = len(rows)
    each = sum(flips + 0.5 * abs(drift) + 0.01 * apart for flips, drift, apart in rows) / n
    return each + 2 * abs(sum(drift for _, drift, _ in rows) / n)


def neuron(
    leak: list[float], theta: list[float], rho: list[float], reset: str = "hard", strict: bool = False,
    rounding: str = "even", most: int = 1,
) -> Dynamics:  # fmt: skip
    a, b, c = (torch.tensor(v, dtype=torch.float32)[:, None] for v in (leak, theta, rho))
    return Dynamics(a, b, c, reset, strict, rounding, most=most)


def float_spikes(d: Dynamics, currents: Tensor) -> Tensor:
    v, out = torch.zeros_like(currents[0]), []
    for x in currents:
        h = x + d.leak * v
        s = h > d.theta if d.strict else h >= d.theta
        s = s.to(torch.uint8) if d.most == 1 else (h / d.theta).floor().clamp(0, d.most).to(torch.uint8)
        v = {"hard": h * (s == 0), "soft": h - d.rho * s, "none": h}[d.reset]
        out.append(s)
    return torch.stack(out)


def random_trace(d: Dynamics, T: int, n: int, seed: int, grid: float | None = None) -> Trace:
    g = torch.Generator().manual_seed(seed)
    c = len(d.theta)
    currents = torch.randn(T, c, n, generator=g) * 0.7 + 0.25
    if grid is not None:
        currents = (currents / grid).round() * grid
    places = torch.randint(0, 5000, (c, n), generator=g)
    return Trace(currents, float_spikes(d, currents), places)


@pytest.mark.parametrize("rounding", ["even", "dither"])
@pytest.mark.parametrize("reset", ["hard", "soft", "none"])
@pytest.mark.parametrize(("strict", "most"), [(False, 1), (True, 1), (False, 3)])
def test_cost_is_the_one_of_a_slow_neuron(reset: str, strict: bool, rounding: str, most: int) -> None:
    """Everything is a multiple of a power of two: float32 and float64 give the same halves. `most` above 1:
    spikes of a step are counted."""
    busy, many = 0.0, 0
    for T in range(1, 8):
        rng = random.Random(f"{reset}{strict}{rounding}{T}")
        C, n = 3, 7
        leak = [rng.choice([0.5, 0.75, 1.0, 0.25]) for _ in range(C)]
        theta = [rng.choice([0.75, 1.0, 1.5]) / (2 if most > 1 else 1) for _ in range(C)]
        rho = [t * rng.choice([1.0, 2.0]) for t in theta]
        d = neuron(leak, theta, rho, reset, strict, rounding, most)
        trace = random_trace(d, T, n, T, grid=1 / 16)
        many = max(many, int(trace.spikes.max()))
        step = [2.0 ** rng.randint(-4, 1) for _ in range(C)]
        ends = []
        for _ in range(C):
            bits = rng.choice([2, 3, 4, 8])
            zero = rng.choice(zero_points(bits))
            ends.append([e + zero for e in signed_range(bits)])
        levels = tuple(torch.tensor([float(e[i]) for e in ends])[:, None] for i in (0, 1))
        found = replay_cost(d, trace, torch.tensor(step, dtype=torch.float64), levels)
        for c in range(C):
            rows = [
                slow(trace.currents[:, c, i].tolist(), trace.spikes[:, c, i].tolist(),
                     int(trace.places[c, i]), leak[c], theta[c], rho[c], reset, strict, rounding, step[c],
                     ends[c][0], ends[c][1], most)
                for i in range(n)
            ]  # fmt: skip
            assert float(found[c]) == pytest.approx(expected_cost(rows), abs=1e-5)
            busy += sum(r[0] for r in rows)
    assert busy > 0 and many == most


def test_a_leak_that_is_not_dyadic() -> None:
    """Values near a half may fall to either side in float32; no more than one in many trajectories does."""
    d = neuron([0.95, 0.371], [1.0, 0.8], [1.0, 0.8], "soft")
    trace = random_trace(d, 7, 40, 3)
    levels = tuple(torch.tensor(float(e)) for e in signed_range(4))
    found = replay_cost(d, trace, torch.tensor([0.13, 0.21]), levels)
    for c, (leak, theta, step) in enumerate([(0.95, 1.0, 0.13), (0.371, 0.8, 0.21)]):
        rows = [
            slow(trace.currents[:, c, i].tolist(), trace.spikes[:, c, i].tolist(), 0, leak, theta, theta,
                 "soft", False, "even", step, -8, 7)
            for i in range(40)
        ]  # fmt: skip
        assert float(found[c]) == pytest.approx(expected_cost(rows), rel=1e-4)


@pytest.mark.parametrize("n", [1, 4, 9, 16])
def test_offsets_are_those_of_the_integer_shift(n: int) -> None:
    g = torch.Generator().manual_seed(n)
    p = torch.randint(0, 200_000, (500,), generator=g)
    a = torch.randint(-(2**20), 2**20, (500,), generator=g)
    for t in range(20):
        part = offsets(p[None], t)[0]
        assert bool(((part >= 0) & (part < 1)).all())
        assert [float(x) for x in part[:50]] == [phase(int(q), t) for q in p[:50]]
        shifted = (a.double() / 2**n + part.double()).floor().long()
        assert torch.equal(shifted, rshift_dither(a, torch.tensor(n), p, t))


@pytest.mark.parametrize("rounding", ["even", "dither"])
@pytest.mark.parametrize("reset", ["hard", "soft", "none"])
@pytest.mark.parametrize("strict", [False, True])
def test_a_fine_state_costs_nothing(reset: str, strict: bool, rounding: str) -> None:
    d = neuron([0.9, 0.5, 1.0], [1.0, 0.7, 1.3], [1.1, 0.7, 1.3], reset, strict, rounding)
    trace = random_trace(d, 9, 200, 1)
    assert 0.05 < float(trace.spikes.float().mean()) < 0.95
    levels = (torch.tensor(-(2.0**23)), torch.tensor(2.0**23))
    fine = replay_cost(d, trace, torch.full((3,), 2.0**-18), levels)
    coarse = replay_cost(d, trace, torch.full((3,), 2.0), levels)
    assert bool((fine < 1e-4).all())
    assert bool((coarse > 0.1).all())


def test_a_tail_that_is_cut_off_costs_less_than_a_lost_spike() -> None:
    """States far below the threshold, cut at half of it, on trajectories that fire nowhere."""
    d = neuron([0.5], [1.0], [1.0], "soft")
    currents = torch.full((6, 1, 50), -30.0)
    trace = Trace(currents, torch.zeros(6, 1, 50, dtype=torch.bool), torch.zeros(1, 50, dtype=torch.int64))
    cut = float(replay_cost(d, trace, torch.tensor([0.25]), (torch.tensor(-2.0), torch.tensor(1.0))))
    assert 0 < cut <= 6 * 0.01 + 1e-6


# --- as an objective -----------------------------------------------------------------------------


def view(d: Dynamics, ks: range, zero_points: bool = False) -> NeuronView:
    c = len(d.theta)
    scale = 0.11 * (1 + torch.arange(c, dtype=torch.float64) / 7)
    empty = ChannelStatistics.empty(c)
    return NeuronView(empty, d.theta[:, 0].double(), scale, scale, ks, zero_points)


def three() -> tuple[Dynamics, Trace]:
    d = neuron([0.9, 0.5, 0.75], [1.0, 0.7, 1.3], [1.0, 0.7, 1.3], "soft")
    return d, random_trace(d, 6, 150, 5)


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_the_bridge_by_replay_is_brute_force_over_k_and_zero_points(bits: int) -> None:
    d, trace = three()
    for shifts in (False, True):
        v = view(d, range(-4, 5), shifts)
        table = ExponentTable(v, Replay(d, trace))
        found = choose_scales("bridge", table, torch.full((3,), bits))
        assert found.k is not None and found.zero is not None
        best: list[tuple[float, int, int]] = [(math.inf, 0, 0)] * 3
        for k in v.ks:
            for z in zero_points(bits) if shifts else (0,):
                levels = tuple(torch.tensor(float(e + z)) for e in signed_range(bits))
                steps = v.scale * 2.0**k
                for c, cost in enumerate(replay_cost(d, trace, steps, levels).tolist()):
                    octave = math.log2(float(steps[c] / v.theta[c]))
                    if -2 - bits <= octave <= 1 and cost < best[c][0] - 1e-12:
                        best[c] = (cost, k, z)
        for c in range(3):
            cost = float(table.cost(bits)[c].min())
            assert cost == pytest.approx(best[c][0], abs=1e-9)
            assert (int(found.k[c]), int(found.zero[c])) == best[c][1:]


def test_zero_points_never_cost_more() -> None:
    d, trace = three()
    plain = ExponentTable(view(d, range(-4, 5)), Replay(d, trace))
    moved = ExponentTable(view(d, range(-4, 5), True), Replay(d, trace))
    for bits in (2, 3, 4):
        assert bool((moved.cost(bits) <= plain.cost(bits)).all())
    assert bool((moved.cost(2).amin(1) < plain.cost(2).amin(1)).any())


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_zero_points_keep_zero_among_the_levels(bits: int) -> None:
    lo, hi = signed_range(bits)
    found = zero_points(bits)
    assert found[0] == 0 and len(set(found)) == len(found)
    assert {-hi, -lo} <= set(found)
    for z in found:
        assert lo + z <= 0 <= hi + z


def test_squared_error_with_zero_points_is_brute_force() -> None:
    """Negative tails: levels shifted down are better, and the table finds the best pair."""
    g = torch.Generator().manual_seed(2)
    raw = -torch.rand(3, 3000, generator=g) * torch.tensor([[2.0], [5.0], [0.4]])
    st = ChannelStatistics.empty(3)
    st.histogram = torch.stack([torch.bincount(bin_index(r), minlength=BINS) for r in raw])
    one = torch.ones(3, dtype=torch.float64)
    v = NeuronView(st, one, 0.1 * one, 0.1 * one, range(-4, 6), True)
    table = ExponentTable(v, SquaredError())
    for bits in (2, 3, 4):
        found = choose_scales("bridge", table, torch.full((3,), bits))
        assert found.k is not None and found.zero is not None
        for c in range(3):
            costs = {}
            for k in v.ks:
                for z in zero_points(bits):
                    lo, hi = (e + z for e in signed_range(bits))
                    s = 0.1 * 2.0**k
                    x = raw[c].double()
                    costs[k, z] = float(((x / s).round().clamp(lo, hi) * s - x).square().mean())
            mine = costs[int(found.k[c]), int(found.zero[c])]
            assert mine <= min(costs.values()) * 1.03 + 1e-9  # the histogram has bins
        assert int(found.zero.max()) <= 0 and int(found.zero.min()) < 0


def test_scales_without_hope_lose_to_every_other_and_are_ordered() -> None:
    d, trace = three()
    scales = torch.tensor([[2.0**-12, 2.0**-8, 2.0**-3, 0.5, 5.0, 40.0]] * 3, dtype=torch.float64)
    cost = Replay(d, trace).errors(ChannelStatistics.empty(3), d.theta[:, 0].double(), scales, 4)[0]
    for row in cost.tolist():
        assert max(row[2:4]) < min(row[1], row[4])
        assert row[0] > row[1] and row[5] > row[4]


def test_the_worst_that_can_happen_is_better_than_no_hope() -> None:
    """A neuron that fires always where the float one never did: cost 3.5 T and the tie-break."""
    d = neuron([0.5], [1.0], [1.0], "hard")
    never = torch.zeros(5, 1, 4, dtype=torch.bool)
    trace = Trace(torch.full((5, 1, 4), 3.0), never, torch.zeros(1, 4, dtype=torch.int64))
    scales = torch.tensor([[0.5, 2.0001]], dtype=torch.float64)
    possible, hopeless = Replay(d, trace).errors(ChannelStatistics.empty(1), torch.ones(1), scales, 4)[0, 0]
    assert float(possible) >= 3.5 * 5
    assert possible < hopeless


def test_layerwise_takes_the_least_sum() -> None:
    d, trace = three()
    table = ExponentTable(view(d, range(-4, 5), True), Replay(d, trace))
    bits = torch.tensor([2, 4, 3])
    found = choose_scales("layerwise", table, bits)
    assert found.k is not None and found.zero is not None
    rows = torch.stack([table.cost(int(b))[c] for c, b in enumerate(bits)])
    assert int(found.k[0]) == list(range(-4, 5))[int(rows.sum(0).argmin())]
    assert len(set(found.k.tolist())) == 1
    for c, b in enumerate(bits.tolist()):
        lo, hi = signed_range(b)
        assert lo + int(found.zero[c]) <= 0 <= hi + int(found.zero[c])
