"""SpikingJelly's nodes: the shell against the node's own forward, spike for spike, in float64.

Runs with whichever generation is importable; test_spikingjelly_generations.py runs it with each.
"""

from __future__ import annotations

import copy
import importlib
import importlib.util
import logging
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ptq4snn.errors import UnsupportedNeuron, UnsupportedOperation
from ptq4snn.frameworks import adapter_of
from ptq4snn.frameworks.core import FloatCore
from ptq4snn.frameworks.spikingjelly import SpikingJellyAdapter

pytest.importorskip("spikingjelly", reason="SpikingJelly is not installed")

from spikingjelly.activation_based import functional, neuron, surrogate

FIRST_GENERATION = importlib.util.find_spec("spikingjelly.clock_driven") is not None
clock: Any = importlib.import_module("spikingjelly.clock_driven.neuron") if FIRST_GENERATION else None
only_first = pytest.mark.skipif(not FIRST_GENERATION, reason="clock_driven was removed in SpikingJelly 2")

ADAPTER = SpikingJellyAdapter()
T, B, N = 24, 3, 11
RESETS = [0.0, None, -0.4, 0.3]
NODES: dict[str, dict[str, Any]] = {
    "IFNode": {},
    "LIFNode": {"tau": 2.0},
    "LIFNode tau": {"tau": 3.3},
    "LIFNode no decay": {"tau": 1.7, "decay_input": False},
    "ParametricLIFNode": {"init_tau": 2.0},
    "ParametricLIFNode tau": {"init_tau": 2.9},
    "ParametricLIFNode no decay": {"init_tau": 1.6, "decay_input": False},
}


def currents(seed: int = 0, scale: float = 2.0, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return ((torch.randn(T, B, N, generator=generator, dtype=torch.float64) + 0.4) * scale).to(dtype)


def node(name: str, home: Any = neuron, **options: Any) -> Any:
    kind = name.split()[0]
    return getattr(home, kind)(**{**NODES.get(name, {}), **options}).double()


def shell_of(module: nn.Module) -> Any:
    return ADAPTER.shell(module, FloatCore(ADAPTER.spec(module, "lif")))


def assert_same(original: Any, seeds: tuple[int, ...] = (0, 1)) -> Any:
    """Two sequences without a reset between them, then one after a reset; returns the shell."""
    shell = shell_of(original)
    multi = ADAPTER.steps(original, currents()) is not None
    for seed in (*seeds, None):
        if seed is None:
            original.reset()
            shell.reset()
        x = currents(seed or 0)
        for part in [x] if multi else x:
            spikes, expected = shell(part), original(part)
            assert torch.equal(spikes, expected)
            torch.testing.assert_close(shell.v, original.v, rtol=0, atol=1e-9)
        if multi:
            assert 0.02 < expected.mean() < 0.9
    return shell


def test_it_is_the_generation_asked_for() -> None:
    folder = os.environ.get("PTQ4SNN_EXPECTED_SPIKINGJELLY")
    if folder is None:
        pytest.skip("no generation was asked for")
    assert Path(neuron.__file__).is_relative_to(Path(folder).resolve())


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("step_mode", ["s", "m"])
@pytest.mark.parametrize("v_threshold", [1.0, 0.7])
@pytest.mark.parametrize("v_reset", RESETS)
@pytest.mark.parametrize("name", NODES)
def test_activation_based(
    name: str, v_reset: float | None, v_threshold: float, step_mode: str, training: bool
) -> None:
    options = {"v_reset": v_reset, "v_threshold": v_threshold, "step_mode": step_mode}
    assert_same(node(name, **options).train(training))


@only_first
@pytest.mark.parametrize("multi", [False, True])
@pytest.mark.parametrize("v_reset", RESETS)
@pytest.mark.parametrize("name", NODES)
def test_clock_driven(name: str, v_reset: float | None, multi: bool) -> None:
    options = {**NODES[name], "v_reset": v_reset, "v_threshold": 0.9}
    kind = ("MultiStep" if multi else "") + name.split()[0]
    original = node(kind, clock, **options)
    assert ADAPTER.steps(original, currents()) == (T if multi else None)
    assert_same(original)


@pytest.mark.skipif(not hasattr(neuron, "SimpleIFNode"), reason="added in SpikingJelly 2")
@pytest.mark.parametrize("step_mode", ["s", "m"])
def test_simple_nodes(step_mode: str) -> None:
    for v_reset in (None, 0.0):
        assert_same(node("SimpleIFNode", v_reset=v_reset, step_mode=step_mode))
    for decay_input in (True, False):
        assert_same(node("SimpleLIFNode", tau=2.6, decay_input=decay_input, step_mode=step_mode))
    # their state starts at 0 whatever v_reset is
    assert_refused(node("SimpleIFNode", v_reset=-0.4), "SimpleIFNode", "starts at 0.0")


@pytest.mark.parametrize("name", ["IFNode", "LIFNode"])
def test_exactly_on_the_threshold(name: str) -> None:
    """Dyadic numbers, computed without rounding: a potential that equals the threshold fires."""
    for v_reset in (0.0, None, -0.5):
        original = node(name, v_reset=v_reset)
        x = (currents(2) * 2).round()[:8] / 2
        hits = 0
        shell = shell_of(original)
        for x_t in x:
            before = torch.full_like(x_t, original.v) if isinstance(original.v, float) else original.v
            rest = v_reset or 0.0
            h = before + x_t if name == "IFNode" else before + (x_t - (before - rest)) / 2
            hits += int((h == 1.0).sum())
            assert torch.equal(shell(x_t), original(x_t))
        assert hits > 0


def test_float32_model() -> None:
    for name in NODES:
        original = node(name, step_mode="m").float().eval()
        x = currents(dtype=torch.float32)
        spikes, expected = shell_of(original)(x), original(x)
        assert spikes.dtype == torch.float32
        assert (spikes != expected).double().mean() < 1e-3  # rounding alone


def test_spec_values() -> None:
    spec = ADAPTER.spec(neuron.LIFNode(tau=3.0, v_threshold=1.0, v_reset=-0.5), "lif")
    assert float(spec.leak) == 1.0 - 1.0 / 3.0 and float(spec.gain) == 1.0 / 3.0
    assert (float(spec.theta), spec.v_rest, spec.reset, spec.comparator) == (1.5, -0.5, "hard", ">=")
    soft = ADAPTER.spec(neuron.IFNode(v_threshold=0.7, v_reset=None), "if")
    assert (float(soft.leak), float(soft.gain), float(soft.rho), soft.reset) == (1.0, 1.0, 0.7, "soft")
    assert spec.leak.dtype == spec.theta.dtype == torch.float64


@pytest.mark.parametrize("step_mode", ["s", "m"])
def test_v_seq(step_mode: str) -> None:
    original = node("LIFNode", step_mode=step_mode, store_v_seq=True)
    shell = assert_same(original)
    if original.v_seq is None:  # the first generation in 's'
        assert shell.v_seq is None
    else:
        torch.testing.assert_close(shell.v_seq, original.v_seq, rtol=0, atol=1e-9)
    with pytest.raises(UnsupportedOperation, match="store_v_seq"):
        _ = shell_of(node("LIFNode", step_mode="m")).v_seq


@only_first
def test_v_seq_of_clock_driven_must_be_asked_for() -> None:
    original = node("MultiStepLIFNode", clock)
    shell = shell_of(original)
    shell.store_v_seq = True
    assert torch.equal(shell(currents()), original(currents()))
    torch.testing.assert_close(shell.v_seq, original.v_seq, rtol=0, atol=1e-9)


def test_state_can_be_read_and_set() -> None:
    original, shell = node("LIFNode", v_reset=0.2), shell_of(node("LIFNode", v_reset=0.2))
    assert shell.v == original.v == 0.2
    for value in (currents(3)[0], 0.5):
        original.v = value
        shell.v = value
        x = currents(4)[0]
        assert torch.equal(shell(x), original(x))
        torch.testing.assert_close(shell.v, original.v, rtol=0, atol=1e-9)
        ADAPTER.reset(original)
        shell.reset()
    assert shell.v == original.v == 0.2


def test_new_batch_size_without_reset() -> None:
    original = node("LIFNode", step_mode="m")
    shell = shell_of(original)
    for module in (original, shell):
        module(currents())
    x = currents(1)[:, :2]
    if FIRST_GENERATION:
        for module in (original, shell):
            with pytest.raises(RuntimeError):
                module(x)
    else:
        assert torch.equal(shell(x), original(x))


def test_a_node_built_for_cupy_runs_on_the_cpu() -> None:
    expected = node("LIFNode", step_mode="m")(currents())
    original = node("LIFNode", step_mode="m")
    original._backend = "cupy"  # what backend="cupy" leaves behind where CuPy is installed
    assert torch.equal(shell_of(original)(currents()), expected)
    if clock is not None:
        original = node("MultiStepLIFNode", clock, tau=2.0)
        original.backend = "cupy"
        assert torch.equal(shell_of(original)(currents()), expected)


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Warnings of the standard logger; SpikingJelly 2 writes to loguru, which is sent there."""
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


@pytest.fixture
def framework_log(caplog: pytest.LogCaptureFixture) -> Any:
    if FIRST_GENERATION:
        yield caplog
        return
    from loguru import logger

    logger.enable("spikingjelly")  # it is silent unless asked
    sink = logger.add(caplog.handler, format="{message}", level="WARNING")
    yield caplog
    logger.remove(sink)
    logger.disable("spikingjelly")


class Warner(nn.Module):
    """Not a MemoryModule: shows that the log is really read."""

    def reset(self) -> None: ...


def test_reset_net_reaches_shells_without_a_warning(framework_log: pytest.LogCaptureFixture) -> None:
    net = nn.Sequential(nn.Linear(N, N), node("LIFNode", step_mode="m"), nn.Linear(N, N), node("IFNode"))
    net = nn.Sequential(*(shell_of(m) if adapter_of(m) else m for m in net)).double()
    x = currents()
    first = net[1](x)
    assert not torch.equal(net[1](x), first)
    functional.reset_net(net)
    assert torch.equal(net[1](x), first)
    functional.detach_net(net)
    functional.set_step_mode(net, "m")
    assert [net[1].step_mode, net[3].step_mode] == ["m", "m"]
    assert net[3](x).shape == x.shape
    functional.set_step_mode(net, "s")
    assert net[1](x[0]).shape == x[0].shape
    assert logged(framework_log) == []
    functional.reset_net(nn.Sequential(Warner()))
    assert len(logged(framework_log)) == 1


@only_first
def test_clock_driven_shells_keep_their_step_mode(framework_log: pytest.LogCaptureFixture) -> None:
    clock_functional = importlib.import_module("spikingjelly.clock_driven.functional")
    net = nn.Sequential(shell_of(node("MultiStepIFNode", clock)))
    first = net(currents())
    functional.set_step_mode(net, "s")
    assert not torch.equal(net(currents()), first)
    clock_functional.reset_net(net)
    assert torch.equal(net(currents()), first)
    assert logged(framework_log) == []


def test_deepcopy_continues_where_the_shell_is() -> None:
    net = nn.Sequential(nn.Linear(N, N), shell_of(node("LIFNode", step_mode="m"))).double()
    net(currents())  # with gradients: the state hangs in a graph
    other = copy.deepcopy(net)
    assert torch.equal(net(currents(1)), other(currents(1)))
    shell: Any = other[1]
    assert shell._t == 2 * T
    shell.reset()
    assert isinstance(net[1].v, Tensor)


def test_state_follows_the_model() -> None:
    shell = shell_of(node("LIFNode"))
    shell(currents()[0])
    assert shell.float().v.dtype == torch.float32


def surrogates() -> list[nn.Module]:
    return [
        surrogate.Sigmoid(alpha=3.0),
        surrogate.ATan(),
        surrogate.SoftSign(),
        surrogate.PiecewiseQuadratic(),
    ]


@pytest.mark.parametrize("index", range(4))
def test_surrogate_has_the_models_gradient(index: int) -> None:
    function = surrogates()[index]
    spec = ADAPTER.spec(node("LIFNode", surrogate_function=function), "lif")
    u, w = (torch.linspace(-2, 2, 9, dtype=torch.float64, requires_grad=True) for _ in range(2))
    ours = spec.surrogate(u)
    ours.sum().backward()
    function(w).sum().backward()
    assert ours.isfinite().all() and u.grad is not None and u.grad.any()
    torch.testing.assert_close(u.grad, w.grad)


class Renamed(neuron.LIFNode):
    """Only a constructor of its own."""

    def __init__(self) -> None:
        super().__init__(tau=2.5, v_threshold=0.8, step_mode="m")

    def extra_repr(self) -> str:
        return "renamed"


class OwnForward(neuron.LIFNode):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.relu())


class OwnStep(neuron.IFNode):
    def single_step_forward(self, x: Tensor) -> Tensor:
        return super().single_step_forward(x * 2)


class OwnNeuron(neuron.BaseNode):
    v: Tensor

    def neuronal_charge(self, x: Tensor) -> None:
        self.v = self.v + x


def replaced_on_the_instance() -> nn.Module:
    lif = neuron.LIFNode()
    lif.forward = lambda x: x
    return lif


def changed(**attributes: Any) -> nn.Module:
    lif = neuron.LIFNode()
    for name, value in attributes.items():
        setattr(lif, name, value)
    return lif


def other_start() -> nn.Module:
    lif = neuron.LIFNode()
    lif.set_reset_value("v", 0.5)
    return lif


def started(start: float, kind: Any = neuron.IFNode, **options: Any) -> Any:
    node = kind(v_reset=None, **options)
    node.set_reset_value("v", start)
    node.reset()
    return node


@pytest.mark.parametrize("start", [0.5, 0.25, -0.75])
def test_an_if_node_that_starts_elsewhere(start: float) -> None:
    """It neither leaks nor resets to a value, so that where it starts is its rest."""
    node = started(start, v_threshold=1.25, step_mode="m").double()
    adapter = adapter_of(node)
    assert adapter is not None
    shell: Any = adapter.shell(node, FloatCore(adapter.spec(node, "n")))
    x = torch.randn(30, 4, 9, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 0.5 + 0.2
    for _ in range(2):
        node.reset()
        shell.reset()
        assert torch.equal(node(x), shell(x)) and 0.05 < float(node(x).mean()) < 0.95
        shell(x)
        torch.testing.assert_close(shell.v + 0 * x[0], node.v)


REFUSED: dict[str, tuple[Any, str]] = {
    "IFNode begins to fire": (lambda: started(1.0), "starts at 1, where it fires"),
    "LIFNode soft, start": (lambda: started(0.5, neuron.LIFNode), "starts at 0.5 and not at"),
    "OwnForward": (OwnForward, r"replaces forward\(\) of LIFNode"),
    "OwnStep": (OwnStep, r"replaces single_step_forward\(\) of IFNode"),
    "OwnNeuron": (OwnNeuron, "not one state"),
    "LIFNode on the instance": (replaced_on_the_instance, r"replaces forward\(\)"),
    "LIFNode start": (other_start, "starts at 0.5"),
    "LIFNode v_reset later": (lambda: changed(v_reset=-0.5), "starts at 0.0"),
    "LIFNode tensor": (lambda: changed(v_threshold=torch.ones(3)), "v_threshold is not one number"),
    "LIFNode analog": (
        lambda: neuron.LIFNode(surrogate_function=surrogate.Sigmoid(spiking=False)),
        "surrogate_function",
    ),
    "IFNode at zero": (
        lambda: neuron.IFNode(surrogate_function=lambda u: (u > 0).to(u)),
        "surrogate_function",
    ),
}
ANY = "(not one state|it replaces)"
OTHERS: dict[str, dict[str, Any]] = {
    "QIFNode": {},
    "EIFNode": {},
    "IzhikevichNode": {},
    "KLIFNode": {},
    "LIAFNode": {"act": torch.relu, "threshold_related": False},
    "GatedLIFNode": {"T": 4},
    "PSN": {"T": 4},
    "MaskedPSN": {"k": 2, "T": 4},
    "SlidingPSN": {"k": 2},
    "ILIFNode": {},
    "CUBALIFNode": {},
    "ComplementaryLIFNode": {},
    "OTTTLIFNode": {},
    "SLTTLIFNode": {},
    "TernaryIFNode": {},
    "HalfThresholdIFNode": {},
    "NonSpikingLIFNode": {},
    "DSRIFNode": {},
    "RAFNode": {},
}


def assert_refused(module: nn.Module, name: str, why: str) -> None:
    assert isinstance(adapter_of(module), SpikingJellyAdapter)
    with pytest.raises(UnsupportedNeuron, match=rf"^net\.lif: {name} .*because .*{why}.*; .+\.$"):
        ADAPTER.spec(module, "net.lif")


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused_with_its_reason(name: str) -> None:
    build, why = REFUSED[name]
    assert_refused(build(), name.split()[0], why)


@pytest.mark.parametrize("name", OTHERS)
def test_is_refused_by_name(name: str) -> None:
    if not hasattr(neuron, name):
        pytest.skip(f"this generation has no {name}")
    if FIRST_GENERATION and name == "LIAFNode":
        pytest.skip("the constructor of 0.0.0.0.14's LIAFNode fails")
    assert_refused(getattr(neuron, name)(**OTHERS[name]), name, ANY)


@only_first
def test_clock_driven_is_refused_by_name() -> None:
    assert_refused(clock.GeneralNode(a=0.5, b=1.0), "GeneralNode", ANY)
    assert_refused(clock.MultiStepEIFNode(), "MultiStepEIFNode", ANY)
    lif = clock.MultiStepLIFNode()
    lif.v_threshold = 2.0  # a memory there: reset() puts the old value back
    assert_refused(lif, "MultiStepLIFNode", r"reset\(\) undoes it")
    lif = clock.MultiStepLIFNode()
    lif.backend = "lava"
    assert_refused(lif, "MultiStepLIFNode", "lava")


def test_recurrent_cells_are_refused() -> None:
    rnn = importlib.import_module("spikingjelly.activation_based.rnn")
    assert_refused(rnn.SpikingLSTMCell(4, 4), "SpikingLSTMCell", ANY)


def test_harmless_subclass_is_accepted() -> None:
    assert_same(Renamed().double())


def test_only_neurons_are_recognised() -> None:
    layer = importlib.import_module("spikingjelly.activation_based.layer")
    for module in (layer.Conv2d(1, 1, 1), layer.SeqToANNContainer(nn.ReLU()), surrogate.ATan(), nn.ReLU()):
        assert adapter_of(module) is None
    lif = neuron.LIFNode()
    assert isinstance(adapter_of(lif), SpikingJellyAdapter)
    assert adapter_of(shell_of(lif)) is None
    assert ADAPTER.steps(lif, currents()) is None


def load_models() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sj_models", Path(__file__).with_name("sj_models.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["conv", "folded", "looped", "clock_driven"])
@torch.no_grad()
def test_whole_models(name: str) -> None:
    models = load_models()
    if name not in models.all_nets():
        pytest.skip("clock_driven was removed in SpikingJelly 2")
    net = models.all_nets()[name]().double()
    x = models.inputs().double()
    paths = [p for p, m in net.named_modules() if adapter_of(m) is not None]
    rates: dict[str, list[float]] = {path: [] for path in paths}
    hooks = [
        net.get_submodule(p).register_forward_hook(lambda m, i, out, p=p: rates[p].append(float(out.mean())))
        for p in paths
    ]
    expected = net(x)
    for hook in hooks:
        hook.remove()
    assert all(0.05 <= sum(r) / len(r) <= 0.40 for r in rates.values()), rates
    # a copy: SpikingJelly 2 remembers which modules of a net it resets, and would still reset the old ones
    net = copy.deepcopy(net)
    for path in paths:
        net.set_submodule(path, shell_of(net.get_submodule(path)))
    for _ in range(2):  # a second run must start afresh
        torch.testing.assert_close(net(x), expected, rtol=0, atol=1e-9)
