"""sinabs 3.1.3: every layer spike for spike against its own forward, and whole networks."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from oracles.frameworks import currents, framework, replaced, runs_everywhere, seeded
from torch import Tensor, nn

import ptq4snn
from ptq4snn.discovery.surgery import copy_model
from ptq4snn.errors import PTQ4SNNError, RecipeError, UnsupportedNeuron

sinabs = framework("sinabs", "nir", "nirtorch", "pylab")
import sinabs.layers as sl  # noqa: E402
from sinabs.activation import MaxSpike, MembraneReset, MembraneSubtract, MultiSpike, SingleSpike  # noqa: E402

STEPS = 9
ONCE = {"spike_fn": SingleSpike}


def number(generator: torch.Generator, low: float, high: float) -> float:
    return float(low + (high - low) * torch.rand((), generator=generator))


def half(back: nn.Linear) -> nn.Linear:
    """So that counts do not grow without end."""
    back.weight.data *= 0.5
    return back


def layer(kind: str, seed: int) -> nn.Module:
    g = torch.Generator().manual_seed(seed)
    tau, syn, theta = number(g, 1, 12), number(g, 0.5, 6), torch.tensor(number(g, 0.2, 1.0))
    lif = {**ONCE, "tau_mem": tau, "spike_threshold": theta, "norm_input": bool(seed % 2)}
    back = nn.Linear(7, 7, bias=False)
    made = {
        "LIF": lambda: sl.LIF(**lif),
        "LIF each": lambda: sl.LIF(**{**lif, "tau_mem": torch.linspace(1, 12, 7)}),
        "LIF alphas": lambda: sl.LIF(**lif, tau_syn=syn, train_alphas=True),
        "LIF zero": lambda: sl.LIF(**lif, reset_fn=MembraneReset()),
        "LIF subtract": lambda: sl.LIF(**lif, reset_fn=MembraneSubtract(0.75)),
        "LIF at most one": lambda: sl.LIF(**{**lif, "spike_fn": MaxSpike(1)}),
        "LIF counts": lambda: sl.LIF(**{**lif, "spike_fn": MultiSpike}),
        "LIF at most three": lambda: sl.LIF(**{**lif, "spike_fn": MaxSpike(3)}),
        "LIF counts, zero": lambda: sl.LIF(**{**lif, "spike_fn": MultiSpike}, reset_fn=MembraneReset()),
        "LIF counts, subtract": lambda: sl.LIF(
            **{**lif, "spike_fn": MultiSpike}, reset_fn=MembraneSubtract(0.75)
        ),
        "LIF counts, synapse, floor": lambda: sl.LIF(
            **{**lif, "spike_fn": MultiSpike}, tau_syn=syn, min_v_mem=-0.3
        ),
        "LIFRecurrent counts": lambda: sl.LIFRecurrent(
            rec_connect=half(back), **{**lif, "spike_fn": MaxSpike(4)}
        ),
        "LIFSqueeze counts": lambda: sl.LIFSqueeze(num_timesteps=30, **{**lif, "spike_fn": MaxSpike()}),
        "IAF counts": lambda: sl.IAF(spike_threshold=theta),
        "IAFSqueeze counts": lambda: sl.IAFSqueeze(num_timesteps=30, spike_threshold=theta),
        "LIF floor": lambda: sl.LIF(**lif, min_v_mem=-0.3),
        "LIF floor each": lambda: sl.LIF(**lif, min_v_mem=-torch.linspace(0, 2, 7), reset_fn=MembraneReset()),
        "LIF synapse": lambda: sl.LIF(**lif, tau_syn=syn),
        "LIFRecurrent": lambda: sl.LIFRecurrent(rec_connect=back, **lif),
        "LIFRecurrent synapse": lambda: sl.LIFRecurrent(rec_connect=back, tau_syn=syn, **lif),
        "LIFSqueeze": lambda: sl.LIFSqueeze(num_timesteps=30, **lif),
        "IAF": lambda: sl.IAF(**ONCE, spike_threshold=theta),
        "IAF synapse": lambda: sl.IAF(**ONCE, spike_threshold=theta, tau_syn=syn),
        "IAFRecurrent": lambda: sl.IAFRecurrent(back, **ONCE, spike_threshold=theta),
        "IAFSqueeze": lambda: sl.IAFSqueeze(num_timesteps=30, **ONCE, spike_threshold=theta),
        "ExpLeak": lambda: sl.ExpLeak(tau_mem=tau, norm_input=bool(seed % 2)),
        "ExpLeak floor": lambda: sl.ExpLeak(tau_mem=tau, min_v_mem=-0.5),
        "ExpLeakSqueeze": lambda: sl.ExpLeakSqueeze(num_timesteps=30, tau_mem=tau),
    }
    return seeded(seed, made[kind]).double()


KINDS = (
    "LIF", "LIF each", "LIF alphas", "LIF zero", "LIF subtract", "LIF at most one", "LIF floor",
    "LIF floor each", "LIF synapse",
    "LIFRecurrent", "LIFRecurrent synapse", "LIFSqueeze", "IAF", "IAF synapse", "IAFRecurrent", "IAFSqueeze",
    "ExpLeak", "ExpLeak floor", "ExpLeakSqueeze",
    "LIF counts", "LIF at most three", "LIF counts, zero", "LIF counts, subtract",
    "LIF counts, synapse, floor", "LIFRecurrent counts", "LIFSqueeze counts", "IAF counts",
    "IAFSqueeze counts",
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_a_layer_is_its_canonical_form(kind: str, seed: int) -> None:
    """Over two calls: the state stays until it is reset."""
    counts = "counts" in kind or "three" in kind
    module, x = layer(kind, seed), currents((2, 5, 30, 7), seed, 9.0 if counts else 3.0)  # two of [B, T, N]
    made = replaced(module)
    if hasattr(module, "rec_connect"):  # sinabs's spikes are float32 in every model
        module.rec_connect.register_forward_pre_hook(lambda _, given: (given[0].double(),))
    with torch.no_grad():
        for x_n in x.flatten(1, 2) if "Squeeze" in kind else x:
            expected, y = module(x_n).double(), made(x_n)
            if kind.startswith("Exp"):
                torch.testing.assert_close(y, expected)
            else:
                assert torch.equal(y, expected)
                assert 0.02 < float((y > 0).double().mean()) < 0.98
                assert (int(y.max()) > 1) == counts
            if kind != "ExpLeak floor":  # what it keeps is behind what it gives
                near = 1e-5 if int(expected.max()) > 1 else 1e-7  # n * threshold is float32 in sinabs
                torch.testing.assert_close(made.v_mem, module.v_mem.double(), rtol=near, atol=near)
        again, fresh = x[0].flatten(0, 1) if "Squeeze" in kind else x[0], replaced(module)
        parent = nn.Sequential(made)
        sinabs.reset_states(copy.deepcopy(parent))  # of the copy, and not of this one
        assert made.membrane._v is not None
        sinabs.reset_states(parent)
        assert torch.equal(made(again), fresh(again))


def test_a_recurrent_layer_is_copied() -> None:
    """sinabs's own way fails; a copy shares nothing with the original."""
    net = nn.Sequential(sl.LIFRecurrent(5.0, nn.Linear(3, 3, bias=False), **ONCE))
    twin = copy_model(net)
    assert twin[0].rec_connect.weight is not net[0].rec_connect.weight
    assert torch.equal(twin[0].rec_connect.weight, net[0].rec_connect.weight)
    assert twin[0].spike_threshold.data_ptr() != net[0].spike_threshold.data_ptr()


def lif(**more: Any) -> nn.Module:
    return sl.LIFSqueeze(num_timesteps=STEPS, tau_mem=8.0, norm_input=False, **ONCE, **more)


class Squeezed(nn.Module):
    """Convolutions over batch and time on one axis, sums, a residual, a synapse; spikes are counted."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Sequential(
            nn.Conv2d(2, 6, 3, padding=1, bias=False),
            sl.IAFSqueeze(num_timesteps=STEPS, **ONCE),
            sl.SumPool2d(2),
        )
        self.two = nn.Sequential(nn.Conv2d(6, 6, 3, padding=1, bias=False), lif())
        self.three = nn.Sequential(nn.Conv2d(6, 6, 3, padding=1, bias=False), lif(tau_syn=3.0))
        self.last = nn.Sequential(nn.Flatten(), nn.Linear(6 * 9, 5, bias=False), lif())

    def forward(self, x: Tensor) -> Tensor:  # [B, T, 2, 6, 6]
        sinabs.reset_states(self)
        y = self.two(self.one(x.flatten(0, 1)))
        return self.last(y + self.three(y)).unflatten(0, (-1, STEPS)).sum(1)


class Counting(nn.Module):
    """MultiSpike, sinabs's default: convolutions, sums, a residual, a synapse, recurrence, a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        back = nn.Linear(5, 5, bias=False)
        squeezed = {"num_timesteps": STEPS, "tau_mem": 8.0, "norm_input": False}
        self.one = nn.Sequential(
            nn.Conv2d(2, 6, 3, padding=1, bias=False), sl.IAFSqueeze(num_timesteps=STEPS), sl.SumPool2d(2)
        )
        self.two = nn.Sequential(nn.Conv2d(6, 6, 3, padding=1), sl.LIFSqueeze(**squeezed))
        fires = {"spike_fn": MaxSpike(3), "reset_fn": MembraneReset(), "tau_syn": 3.0}
        self.three = nn.Sequential(nn.Conv2d(6, 6, 3, padding=1), sl.LIFSqueeze(**squeezed, **fires))
        self.four = nn.Sequential(nn.Flatten(2), nn.Linear(6 * 9, 5, bias=False))
        self.last = sl.LIFRecurrent(6.0, half(back), norm_input=False, spike_fn=MaxSpike(6))

    def forward(self, x: Tensor) -> Tensor:  # [B, T, 2, 6, 6]
        sinabs.reset_states(self)
        y = self.two(self.one(x.flatten(0, 1)))
        return self.last(self.four((y + self.three(y)).unflatten(0, (-1, STEPS)))).sum(1)


class Recurrent(nn.Module):
    """[B, T, N]: two recurrent layers, and potentials as the output."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(12, 20), sl.LIFRecurrent(6.0, nn.Linear(20, 20, bias=False), norm_input=False, **ONCE),
            nn.Linear(20, 16), sl.IAFRecurrent(nn.Linear(16, 16, bias=False), tau_syn=2.0, **ONCE),
            nn.Linear(16, 5), sl.ExpLeak(tau_mem=20.0),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        for m in self.net:
            if hasattr(m, "reset_states"):
                m.reset_states()
        return self.net(x)[:, -1]


class Repeated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            sl.Repeat(nn.Conv2d(2, 6, 3)), sl.LIF(5.0, norm_input=False, **ONCE), nn.Flatten(2),
            nn.Linear(6 * 16, 5), sl.IAF(**ONCE),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        sinabs.reset_states(self)
        return self.net(x).sum(1)


class Converted(nn.Module):
    """What sinabs makes of a network with ReLUs."""

    def __init__(self) -> None:
        super().__init__()
        ann = nn.Sequential(
            nn.Conv2d(2, 6, 3, padding=1, bias=False), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(),
            nn.Linear(6 * 9, 5, bias=False), nn.ReLU(),
        )  # fmt: skip
        self.net = sinabs.from_torch.from_model(
            ann, spike_fn=SingleSpike, num_timesteps=STEPS, batch_size=-1
        ).spiking_model

    def forward(self, x: Tensor) -> Tensor:
        sinabs.reset_states(self)
        return self.net(x.flatten(0, 1)).unflatten(0, (-1, STEPS)).sum(1)


@pytest.mark.parametrize("kind", [Squeezed, Counting, Recurrent, Repeated, Converted])
@pytest.mark.parametrize("recipe", ["w4m4", "w8m8"])
def test_whole_networks(kind: type[nn.Module], recipe: str, tmp_path: Path) -> None:
    net = seeded(1, kind).eval()
    for m in net.modules():
        if isinstance(m, (nn.Linear, nn.Conv2d)):
            m.weight.data *= 3
    g = torch.Generator().manual_seed(4)
    shape = (24, STEPS, 12) if kind is Recurrent else (24, STEPS, 2, 6, 6)
    x = (torch.rand(shape, generator=g) < 0.4).float()
    q = runs_everywhere(net, x, tmp_path, recipe, time_axis=1)
    if kind is Recurrent:
        readout = q.plan.neurons["net.5.membrane"]
        assert set(readout.bits) == {16} and readout.reset == "none"
    if kind is Counting:
        most = {name: n.most for name, n in q.plan.neurons.items() if n.emits == "spikes"}
        assert most["three.1.membrane"] == 3 and most["last.membrane"] == 6  # MaxSpike's own
        fired = ptq4snn.runtime.load(tmp_path / "q.ptq").trace(x.numpy())
        for name, limit in most.items():
            largest = int(fired[name]["spikes"].max())
            assert 1 < largest <= limit and (limit in (3, 6) or limit + 1 in (4, 8, 16, 32, 64, 128, 256))
    if recipe == "w8m8":
        expected, found = net(x).detach(), q(x)
        assert float((expected - found).abs().mean()) < 0.1 * float(expected.abs().max())


def test_counts_are_rounded_behind_and_where_they_cannot_go(tmp_path: Path) -> None:
    """Reconstruction plays recorded counts to the unit that it rounds, a synapse behind them."""

    def back() -> nn.Module:
        return sl.LIF(5.0, tau_syn=2.0, norm_input=False)

    net = seeded(1, lambda: nn.Sequential(nn.Linear(4, 6), sl.IAF(), nn.Linear(6, 3), back())).eval()
    net[0].weight.data *= 4
    x = torch.rand(12, STEPS, 4, generator=torch.Generator().manual_seed(2))
    q = ptq4snn.quantize(net, x, "paper+uniform+w4m4", iterations=20)
    q.save(tmp_path / "q.ptq")
    with pytest.raises(PTQ4SNNError, match=r"fires up to \d+ times in a step"):
        ptq4snn.export.nir(tmp_path / "q.ptq", tmp_path / "q.nir")
    with pytest.raises(PTQ4SNNError, match=r"fires up to \d+ times in a step"):
        ptq4snn.export.onnx(tmp_path / "q.ptq", tmp_path / "q.onnx", qonnx=True)


@pytest.mark.parametrize("recipe", ["w4m4", "w4m2", "w8m8", "paper+nearest+w4m4"])
def test_the_levels_begin_at_the_floor(recipe: str, tmp_path: Path) -> None:
    """min_v_mem is the least level of the state; no bit is spent on what is below it."""
    net = seeded(1, Squeezed).eval()
    for m in net.modules():
        if isinstance(m, (nn.Linear, nn.Conv2d)):
            m.weight.data *= 3
    net.two[1].min_v_mem = nn.Parameter(torch.tensor(-0.5))
    net.last[2].min_v_mem = nn.Parameter(torch.tensor(-1.0))
    x = (torch.rand(24, STEPS, 2, 6, 6, generator=torch.Generator().manual_seed(4)) < 0.4).float()
    q = runs_everywhere(net, x, tmp_path, recipe, time_axis=1)
    for name, floor in (("two.1.membrane", -0.5), ("last.2.membrane", -1.0)):
        n = q.plan.neurons[name]
        lowest = [
            z - 2 ** (b - 1) - round(floor / s) for b, z, s in zip(n.bits, n.zero, n.scales, strict=True)
        ]
        assert min(lowest) >= 0  # a coarse state may not reach down to it
        assert recipe != "w8m8" or 0 in lowest
    with pytest.raises(RecipeError, match=r"'two.1.membrane' has a least state .* 16 bits or fewer"):
        ptq4snn.quantize(net, x, "w4m32")


class Odd(SingleSpike):  # type: ignore[misc]
    pass


REFUSED = {
    "another spike_fn": (lambda: sl.IAF(spike_fn=Odd), "spike_fn Odd is not sinabs's own.*MaxSpike"),
    "a division by 0": (lambda: sl.IAF(spike_threshold=0.0), "MultiSpike divides by a threshold of 0"),
    "a floor above rest": (lambda: sl.LIF(5.0, **ONCE, min_v_mem=0.5), "min_v_mem is above 0"),
    "adapts": (lambda: sl.ALIF(5.0, 5.0), "ALIF.*enters the comparison and not the sum.*use LIF,"),
    "recurrent, adapts": (lambda: sl.ALIFRecurrent(5.0, 5.0, nn.Linear(4, 4)), "use LIFRecurrent"),
    "a fixed batch": (
        lambda: sl.LIFSqueeze(batch_size=5, tau_mem=5.0, **ONCE), "batch_size is fixed to 5.*num_timesteps"
    ),
    "a bias on the way back": (
        lambda: sl.LIFRecurrent(5.0, nn.Linear(4, 4), **ONCE), "rec_connect has a bias.*bias=False"
    ),
    "another reset": (
        lambda: sl.IAF(**ONCE, reset_fn=MembraneReset(0.5)), "adds the reset_value at every step"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused_by_name(case: str) -> None:
    build, sentence = REFUSED[case]

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.bad = nn.Linear(4, 4), build()

        def forward(self, x: Tensor) -> Tensor:
            return self.bad(self.fc(x))

    with pytest.raises(UnsupportedNeuron, match=sentence) as why:
        ptq4snn.inspect(Net(), torch.rand(5, 3, 4))
    assert str(why.value).startswith("bad: ") and str(why.value).count(". ") == 0
