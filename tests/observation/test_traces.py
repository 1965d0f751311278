"""Traces against loops that record the same positions by hand, and against the float neuron itself."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ptq4snn.frameworks.adapter import NeuronSpec
from ptq4snn.frameworks.core import FloatCore
from ptq4snn.frameworks.native import NativeAdapter
from ptq4snn.models.neuron import LIF, fire
from ptq4snn.network.state_layout import Layout
from ptq4snn.observation import traces
from ptq4snn.observation.traces import Trace, Tracer, record_traces
from ptq4snn.pipeline import prepare
from ptq4snn.recipe import Recipe
from ptq4snn.tuning.tuning_traces import float_traces

LAYOUTS = {
    "linear": Layout((5,), (0,)),
    "conv": Layout((3, 4, 5), (0,)),
    "tokens": Layout((6, 4), (1,)),
    "heads": Layout((2, 5, 3), (0, 2)),
}


def spec(gain: float = 0.5) -> NeuronSpec:
    leak, theta = torch.tensor(0.75, dtype=torch.float64), torch.tensor(1.0, dtype=torch.float64)
    return NeuronSpec(leak, torch.tensor(gain, dtype=torch.float64), theta, theta, ">=", "soft", fire)


def inputs(layout: Layout, batches: list[int], T: int, seed: int = 0) -> list[Tensor]:
    g = torch.Generator().manual_seed(seed)
    return [torch.randn(T, b, *layout.shape, generator=g) * 2 + 0.4 for b in batches]


def traced(layout: Layout, xs: list[Tensor], gain: float = 0.5) -> tuple[Trace, list[Tensor]]:
    """The trace of a float core that runs the sequences, and all spikes."""
    core = FloatCore(spec(gain))
    samples = sum(x.shape[1] for x in xs)
    tracer = Tracer(layout, lambda x: gain * x, xs[0].shape[0], samples)
    core.probe = tracer
    spikes = [core.run(x, None)[0] for x in xs]
    return tracer.trace(), spikes


def channel(layout: Layout, place: int) -> tuple[int, int]:
    """(channel, sample-free position index) of a flat index, by counting, without Layout's own methods."""
    everywhere = list(product(*map(range, layout.shape)))
    index = everywhere[place]
    mine = tuple(index[d] for d in layout.dims)
    channels = sorted({tuple(i[d] for d in layout.dims) for i in everywhere})
    others = sorted({tuple(i[d] for d in range(len(i)) if d not in layout.dims) for i in everywhere})
    rest = tuple(index[d] for d in range(len(index)) if d not in layout.dims)
    return channels.index(mine), others.index(rest)


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_value_is_the_one_of_its_sample_and_place(name: str) -> None:
    layout, T, batches = LAYOUTS[name], 4, [3, 3, 2]
    xs = inputs(layout, batches, T)
    trace, spikes = traced(layout, xs)
    C, positions = layout.channels, layout.elements
    n = trace.places.shape[1]
    assert trace.currents.shape == trace.spikes.shape == (T, C, n) and trace.places.shape == (C, n)
    assert trace.spikes.dtype == torch.uint8 and trace.currents.dtype == torch.float32
    each = n // sum(batches)
    assert each * sum(batches) == n and 1 <= each <= positions
    sample = [(x, s, b) for x, s in zip(xs, spikes, strict=True) for b in range(x.shape[1])]
    for c in range(C):
        for j in range(n):
            place = int(trace.places[c, j])
            assert channel(layout, place)[0] == c
            x, s, b = sample[j // each]
            assert torch.equal(trace.currents[:, c, j], 0.5 * x[:, b].flatten(1)[:, place])
            assert torch.equal(trace.spikes[:, c, j], s[:, b].flatten(1)[:, place].to(torch.uint8))
    assert 0 < int(trace.spikes.sum()) < trace.spikes.numel()


@pytest.mark.parametrize("name", LAYOUTS)
def test_positions_of_all_channels_agree_and_are_spread(name: str) -> None:
    layout = LAYOUTS[name]
    trace, _ = traced(layout, inputs(layout, [4], 2))
    seen = [[channel(layout, int(p))[1] for p in row] for row in trace.places]
    assert all(row == seen[0] for row in seen)
    assert set(seen[0]) == set(range(layout.elements))  # few positions: each of them is taken
    assert len(set(trace.places.flatten().tolist())) == prod(layout.shape)


def test_a_limit_on_trajectories_takes_other_positions_of_other_samples(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(traces, "TRAJECTORIES", 16)
    layout = Layout((2, 10, 10), (0,))
    trace, _ = traced(layout, inputs(layout, [4, 4], 2))
    assert trace.places.shape == (2, 16)
    assert len(set(trace.places[0].tolist())) == 16  # two of each sample, none twice
    assert int(trace.places[0].max()) < 100 <= int(trace.places[1].min())


def test_a_limit_on_values_holds_and_leaves_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "VALUES", 240)
    layout = Layout((3, 10, 10), (0,))
    trace, _ = traced(layout, inputs(layout, [4], 5))
    assert trace.currents.numel() <= 240
    monkeypatch.setattr(traces, "VALUES", 1)
    trace, _ = traced(layout, inputs(layout, [4], 5))
    assert trace.currents.shape == (5, 3, 4)  # one position of every sample at the least


class Steps(nn.Module):
    """A network that calls its neuron once for each step, as snnTorch and SpikingJelly's step mode do."""

    def __init__(self, core: FloatCore, T: int) -> None:
        super().__init__()
        self.core, self.T = core, T

    def forward(self, x: Tensor) -> Tensor:  # [B, T, C]
        v, out = None, []
        for t in range(self.T):
            s, v, _ = self.core.step(x[:, t], v, t)
            out.append(s)
        return torch.stack(out)


def test_step_by_step_is_the_same_as_a_sequence() -> None:
    layout, T = Layout((6,), (0,)), 5
    xs = inputs(layout, [3, 2], T, seed=4)
    whole, _ = traced(layout, xs)
    model = Steps(FloatCore(spec()), T)
    tracer = Tracer(layout, lambda x: 0.5 * x, T, 5)
    found = record_traces(model, {"n": model.core}, {"n": tracer}, [x.transpose(0, 1) for x in xs])["n"]
    assert torch.equal(found.currents, whole.currents) and torch.equal(found.spikes, whole.spikes)
    assert torch.equal(found.places, whole.places)
    assert model.core.probe is None


def test_the_probe_goes_also_when_the_model_fails() -> None:
    model = Steps(FloatCore(spec()), 3)
    tracer = Tracer(Layout((6,), (0,)), lambda x: x, 3, 1)
    with pytest.raises(IndexError):
        record_traces(model, {"n": model.core}, {"n": tracer}, [torch.zeros(1, 2, 6)])
    assert model.core.probe is None


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        g = torch.Generator().manual_seed(0)
        self.a, self.n1 = nn.Conv2d(1, 4, 3, padding=1), LIF(tau=3.0, v_reset=None)
        self.b, self.n2 = nn.Conv2d(4, 5, 3), LIF(tau=1.25, v_reset=-0.5)
        self.head = nn.Linear(5 * 16, 3)
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(torch.randn(p.shape, generator=g) * 0.8 + 0.1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.n1(self.a(x).expand(4, -1, -1, -1, -1))
        y = self.n2(self.b(y.flatten(0, 1)).unflatten(0, (4, -1)))
        out: Tensor = self.head(y.flatten(2)).mean(0)
        return out


def by_hand(model: nn.Module, x: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    """Currents and spikes [T, B, C, P] of every neuron of the unfolded model, from hooks."""
    out: dict[str, tuple[Tensor, Tensor]] = {}

    def hook(name: str) -> Any:
        def keep(m: Any, args: tuple[Tensor], spikes: Tensor) -> None:
            spec = NativeAdapter().spec(m, name)
            out[name] = (args[0].flatten(3).double() * spec.gain, spikes.flatten(3).bool())

        return keep

    handles = [m.register_forward_hook(hook(n)) for n, m in model.named_modules() if isinstance(m, LIF)]
    with torch.no_grad():
        model(x)
    for h in handles:
        h.remove()
    return out


def test_float_traces_hold_the_currents_of_the_users_model() -> None:
    x = torch.randint(0, 256, (40, 1, 6, 6), generator=torch.Generator().manual_seed(1)).float() / 64
    model = Net().eval()
    prepared = prepare(model, x, Recipe(holdout=8, sensitivity_batches=2, micro_batch=8))
    found = float_traces(prepared)
    kept = torch.cat(list(prepared.kept))
    assert len(kept) == 24 and float_traces(prepared) is found
    expected = by_hand(model, kept)
    assert set(found) == {"n1", "n2"}
    for name, trace in found.items():
        current, spikes = expected[name]
        C, P = current.shape[2:]
        n = trace.places.shape[1] // len(kept)
        b = torch.arange(len(kept)).repeat_interleave(n)
        for c in range(C):
            p = trace.places[c] - c * P
            assert int(p.min()) >= 0 and int(p.max()) < P
            assert torch.allclose(trace.currents[:, c].double(), current[:, b, c, p], atol=1e-5)
            assert torch.equal(trace.spikes[:, c], spikes[:, b, c, p])
        assert 0.01 < float(trace.spikes.float().mean()) < 0.9
