"""Networks with synaptic currents and with recurrence, from the float model to the packed runtime."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import ptq4snn
from ptq4snn import runtime
from ptq4snn.errors import UnsupportedNeuron
from ptq4snn.network.program import Delay, Neuron
from ptq4snn.runtime.native import available
from ptq4snn.runtime.state import State

snn = pytest.importorskip("snntorch")
utils = pytest.importorskip("snntorch.utils")

STEPS = 9
RECIPES = ("w4m4", "w4m2", "paper+nearest+w4m4", "w8m8")


def neuron(kind: str, features: int) -> Any:
    if kind == "Synaptic":
        return snn.Synaptic(alpha=0.75, beta=0.9)
    if kind == "one to one":
        return snn.RLeaky(beta=0.9, all_to_all=False, V=0.3)
    if kind == "one weight each":
        return snn.RLeaky(beta=0.9, all_to_all=False, V=torch.linspace(-0.4, 0.4, features))
    if kind == "RLeaky":
        return snn.RLeaky(beta=0.9, linear_features=features)
    if kind == "pauses":
        return snn.RSynaptic(alpha=0.8, beta=0.9, linear_features=features, reset_mechanism="zero")
    if kind == "zero at once":
        return snn.Synaptic(alpha=0.8, beta=0.9, reset_mechanism="zero", reset_delay=False)
    return snn.RSynaptic(alpha=torch.linspace(0.5, 0.9, features), beta=0.9, linear_features=features)


KINDS = ("Synaptic", "one to one", "one weight each", "RLeaky", "RSynaptic", "pauses", "zero at once")


class Net(nn.Module):
    """Two layers of such neurons and a readout; x is a still image, or spikes [B, T, N]."""

    def __init__(self, kind: str, still: bool) -> None:
        super().__init__()
        self.still = still
        self.fc1, self.n1 = nn.Linear(12, 20), neuron(kind, 20)
        self.fc2, self.n2 = nn.Linear(20, 16), neuron(kind, 16)
        self.fc3, self.n3 = nn.Linear(16, 5), snn.Leaky(beta=0.9)

    def forward(self, x: Tensor) -> Tensor:
        one, two, mem = _tuple(self.n1.reset_mem()), _tuple(self.n2.reset_mem()), self.n3.reset_mem()
        out = []
        for t in range(STEPS):
            spikes, *rest = self.n1(self.fc1(x if self.still else x[:, t]), *one)
            one = tuple(rest) if len(rest) == len(one) else (spikes, *rest)  # as snnTorch returns them
            spikes, *rest = self.n2(self.fc2(spikes), *two)
            two = tuple(rest) if len(rest) == len(two) else (spikes, *rest)
            spikes, mem = self.n3(self.fc3(spikes), mem)
            out.append(spikes)
        return torch.stack(out).sum(0)


def _tuple(x: Any) -> tuple[Tensor, ...]:
    return x if isinstance(x, tuple) else (x,)


def made(kind: str, still: bool = False) -> tuple[nn.Module, Tensor]:
    generator = torch.Generator().manual_seed(3)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        net = Net(kind, still).eval()
    for layer in (net.fc1, net.fc2, net.fc3):
        layer.weight.data *= 2
    shape = (40, 12) if still else (40, STEPS, 12)
    x = torch.rand(shape, generator=generator)
    return net, x * 2 if still else (x < 0.35).float()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("still", [True, False])
def test_the_runtime_is_the_simulation(kind: str, still: bool, tmp_path: Path) -> None:
    """Every level, streaming, a session saved in the middle, and the bundle loaded again."""
    net, x = made(kind, still)
    q = ptq4snn.quantize(net, x, "w4m4")
    assert q.program is not None, q.not_lowered
    expected = q(x).numpy()
    q.save(tmp_path / "q.ptq")
    for kernels in ("numpy", *available()):
        rt = runtime.load(tmp_path / "q.ptq", kernels=kernels)
        np.testing.assert_array_equal(rt(x.numpy()), expected)
        for t in range(STEPS):
            y = rt.step(x.numpy() if still else x[:, t].numpy())
            if t == 3:
                rt.state.save(tmp_path / "s.ptq")  # type: ignore[union-attr]
        np.testing.assert_array_equal(y, expected)
        other = runtime.load(tmp_path / "q.ptq", kernels="numpy")
        other.restore(State.load(tmp_path / "s.ptq"))
        for t in range(4, STEPS):
            y = other.step(x.numpy() if still else x[:, t].numpy())
        np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(ptq4snn.load(tmp_path / "q.ptq", net)(x).numpy(), expected)


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe(recipe: str) -> None:
    net, x = made("RSynaptic")
    q = ptq4snn.quantize(net, x, recipe, iterations=3)
    assert q.program is not None, q.not_lowered
    names = {n.rpartition(".")[2] for n in q.plan.neurons}
    assert {"synapse", "membrane"} <= names
    for n in q.plan.neurons.values():
        if n.name.endswith("synapse"):
            assert n.emits == "current" and n.in_budget == q.plan.neurons[n.name[:-7] + "membrane"].in_budget


def test_both_states_are_bridged_to_the_weights_scale() -> None:
    """s_I = s_w 2^kI and s_V = s_w 2^kV, each channel with its own exponents; both are in the budget."""
    net, x = made("RSynaptic")
    q = ptq4snn.quantize(net, x, "w4m4")
    w = np.array(q.plan.projections["fc2"].lattice)
    back = np.array(q.plan.projections["n2.recurrent"].lattice)
    octaves = np.log2(back / w)
    assert np.allclose(octaves, np.round(octaves[0]))  # one scale, but for whole octaves
    for part in ("n2.synapse", "n2.membrane"):
        n = q.plan.neurons[part]
        assert None not in n.k
        k = np.array(n.k, dtype=float)
        assert np.allclose(np.array(n.scales), w * 2.0**k)
        assert n.in_budget and set(n.bits) == {4}


def test_mixed_widths_give_every_channel_of_both_states_a_score() -> None:
    net, x = made("Synaptic")
    q = ptq4snn.quantize(net, x, "paper+nearest+mpba", membrane=3.0, beta=0.5, percentile=0.5)
    assert q.plan.mixed and q.program is not None
    widths = {n: set(p.bits) for n, p in q.plan.neurons.items() if p.in_budget}
    assert {n.rpartition(".")[2] for n in widths} >= {"synapse", "membrane"}
    assert len(set().union(*widths.values())) > 1


def test_only_what_goes_round_is_looped() -> None:
    """The input's projection runs all steps at once; two recurrent layers are two loops."""
    net, x = made("RLeaky")
    q = ptq4snn.quantize(net, x, "w4m4")
    assert q.program is not None
    kinds = [op.kind for op in q.program.operations]
    assert kinds == [
        "quantize", "project", "delay", "project", "combine", "neuron",
        "project", "delay", "project", "combine", "neuron", "project", "neuron", "time_sum",
    ]  # fmt: skip
    assert sum(isinstance(op, Delay) for op in q.program.operations) == 2


class ByHand(nn.Module):
    """A loop that a user writes: feedback from the second layer, a first step fed by zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.back, self.n1 = nn.Linear(12, 20), nn.Linear(16, 20, bias=False), snn.Leaky(beta=0.8)
        self.fc2, self.own, self.n2 = nn.Linear(20, 16), nn.Linear(16, 16), snn.Leaky(beta=0.8)

    def forward(self, x: Tensor) -> Tensor:
        m1, m2 = self.n1.reset_mem(), self.n2.reset_mem()
        spikes = torch.zeros(len(x), 16)
        total = []
        for t in range(STEPS):
            s1, m1 = self.n1(self.fc1(x[:, t]) + self.back(spikes), m1)
            spikes, m2 = self.n2(self.fc2(s1) + self.own(spikes), m2)
            total.append(spikes)
        return torch.stack(total).mean(0)


def test_a_loop_written_by_hand(tmp_path: Path) -> None:
    _, x = made("RLeaky")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        net = ByHand().eval()
    net.fc1.weight.data *= 3
    net.fc2.weight.data *= 3
    q = ptq4snn.quantize(net, x, "w4m4")
    assert q.program is not None, q.not_lowered
    assert sum(isinstance(op, Delay) for op in q.program.operations) == 2
    q.save(tmp_path / "q.ptq")
    for kernels in ("numpy", *available()):
        y = runtime.load(tmp_path / "q.ptq", kernels=kernels)(x.numpy())
        np.testing.assert_array_equal(y, q(x).numpy())


class Convolutional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 6, 3, padding=1)
        self.n = snn.RSynaptic(alpha=0.8, beta=0.9, conv2d_channels=6, kernel_size=3, init_hidden=True)
        self.fc, self.last = nn.Linear(6 * 25, 5), snn.Leaky(beta=0.9, init_hidden=True)

    def forward(self, x: Tensor) -> Tensor:
        self.n.reset_mem()
        self.last.reset_mem()
        out = [self.last(self.fc(self.n(self.conv(x[t])).flatten(1))) for t in range(len(x))]
        return torch.stack(out).sum(0)


def test_convolutional_recurrence_with_hidden_states(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    x = (torch.rand(6, 24, 2, 5, 5, generator=generator) < 0.4).float()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        net = Convolutional().eval()
    net.conv.weight.data *= 4
    net.fc.weight.data *= 4
    q = ptq4snn.quantize(net, x, "w4m4", batch_axis=1)
    assert q.program is not None, q.not_lowered
    q.save(tmp_path / "q.ptq")
    expected = q(x).numpy()
    assert expected.any()
    for kernels in ("numpy", *available()):
        np.testing.assert_array_equal(runtime.load(tmp_path / "q.ptq", kernels=kernels)(x.numpy()), expected)


def test_wide_states_follow_the_float_network() -> None:
    """With 8-bit weights and wide states next to nothing is lost: the equations are the framework's."""
    net, x = made("RSynaptic")
    q = ptq4snn.quantize(net, x, "w8m8", coupling="none")
    agree = (q(x).argmax(1) == net(x).argmax(1)).float().mean()
    assert agree > 0.9


def test_float_weights_and_wide_states_lose_nothing() -> None:
    """Tied projections count the same unit also where nothing is rounded."""
    net, x = made("RSynaptic")
    q = ptq4snn.quantize(net, x, "w8m8", weights=None, coupling="none")
    assert (q(x) != net(x)).float().mean() < 0.02


def test_a_reset_by_foreign_spikes_is_refused() -> None:
    net, x = made("RSynaptic")
    net.n1 = snn.RSynaptic(alpha=0.8, beta=0.9, linear_features=20, reset_delay=False)
    with pytest.raises(UnsupportedNeuron, match=r"n1.*reset_delay=True"):
        ptq4snn.quantize(net, x, "w4m4")


def test_steps_of_a_synapse_are_counted_as_states() -> None:
    net, x = made("RSynaptic")
    q = ptq4snn.quantize(net, x, "w4m4")
    packed = sum(rows.nbytes for rows in State.new(runtime_model(q), 1).rows.values())
    assert q.report["summary"]["state_bytes"]["payload"] == packed


def runtime_model(q: Any) -> Any:
    from ptq4snn.runtime.loading import model_of

    return model_of(q.program, q.plan, q.integers)


def test_a_synapse_that_hands_on_what_it_carried() -> None:
    """H[t] = leak V[t-1] + I[t-1]: the current enters one step later, and needs no memory of its own."""
    from ptq4snn.frameworks.adapter import NeuronSpec
    from ptq4snn.frameworks.compound import Compound, Stage
    from ptq4snn.models.neuron import fire

    def number(v: float) -> Tensor:
        return torch.tensor(v, dtype=torch.float64)

    surrogate: Callable[[Tensor], Tensor] = lambda u: fire(u, 2.0)  # noqa: E731

    class Late(Compound):
        def __init__(self) -> None:
            super().__init__()
            one, level = number(1.0), number(0.2)
            self.synapse = Stage(
                NeuronSpec(number(0.7), one, level, level, ">=", "none", surrogate, emits="carried")
            )
            self.membrane = Stage(NeuronSpec(number(0.9), one, one, one, ">=", "hard", surrogate))
            self.reset()

        def forward(self, x: Tensor) -> Tensor:  # [T, B, N]
            spikes = [self.membrane(self.synapse(x_t)[0])[0] for x_t in x]
            return torch.stack(spikes)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc1, self.n1, self.fc2, self.n2 = nn.Linear(12, 20), Late(), nn.Linear(20, 5), Late()

        def forward(self, x: Tensor) -> Tensor:
            return self.n2(self.fc2(self.n1(self.fc1(x)))).mean(0)

    _, x = made("RLeaky")
    x = x.transpose(0, 1).contiguous()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        net = Model().eval()
    net.fc1.weight.data *= 3
    net.fc2.weight.data *= 3
    q = ptq4snn.quantize(net, x, "w4m4", batch_axis=1)
    assert q.program is not None, q.not_lowered
    assert any(isinstance(op, Neuron) and op.carried for op in q.program.operations)
    expected = q(x).numpy()
    assert expected.any()
    for kernels in ("numpy", *available()):
        np.testing.assert_array_equal(runtime.Runtime(runtime_model(q), kernels=kernels)(x.numpy()), expected)


class Hidden(nn.Module):
    """States inside of the neurons, forgotten by snnTorch's own reset."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.n1 = nn.Linear(12, 20), snn.Synaptic(alpha=0.8, beta=0.9, init_hidden=True)
        self.fc2 = nn.Linear(20, 5)
        self.n2 = snn.RLeaky(beta=0.9, linear_features=5, init_hidden=True, output=True)

    def forward(self, x: Tensor) -> Tensor:
        utils.reset(self)
        return torch.stack([self.n2(self.fc2(self.n1(self.fc1(x))))[0] for _ in range(STEPS)]).sum(0)


def test_snntorchs_reset_reaches_the_compounds() -> None:
    _, x = made("RLeaky", still=True)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        net = Hidden().eval()
    q = ptq4snn.quantize(net, x, "w4m4")
    first = q(x)
    assert first.any() and torch.equal(q(x), first)
    assert torch.equal(q(x[:7]), first[:7])
    inner: Any = q.model
    inner.n1(inner.fc1(x))  # something is left over
    utils.reset(q)
    assert inner.n1.last == ()


class AsInTheTutorials(nn.Module):
    """States by name: spk and mem of RLeaky, spk, syn and mem of RSynaptic."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.n1 = nn.Linear(12, 20), neuron("RLeaky", 20)
        self.fc2, self.n2 = nn.Linear(20, 5), neuron("RSynaptic", 5)

    def forward(self, x: Tensor) -> Tensor:
        spk1, mem1 = self.n1.init_rleaky()
        spk2, syn2, mem2 = self.n2.init_rsynaptic()
        out = []
        for _ in range(STEPS):
            spk1, mem1 = self.n1(self.fc1(x), spk1, mem1)
            spk2, syn2, mem2 = self.n2(self.fc2(spk1), spk2, syn2, mem2)
            out.append(spk2)
        return torch.stack(out).sum(0)


def test_states_as_the_tutorials_name_them() -> None:
    _, x = made("RLeaky", still=True)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        net = AsInTheTutorials().eval()
    q = ptq4snn.quantize(net, x, "w4m4")
    assert q.program is not None, q.not_lowered
    assert q(x).any()
