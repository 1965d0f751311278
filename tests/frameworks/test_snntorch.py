"""snnTorch's Leaky: the shell against Leaky's own forward, spike for spike, in float64."""

from __future__ import annotations

import copy
import gc
import importlib.util
import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ptq4snn.errors import UnsupportedNeuron
from ptq4snn.frameworks import adapter_of
from ptq4snn.frameworks.adapter import NeuronSpec
from ptq4snn.frameworks.core import FloatCore, NeuronCore
from ptq4snn.frameworks.snntorch import SKIPS, SnnTorchAdapter

snn: Any = pytest.importorskip("snntorch", reason="snnTorch is not installed")
Leaky: Any = snn.Leaky

ADAPTER = SnnTorchAdapter()
T, B, N = 25, 3, 13


@pytest.fixture(autouse=True)
def own_instances() -> Iterator[None]:
    """snnTorch resets every neuron it ever made; one made by another test must not get in the way."""
    before = list(snn.SpikingNeuron.instances)
    yield
    snn.SpikingNeuron.instances[:] = before


def heaviside(u: Tensor) -> Tensor:
    """snnTorch's surrogates return float32 spikes whatever the model's type; this one keeps float64."""
    return (u > 0).to(u.dtype)


def currents(seed: int = 0, scale: float = 1.0, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return ((torch.randn(T, B, N, generator=generator, dtype=torch.float64) + 0.4) * scale).to(dtype)


def between(low: float, high: float) -> Tensor:
    return torch.rand(N, generator=torch.Generator().manual_seed(9)) * (high - low) + low


def shell_of(leaky: nn.Module) -> Any:
    return ADAPTER.shell(leaky, FloatCore(ADAPTER.spec(leaky, "lif")))


def unroll(leaky: Any, x: Tensor, pass_mem: bool = True) -> tuple[Tensor, Tensor]:
    """Spikes and membranes [T, B, N] of a time loop as users write it."""
    mem = leaky.reset_mem() if pass_mem else None
    spikes, membranes = [], []
    for x_t in x:
        out = leaky(x_t, mem) if pass_mem else leaky(x_t)
        spk, current = out if isinstance(out, tuple) else (out, leaky.mem)
        mem = current if pass_mem else None
        spikes.append(spk.to(x.dtype))
        membranes.append(current)
    return torch.stack(spikes), torch.stack(membranes)


def assert_same(original: Any, x: Tensor, pass_mem: bool = True, tolerance: float = 1e-9) -> Tensor:
    shell = shell_of(original)
    expected_spikes, expected_mem = unroll(original, x, pass_mem)
    spikes, mem = unroll(shell, x, pass_mem)
    assert torch.equal(spikes, expected_spikes)
    torch.testing.assert_close(mem, expected_mem, rtol=0, atol=tolerance)
    return spikes


BETAS: dict[str, dict[str, Any]] = {
    "scalar": {"beta": 0.9},
    "one": {"beta": 1.0},
    "learned": {"beta": 0.35, "learn_beta": True},
    "per neuron": {"beta": between(0.3, 0.99)},
    "learned per neuron": {"beta": between(0.3, 0.99), "learn_beta": True},
    "clamped": {"beta": between(0.8, 1.3)},
}
THRESHOLDS: dict[str, dict[str, Any]] = {
    "default": {},
    "scalar": {"threshold": 0.7},
    "learned": {"threshold": 1.4, "learn_threshold": True},
    "per neuron": {"threshold": between(0.4, 1.6)},
}


@pytest.mark.filterwarnings("ignore:A Leaky with reset_mechanism='subtract'")
@pytest.mark.parametrize("reset_delay", [True, False])
@pytest.mark.parametrize("mechanism", ["subtract", "zero", "none"])
@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("threshold", THRESHOLDS)
def test_explicit_state(mechanism: str, reset_delay: bool, beta: str, threshold: str) -> None:
    options = {**BETAS[beta], **THRESHOLDS[threshold]}
    leaky = snn.Leaky(**options, reset_mechanism=mechanism, reset_delay=reset_delay).double()
    for seed, scale in enumerate((0.6, 1.0, 2.5)):
        spikes = assert_same(leaky, currents(seed, scale))
        assert spikes.any()


@pytest.mark.filterwarnings("ignore:A Leaky with reset_mechanism='subtract'")
@pytest.mark.parametrize("reset_delay", [True, False])
@pytest.mark.parametrize("mechanism", ["subtract", "zero", "none"])
@pytest.mark.parametrize("output", [True, False])
def test_hidden_state(mechanism: str, reset_delay: bool, output: bool) -> None:
    leaky = snn.Leaky(
        beta=0.8, reset_mechanism=mechanism, reset_delay=reset_delay, init_hidden=True, output=output
    ).double()
    shell = shell_of(leaky)
    assert isinstance(shell(currents()[0]), tuple) is output
    shell.reset()
    assert_same(leaky, currents(1), pass_mem=False)
    with pytest.raises(TypeError, match="init_hidden"):
        shell(currents()[0], torch.zeros(B, N))


def test_state_stays_inside_when_none_is_passed() -> None:
    assert_same(snn.Leaky(beta=0.8).double(), currents(3), pass_mem=False)


@pytest.mark.parametrize("mechanism", ["subtract", "zero", "none"])
def test_exactly_on_the_threshold(mechanism: str) -> None:
    """Dyadic numbers, computed without rounding: a membrane that equals the threshold does not fire."""
    leaky = snn.Leaky(beta=0.5, reset_mechanism=mechanism).double()
    x = (currents(2) * 2).round() / 2
    _, mem = unroll(leaky, x)
    assert (mem == 1.0).any()
    assert_same(leaky, x)


def test_float32_model() -> None:
    for mechanism in ("subtract", "zero", "none"):
        leaky = snn.Leaky(beta=0.9, reset_mechanism=mechanism)
        x = currents(dtype=torch.float32)
        spikes, mem = unroll(shell_of(leaky), x)
        expected_spikes, expected_mem = unroll(leaky, x)
        assert spikes.dtype == mem.dtype == torch.float32
        assert (spikes != expected_spikes).double().mean() < 1e-3  # rounding alone
        assert ((mem - expected_mem).abs() < 1e-4).double().mean() > 0.99


def test_convolutional_state_with_a_beta_per_channel() -> None:
    beta = torch.rand(1, 4, 1, 1, generator=torch.Generator().manual_seed(1))
    leaky = snn.Leaky(beta=beta).double()
    assert ADAPTER.spec(leaky, "lif").leak.shape == (4, 1, 1)
    generator = torch.Generator().manual_seed(2)
    assert_same(leaky, torch.randn(T, B, 4, 5, 5, generator=generator, dtype=torch.float64))


def test_skipped_spikes_of_undelayed_subtraction_are_told() -> None:
    leaky = snn.Leaky(beta=0.9, reset_delay=False).double()
    x = torch.tensor([[2.5]] + [[0.0]] * 5, dtype=torch.float64)
    with pytest.warns(UserWarning, match="skipped a spike"):
        spikes, mem = unroll(shell_of(leaky), x)
    expected_spikes, expected_mem = unroll(leaky, x)
    assert torch.equal(spikes, expected_spikes)
    torch.testing.assert_close(mem, expected_mem)
    assert spikes.flatten().tolist()[:2] == [1.0, 0.0], "the canonical neuron would fire at 0.9 * 1.5 > 1"
    assert "reset_delay=True" in SKIPS


def test_a_membrane_from_elsewhere_is_taken_in() -> None:
    x = currents(4)
    start = currents(5)[0] * 2
    for options in (
        {"beta": 0.8},
        {"beta": 0.8, "reset_mechanism": "zero"},
        {"beta": 0.8, "reset_mechanism": "none", "reset_delay": False},
    ):
        leaky = snn.Leaky(**options).double()
        shell = shell_of(leaky)
        mem, expected_mem = start.clone(), start.clone()
        for t, x_t in enumerate(x):
            spk, mem = shell(x_t, mem)
            expected, expected_mem = leaky(x_t, expected_mem)
            assert torch.equal(spk, expected.double())
            torch.testing.assert_close(mem, expected_mem, rtol=0, atol=1e-9)
            if t % 3 == 0:
                mem = mem.detach().clone()
            if t % 5 == 0:  # a user who writes into the membrane
                mem.mul_(0.5)
                expected_mem = expected_mem * 0.5


@pytest.mark.parametrize("start", [torch.zeros(()), torch.zeros(0), torch.zeros(1), torch.ones(1), None])
def test_any_other_shape_starts_from_zeros(start: Tensor | None) -> None:
    leaky = snn.Leaky(beta=0.9).double()
    shell = shell_of(leaky)
    for x_t in currents(6)[:2]:
        spk, mem = shell(x_t, start)
        expected, expected_mem = leaky(x_t, start)
        assert torch.equal(spk, expected.double())
        torch.testing.assert_close(mem, expected_mem, rtol=0, atol=1e-9)
    shell(currents(6)[0][:1])  # another batch size
    assert shell.mem.shape == (1, N)


class IntegerCore(NeuronCore):
    """H and V as integers of different units, as a quantized core holds them; remembers the steps it ran."""

    unit, state_unit = 2.0**-6, 2.0**-3

    def __init__(self, spec: NeuronSpec) -> None:
        super().__init__()
        self.real = FloatCore(spec)
        self.steps: list[int] = []

    def charge(self, x: Tensor, v: Tensor | None) -> Tensor:
        return (self.real.charge(x, None if v is None else v * self.state_unit) / self.unit).round()

    def fire(self, h: Tensor) -> Tensor:
        return self.real.fire(h * self.unit)

    def settle(self, h: Tensor, s: Tensor, t: int) -> Tensor:
        return (self.real.settle(h * self.unit, s, t) / self.state_unit).round().clamp(-8, 7)

    def potential(self, h: Tensor) -> Tensor:
        return h * self.unit

    def from_potential(self, mem: Tensor) -> Tensor:
        return (mem / self.unit).round()

    def state_value(self, v: Tensor) -> Tensor:
        return v * self.state_unit

    def from_state_value(self, mem: Tensor) -> Tensor:
        return (mem / self.state_unit).round()

    def step(self, x: Tensor, v: Tensor | None, t: int) -> tuple[Tensor, Tensor, Tensor]:
        self.steps.append(t)
        return super().step(x, v, t)


@pytest.mark.parametrize("reset_delay", [True, False])
@pytest.mark.parametrize("mechanism", ["subtract", "zero", "none"])
def test_integer_core_needs_no_more_than_the_membrane(mechanism: str, reset_delay: bool) -> None:
    x = currents(7)
    leaky = snn.Leaky(beta=0.75, reset_mechanism=mechanism, reset_delay=reset_delay).double()
    core = IntegerCore(ADAPTER.spec(leaky, "lif"))
    expected, _ = core.run(x, None)
    core.steps.clear()
    shell: Any = ADAPTER.shell(leaky, core)
    spikes, _ = unroll(shell, x)
    assert torch.equal(spikes, expected)
    assert core.steps == list(range(T))
    mem, spikes_of_copies = shell.reset_mem(), []
    for x_t in x:
        spk, mem = shell(x_t, mem.clone())  # never the tensor that was returned
        spikes_of_copies.append(spk)
    assert torch.equal(torch.stack(spikes_of_copies), expected)


def test_utils_reset_reaches_shells() -> None:
    from snntorch import utils

    net = nn.Sequential(nn.Linear(N, N), snn.Leaky(beta=0.9, init_hidden=True)).double()
    shell = net[1] = shell_of(net[1])
    x = currents(8)
    first = torch.stack([net(x_t) for x_t in x])
    assert not torch.equal(torch.stack([net(x_t) for x_t in x]), first)
    for model in (net, copy.deepcopy(net)):
        utils.reset(model)
        assert torch.equal(torch.stack([model(x_t) for x_t in x]), first)
    snn.Leaky.reset_hidden()
    assert torch.equal(torch.stack([net(x_t) for x_t in x]), first)
    shell.reset()
    assert torch.equal(torch.stack([net(x_t) for x_t in x]), first)


def test_snntorchs_list_of_neurons_keeps_no_shell_alive() -> None:
    leaky = snn.Leaky(beta=0.9, init_hidden=True)
    kept = shell_of(leaky)
    dropped = [weakref.ref(shell_of(leaky)) for _ in range(20)]
    assert all(ref() is None for ref in dropped)
    snn.Leaky.reset_hidden()  # the list may still name the last of them
    snn.Leaky.detach_hidden()
    gc.collect()
    before = len(snn.SpikingNeuron.instances)
    copies = [copy.deepcopy(kept) for _ in range(3)]
    assert len(snn.SpikingNeuron.instances) <= before + len(copies)


def test_deepcopy_continues_where_the_shell_is() -> None:
    x = currents(2)
    net = nn.Sequential(nn.Linear(N, N), snn.Leaky(beta=0.9, init_hidden=True)).double()
    net[1] = shell_of(net[1])
    for x_t in x[:10]:
        net(x_t)  # with gradients: the state hangs in a graph
    other = copy.deepcopy(net)
    for x_t in x[10:]:
        assert torch.equal(net(x_t), other(x_t))
    assert other[1]._t == net[1]._t == T


def test_inference_mode() -> None:
    leaky = snn.Leaky(beta=0.9).double()
    with torch.inference_mode():
        assert_same(leaky, currents(1))


def test_adapter_reset_and_steps() -> None:
    leaky = snn.Leaky(beta=0.9, init_hidden=True)
    assert ADAPTER.steps(leaky, currents()) is None
    leaky(currents(dtype=torch.float32)[0])
    ADAPTER.reset(leaky)
    assert not leaky.mem.any()


def test_surrogate_has_the_models_gradient() -> None:
    from snntorch import surrogate

    grids = [torch.linspace(-2, 2, 9, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    for spike_grad in (surrogate.atan(alpha=3.0), surrogate.fast_sigmoid(slope=10)):
        leaky = snn.Leaky(beta=0.9, spike_grad=spike_grad)
        ours = ADAPTER.spec(leaky, "lif").surrogate(grids[0])
        assert ours.dtype == torch.float64
        (grad,) = torch.autograd.grad(ours.sum(), grids[0])
        (expected,) = torch.autograd.grad(spike_grad(grids[1]).sum(), grids[1])
        torch.testing.assert_close(grad, expected)
    disabled = ADAPTER.spec(snn.Leaky(beta=0.9, surrogate_disable=True), "lif").surrogate(grids[0])
    (grad,) = torch.autograd.grad(disabled.sum(), grids[0])
    (expected,) = torch.autograd.grad(surrogate.atan()(grids[1]).sum(), grids[1])
    torch.testing.assert_close(grad, expected)


def test_spec_values() -> None:
    spec = ADAPTER.spec(snn.Leaky(beta=0.5, threshold=2.0), "lif")
    assert (float(spec.leak), float(spec.gain), float(spec.theta), float(spec.rho)) == (0.5, 1.0, 2.0, 4.0)
    assert (spec.comparator, spec.reset, spec.v_rest) == (">", "soft", 0.0)
    assert float(ADAPTER.spec(snn.Leaky(beta=-0.5, reset_mechanism="zero"), "lif").leak) == 0.0
    assert float(ADAPTER.spec(snn.Leaky(beta=0.5, reset_delay=False), "lif").rho) == 1.0


class Renamed(Leaky):
    """Only a constructor of its own."""

    def __init__(self) -> None:
        super().__init__(beta=0.6)


class OtherDynamics(Leaky):
    def _base_state_function(self, input_: Tensor) -> Tensor:
        return self.beta * self.mem + input_ * 2


class OwnForward(Leaky):
    def forward(self, input_: Tensor, mem: Tensor | None = None) -> Any:
        return super().forward(input_.relu(), mem)


def replaced_on_the_instance() -> nn.Module:
    leaky = snn.Leaky(beta=0.9)
    leaky.fire = lambda mem: mem
    return leaky


def mechanism_changed_later() -> nn.Module:
    leaky = snn.Leaky(beta=0.9)
    leaky.reset_mechanism = "zero"
    return leaky


def quiet(build: Any) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # snnTorch warns about inhibition
        return build()


REFUSED = {
    "Synaptic": (lambda: snn.Synaptic(alpha=0.9, beta=0.8), "not Leaky"),
    "Alpha": (lambda: snn.Alpha(alpha=0.9, beta=0.8), "not Leaky: .*opposite signs.*use Synaptic"),
    "Lapicque": (lambda: snn.Lapicque(beta=0.9), "not Leaky"),
    "RLeaky": (lambda: snn.RLeaky(beta=0.9, linear_features=N), "not Leaky"),
    "RSynaptic": (lambda: snn.RSynaptic(alpha=0.9, beta=0.9, linear_features=N), "not Leaky"),
    "LeakyParallel": (lambda: snn.LeakyParallel(N, N, beta=0.9), "not Leaky"),
    "SLSTM": (lambda: snn.SLSTM(N, N), "not Leaky: its gates.*use RSynaptic"),
    "SConv2dLSTM": (lambda: snn.SConv2dLSTM(1, 2, 3), "not Leaky: its gates.*use RSynaptic"),
    "StateLeaky": (lambda: snn.StateLeaky(beta=0.9, channels=N), "not Leaky"),
    "DeltaLeaky": (lambda: snn.DeltaLeaky(beta=0.9), r"replaces \w+\(\)"),
    "OtherDynamics": (lambda: OtherDynamics(0.9), r"replaces _base_state_function\(\)"),
    "OwnForward": (lambda: OwnForward(0.9), r"replaces forward\(\)"),
    "Leaky on the instance": (replaced_on_the_instance, r"replaces fire\(\)"),
    "Leaky reset changed": (mechanism_changed_later, "reset_mechanism"),
    "Leaky inhibition": (lambda: snn.Leaky(0.9, inhibition=True), "inhibition"),
    "Leaky state_quant": (lambda: snn.Leaky(0.9, state_quant=torch.round), "state_quant"),
    "Leaky graded": (lambda: snn.Leaky(0.9, graded_spikes_factor=2.0), "graded_spikes_factor"),
    "Leaky negative threshold": (lambda: snn.Leaky(0.9, threshold=-0.5), "negative"),
    "Leaky beta 0": (lambda: snn.Leaky(0.0), "beta = 0"),
    "Leaky analog": (lambda: snn.Leaky(0.9, spike_grad=torch.sigmoid), "spike_grad"),
    "Leaky at zero": (lambda: snn.Leaky(0.9, spike_grad=lambda u: (u >= 0).float()), "spike_grad"),
    "Leaky stochastic": (lambda: snn.Leaky(0.9, spike_grad=lambda u: torch.rand_like(u)), "spike_grad"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused_by_name(name: str) -> None:
    build, why = REFUSED[name]
    module = quiet(build)
    assert isinstance(adapter_of(module), SnnTorchAdapter)
    state = torch.random.get_rng_state()
    with pytest.raises(UnsupportedNeuron, match=rf"^net\.lif: {name.split()[0]} .*{why}.*; .+\.$"):
        ADAPTER.spec(module, "net.lif")
    assert torch.equal(torch.random.get_rng_state(), state)


def test_harmless_subclass_is_accepted() -> None:
    assert_same(Renamed().double(), currents())
    assert_same(snn.Leaky(beta=0.9, learn_graded_spikes_factor=True).double(), currents())


def test_only_neurons_are_recognised() -> None:
    assert isinstance(adapter_of(snn.Leaky(beta=0.9)), SnnTorchAdapter)
    assert adapter_of(shell_of(snn.Leaky(beta=0.9))) is None
    rleaky = snn.RLeaky(beta=0.9, all_to_all=False, V=1.0)
    assert [type(m).__name__ for m in rleaky.modules() if adapter_of(m) is not None] == ["RLeaky"]
    assert adapter_of(nn.Linear(2, 2)) is None


def load_models() -> ModuleType:
    spec = importlib.util.spec_from_file_location("snn_models", Path(__file__).with_name("snn_models.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["fc", "conv", "recording", "readout"])
@torch.no_grad()
def test_whole_models(name: str) -> None:
    models = load_models()
    net = models.ALL[name]().double()
    x = models.inputs().double()
    paths = [p for p, m in net.named_modules() if adapter_of(m) is not None]
    for path in paths:
        net.get_submodule(path).spike_grad = heaviside
    rates: dict[str, list[float]] = {path: [] for path in paths}
    hooks = [
        net.get_submodule(p).register_forward_hook(
            lambda m, i, out, p=p: rates[p].append(float((out[0] if isinstance(out, tuple) else out).mean()))
        )
        for p in paths
    ]
    expected = net(x)
    for hook in hooks:
        hook.remove()
    assert all(0.05 <= sum(r) / len(r) <= 0.40 for r in rates.values()), rates
    for path in paths:
        net.set_submodule(path, shell_of(net.get_submodule(path)))
    for _ in range(2):  # a second run must start afresh
        torch.testing.assert_close(net(x), expected, rtol=0, atol=1e-9)
