"""Histograms and sums: bins, merging, independence of the user's batches, and what the histogram loses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from ptq4snn.bridge.objective import SquaredError
from ptq4snn.observation.channel_statistics import BINS, ChannelStatistics, bin_edges, bin_index


def test_every_value_lies_inside_the_edges_of_its_bin() -> None:
    g = torch.Generator().manual_seed(0)
    v = torch.exp2(torch.rand(20_000, generator=g) * 22 - 11) * torch.where(
        torch.rand(20_000, generator=g) < 0.5, -1, 1
    )
    inner, outer = bin_edges()
    i = bin_index(v)
    assert bool(((i >= 0) & (i < BINS)).all())
    size, inside = v.double().abs(), inner[i].abs()
    zero = i == 0
    assert bool((size[zero] < 2.0**-10).all()) and bool((size[~zero] >= inside[~zero]).all())
    last = size >= 2.0**10  # beyond the last edge: the last bin
    assert bool((size[~zero & ~last] < outer[i].abs()[~zero & ~last]).all())
    assert bool((outer[i].abs()[last] == 2.0**10).all())
    assert bool(((inner[i] < 0) == (v < 0))[~zero].all())


@given(st.floats(2**-10, 2**10, exclude_max=True, width=32), st.booleans())
def test_bin_of_one_value(size: float, negative: bool) -> None:
    """Found again by walking along the octaves."""
    octave = next(e for e in range(-10, 10) if size < 2.0 ** (e + 1))
    eighth = int((size / 2.0**octave - 1) * 8)
    expected = 1 + 8 * (octave + 10) + eighth + (160 if negative else 0)
    assert int(bin_index(torch.tensor(-size if negative else size))) == expected
    inner, outer = bin_edges()
    assert abs(float(inner[expected])) == 2.0**octave * (1 + eighth / 8)
    assert abs(float(outer[expected])) == pytest.approx(2.0**octave * (1 + (eighth + 1) / 8))


def test_zero_and_tiny_values_share_bin_zero() -> None:
    assert bin_index(torch.tensor([0.0, -0.0, 9e-4, -9e-4, 1e-30])).tolist() == [0] * 5


def statistics_of(v: Tensor) -> ChannelStatistics:
    """Of raw states v[C, n] in theta."""
    out = ChannelStatistics.empty(len(v))
    for c, row in enumerate(v):
        out.histogram[c] = torch.bincount(bin_index(row.float()), minlength=BINS)
    out.low, out.high = v.amin(1), v.amax(1)
    return out


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_histogram_error_is_near_the_direct_error(bits: int) -> None:
    """Inside a bin values are taken as even. Where only the tail of a normal distribution is clipped, the
    density falls by half inside one bin, and the error comes out some percent high."""
    g = torch.Generator().manual_seed(bits)
    v = (
        torch.randn(3, 200_000, generator=g, dtype=torch.float64) * torch.tensor([0.3, 1.0, 5.0])[:, None]
        - 0.2
    )
    v = torch.where(v >= 1, 0.0, v)  # hard reset
    theta = torch.tensor([1.0, 0.5, 2.0], dtype=torch.float64)
    scales = theta[:, None] * torch.exp2(torch.arange(-6.0, 3.0).double()) * 0.37
    found = SquaredError().error(statistics_of(v), theta, scales, bits)
    lo, hi = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    for c in range(3):
        real = v[c] * theta[c]
        for j, s in enumerate(scales[c]):
            direct = float(((real / s).round().clamp(lo, hi) * s - real).square().mean())
            tail = 0 < float(((real / s < lo) | (real / s > hi)).double().mean()) < 0.05
            # values of less than 2^-10 theta are taken as zero, hence the absolute part
            near = pytest.approx(direct, rel=0.15 if tail else 0.03, abs=float(theta[c] / 1024) ** 2)
            assert float(found[c, j]) == near


def test_states_of_zero_cost_nothing() -> None:
    found = SquaredError().error(
        statistics_of(torch.zeros(2, 50, dtype=torch.float64)),
        torch.ones(2).double(),
        torch.ones(2, 3).double(),
        4,
    )
    assert found.tolist() == [[0.0] * 3] * 2


# --- one pass over a network ----------------------------------------------------------------------


def prepared_parts(small_model: Callable[..., nn.Module], x: Tensor) -> Any:
    from ptq4snn.discovery.discover import discover
    from ptq4snn.discovery.folding import fold

    model = small_model()
    return fold(model, discover(model, x[:2], 0))


def test_observation_counts_what_the_network_does(
    small_model: Callable[..., nn.Module], images: Callable[..., Tensor]
) -> None:
    """Against spikes and states recorded step by step; where a map is small every position is counted."""
    from ptq4snn.observation.observe import observe

    x = images(5)
    folded = prepared_parts(small_model, x)
    states: dict[str, list[Tensor]] = {}
    spikes: dict[str, list[Tensor]] = {}
    names = list(folded.discovery.neurons)
    for n in names:

        def note(_x: Any, _h: Any, s: Tensor, v: Tensor, _t: int, n: str = n) -> None:
            states.setdefault(n, []).append(v.clone())
            spikes.setdefault(n, []).append(s.clone())

        folded.core(n).probe = note
    with torch.no_grad():
        folded.model(x)
    seen = observe(folded, [x], 0)
    for n in names:
        v = torch.stack(states[n]).transpose(0, 2).flatten(1)  # [C, ...]
        s = torch.stack(spikes[n]).transpose(0, 2).flatten(1)
        st_ = seen.neurons[n]
        assert st_.steps == v.shape[1]
        assert st_.spikes.tolist() == s.sum(1).long().tolist()
        assert torch.equal(st_.low, v.amin(1).double()) and torch.equal(st_.high, v.amax(1).double())
        assert st_.firing_rate().tolist() == pytest.approx(s.double().mean(1).tolist())
        total = st_.histogram.sum(1)
        assert bool((total == total[0]).all()) and int(total[0]) > 0
        if folded.discovery.neurons[n].layout.elements < 32:
            whole = torch.stack([torch.bincount(bin_index(r), minlength=BINS) for r in v])
            assert torch.equal(st_.histogram, whole)
    assert seen.samples == 5


def test_sampled_positions_stand_for_all(
    small_model: Callable[..., nn.Module], images: Callable[..., Tensor]
) -> None:
    """A large map is counted at some positions only; every position must get its turn."""
    from ptq4snn.observation.observe import NeuronObserver

    layout = prepared_parts(small_model, images(2)).discovery.neurons["sn1"].layout
    observer = NeuronObserver(
        type(layout)((2, 16, 20), (0,)), torch.ones(()).double(), False, ChannelStatistics.empty(2)
    )
    v = torch.exp2(torch.arange(320) // 8 / 4.0 - 5).view(16, 20).expand(64, 2, 16, 20)  # 40 values
    for t in range(4):
        observer(v, v, torch.zeros_like(v), v, t)
    observer.flush()
    reached = torch.unique(bin_index(v)).tolist()
    counts = observer.statistics.histogram[0]
    assert counts.nonzero().flatten().tolist() == reached
    share = counts[reached].double() / counts.sum()
    whole = torch.bincount(bin_index(v[0, 0]).flatten(), minlength=BINS)[reached] / 320
    assert torch.allclose(share, whole.double(), rtol=0.15)


def test_merged_parts_are_the_whole(
    small_model: Callable[..., nn.Module], images: Callable[..., Tensor]
) -> None:
    from ptq4snn.observation.observe import observe

    x = images(32, size=36)  # the stem's map of 36 x 36 is counted in part
    folded = prepared_parts(small_model, x)
    chunks = list(x.split(8))
    whole = observe(folded, chunks, 0)
    parts = [observe(folded, chunks[:1], 0), observe(folded, chunks[1:3], 0), observe(folded, chunks[3:], 0)]
    for order in ((0, 1, 2), (2, 0, 1)):
        a, b, c = (parts[i] for i in order)
        merged = a.merge(b).merge(c)
        assert merged.samples == whole.samples == 32
        for n, st_ in whole.neurons.items():
            assert merged.neurons[n].equals(st_), n
        assert merged.inputs["conv1"].plan() == whole.inputs["conv1"].plan()
        assert all(torch.equal(merged.writers[n], w) for n, w in whole.writers.items())


@pytest.mark.parametrize("size", [1, 7, 16, 40])
def test_the_users_batches_do_not_matter(
    small_model: Callable[..., nn.Module], images: Callable[..., Tensor], size: int
) -> None:
    from ptq4snn.calibration.calibration_set import micro_batches
    from ptq4snn.observation.observe import observe

    x = images(40)
    folded = prepared_parts(small_model, x)
    expected = observe(folded, micro_batches(x, 16), 0)
    found = observe(folded, micro_batches(list(x.split(size)), 16), 0)
    assert all(found.neurons[n].equals(s) for n, s in expected.neurons.items())
    assert found.inputs["conv1"].plan() == expected.inputs["conv1"].plan()
