"""Norse 1.1.0: every neuron spike for spike against its own forward, and whole networks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from oracles.frameworks import currents, framework, replaced, runs_everywhere, seeded
from torch import Tensor, nn

import ptq4snn
from ptq4snn.errors import UnsupportedNeuron

framework("norse", "nir", "nirtorch")
import norse.torch as norse  # noqa: E402
from norse.torch.functional.iaf import IAFParameters  # noqa: E402
from norse.torch.functional.leaky_integrator_box import LIBoxParameters  # noqa: E402
from norse.torch.functional.lif_box import LIFBoxParameters  # noqa: E402
from norse.torch.functional.reset import reset_subtract  # noqa: E402

STEPS = 9


def number(generator: torch.Generator, low: float, high: float) -> Tensor:
    return low + (high - low) * torch.rand((), generator=generator)


def parameters(seed: int) -> dict[str, Any]:
    """Random time constants (dt is 1 ms), threshold and resting potential."""
    g = torch.Generator().manual_seed(seed)
    rest = number(g, -0.5, 0.5) if seed % 2 else torch.tensor(0.0)
    return {
        "tau_syn_inv": number(g, 50, 900), "tau_mem_inv": number(g, 50, 900), "v_leak": rest,
        "v_reset": rest.clone(), "v_th": rest + number(g, 0.1, 1.0),
    }  # fmt: skip


def only(p: dict[str, Any], *names: str) -> dict[str, Any]:
    return {n: p[n] for n in names}


def neuron(kind: str, seed: int) -> nn.Module:
    p = parameters(seed)
    lif = norse.LIFParameters(**p)
    li = norse.LIParameters(**only(p, "tau_syn_inv", "tau_mem_inv", "v_leak"))
    box = only(p, "tau_mem_inv", "v_leak", "v_th", "v_reset")
    made = {
        "LIF": lambda: norse.LIF(lif),
        "LIFCell": lambda: norse.LIFCell(lif),
        "LIFRecurrent": lambda: norse.LIFRecurrent(7, 7, lif),
        "LIFRecurrent autapses": lambda: norse.LIFRecurrent(7, 7, lif, autapses=True),
        "LIFRecurrentCell": lambda: norse.LIFRecurrentCell(7, 7, lif),
        "LIFBoxCell": lambda: norse.LIFBoxCell(LIFBoxParameters(**box)),
        "LIFBoxCell subtract": lambda: norse.LIFBoxCell(LIFBoxParameters(**box, reset_method=reset_subtract)),
        "IAF": lambda: norse.IAF(IAFParameters(**only(p, "v_th", "v_reset"))),
        "IAFCell": lambda: norse.IAFCell(IAFParameters(**only(p, "v_th", "v_reset"))),
        "LI": lambda: norse.LI(li),
        "LICell": lambda: norse.LICell(li),
        "LILinearCell": lambda: norse.LILinearCell(7, 7, li),
        "LIBoxCell": lambda: norse.LIBoxCell(LIBoxParameters(**only(p, "tau_mem_inv", "v_leak"))),
    }
    return seeded(seed, made[kind]).double()


KINDS = (
    "LIF", "LIFCell", "LIFRecurrent", "LIFRecurrent autapses", "LIFRecurrentCell", "LIFBoxCell",
    "LIFBoxCell subtract", "IAF", "IAFCell", "LI", "LICell", "LILinearCell", "LIBoxCell",
)  # fmt: skip


def ran(module: nn.Module, x: Tensor, kind: str) -> tuple[Tensor, Any]:
    """The outputs [T, B, N] and the last state."""
    if "Cell" not in kind:
        return module(x)
    outputs, state = [], None
    for x_t in x:
        y, state = module(x_t, state)
        outputs.append(y)
    return torch.stack(outputs), state


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_a_neuron_is_its_canonical_form(kind: str, seed: int) -> None:
    """Outputs and states, over two pieces of a sequence: the second goes on from the state of the first."""
    module, x = neuron(kind, seed), currents((60, 5, 7), seed, 1.5)
    made = replaced(module)
    with torch.no_grad():
        expected, state = ran(module, x, kind)
        y, mine = ran(made, x, kind)
        if kind.startswith("LI") and not kind.startswith("LIF"):
            torch.testing.assert_close(y, expected)
        else:
            assert torch.equal(y, expected)
            assert 0.02 < float(y.mean()) < 0.98
        assert mine._fields == state._fields
        for name in state._fields:
            torch.testing.assert_close(getattr(mine, name), getattr(state, name).double())
        # a state of other hands
        one_step = x[:1] if "Cell" not in kind else x[0]
        taken = type(state)(*(f.clone() for f in state))
        torch.testing.assert_close(made(one_step, taken)[0], module(one_step, state)[0])
        assert torch.equal(made(one_step)[0], replaced(module)(one_step)[0])  # without one it begins again


def test_a_state_of_one_number() -> None:
    module, x = norse.LIFCell().double(), currents((3, 4), 0, 4.0)
    state = norse.LIFFeedForwardState(v=torch.tensor(0.95), i=torch.tensor(2.0))
    expected, (v, i) = module(x, state)
    y, found = replaced(module)(x, state)
    assert torch.equal(y, expected) and bool(y.any())
    torch.testing.assert_close(found.v, v.detach())
    torch.testing.assert_close(found.i, i.detach())


def test_recorded_states() -> None:
    module = norse.LIF(record_states=True)
    x = currents((6, 3, 4), 0, 4.0)
    _, expected = module(x)
    _, found = replaced(module)(x)
    torch.testing.assert_close(found.v, expected.v.detach())
    torch.testing.assert_close(found.i, expected.i.detach())


PARAMETERS = {"tau_mem_inv": torch.tensor(300.0), "v_th": torch.tensor(0.3)}


def lif() -> nn.Module:
    return norse.LIF(norse.LIFParameters(**PARAMETERS, tau_syn_inv=torch.tensor(400.0)))


class Voltages(nn.Module):
    """Lifted convolutions and pools, a residual, a readout without a threshold: voltages of the last step."""

    def __init__(self) -> None:
        super().__init__()
        self.first = norse.SequentialState(
            norse.Lift(nn.Conv2d(2, 6, 3, padding=1)), lif(), norse.Lift(nn.AvgPool2d(2)),
            norse.Lift(nn.Conv2d(6, 6, 3, padding=1)), lif(),
        )  # fmt: skip
        self.second, self.again = norse.Lift(nn.Conv2d(6, 6, 3, padding=1)), lif()
        self.last = norse.SequentialState(norse.Lift(nn.Linear(6 * 9, 5)), norse.LI())

    def forward(self, x: Tensor) -> Tensor:  # [T, B, 2, 6, 6]
        y, _ = self.first(x)
        z, _ = self.again(self.second(y))
        out, _ = self.last((y + z).flatten(2))
        return out[-1]


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        p = norse.LIFParameters(**PARAMETERS)
        self.net = norse.SequentialState(
            norse.LIFRecurrent(12, 20, p), norse.LIFRecurrent(20, 16, p, autapses=True),
            nn.Linear(16, 5), norse.LIF(p),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)[0].sum(0)


class Cells(nn.Module):
    """A loop by hand over cells, from a still image to the largest voltage."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.one = nn.Linear(12, 20), norse.LIFBoxCell(norse.LIFBoxParameters(**PARAMETERS))
        self.b, self.two = nn.Linear(20, 16), norse.IAFCell()
        self.three = norse.LILinearCell(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        s1 = s2 = s3 = None
        for _ in range(STEPS):
            z, s1 = self.one(self.a(x), s1)
            z, s2 = self.two(self.b(z), s2)
            v, s3 = self.three(z, s3)
        return v


class Fed(nn.Module):
    """What the last neuron fires is added to the input one step later."""

    def __init__(self) -> None:
        super().__init__()
        p = norse.LIFParameters(**PARAMETERS)
        self.net = norse.RecurrentSequential(
            nn.Linear(12, 12), norse.LIFCell(p), nn.Linear(12, 12), norse.LIFCell(p)
        )

    def forward(self, x: Tensor) -> Tensor:
        state, out = None, []
        for x_t in x:
            y, state = self.net(x_t, state)
            out.append(y)
        return torch.stack(out).sum(0)


def made(kind: type[nn.Module]) -> tuple[nn.Module, Tensor, dict[str, Any]]:
    net = seeded(1, kind).eval()
    for m in net.modules():
        if isinstance(m, (nn.Linear, nn.Conv2d)):
            m.weight.data *= 3
    g = torch.Generator().manual_seed(4)
    if kind is Cells:
        return net, torch.rand(24, 12, generator=g) * 2, {"time_axis": None}
    shape = (STEPS, 24, 2, 6, 6) if kind is Voltages else (STEPS, 24, 12)
    return net, (torch.rand(shape, generator=g) < 0.4).float(), {"batch_axis": 1}


@pytest.mark.parametrize("kind", [Voltages, Recurrent, Cells, Fed])
@pytest.mark.parametrize("recipe", ["w4m4", "w8m8"])
def test_whole_networks(kind: type[nn.Module], recipe: str, tmp_path: Path) -> None:
    net, x, options = made(kind)
    q = runs_everywhere(net, x, tmp_path, recipe, **options)
    if kind in (Voltages, Cells):
        readout = next(n for n in q.plan.neurons.values() if n.readout)
        assert set(readout.bits) == {16} and readout.reset == "none"
    if recipe == "w8m8" and kind is not Fed:
        expected, found = net(x).detach(), q(x)
        assert float((expected - found).abs().mean()) < 0.1 * float(expected.abs().max())


def test_a_model_that_returns_its_states() -> None:
    """It runs as it is; where the states are left out there is an integer program too."""
    net, x, _ = made(Recurrent)
    q = ptq4snn.quantize(net.net, x, "w4m4", batch_axis=1)
    spikes, states = q(x)
    assert spikes.shape == (STEPS, 24, 5) and states[0]._fields == ("z", "v", "i")
    assert q.program is None and "state" in q.not_lowered
    q = ptq4snn.quantize(net.net, x, "w4m4", batch_axis=1, loop=lambda n, x: n(x)[0])
    assert q.program is not None


def one_step_each(net: nn.Module, x: Tensor) -> Tensor:
    """The loop of a user, around cells: states go in and come out."""
    state, total = None, []
    for x_t in x:
        y, state = net(x_t, state)
        total.append(y)
    return torch.stack(total).sum(0)


def test_a_loop_outside_of_the_model() -> None:
    p = norse.LIFParameters(**PARAMETERS)
    net = seeded(
        0,
        lambda: norse.SequentialState(nn.Linear(12, 20), norse.LIFCell(p), norse.LIFRecurrentCell(20, 5, p)),
    )
    net[0].weight.data *= 3
    x = (torch.rand(STEPS, 24, 12, generator=torch.Generator().manual_seed(4)) < 0.4).float()
    q = ptq4snn.quantize(net, x, "w4m4", batch_axis=1, loop=one_step_each)
    assert q.program is not None, q.not_lowered
    expected = q.sequence(x)
    assert bool(expected.any())
    assert torch.equal(one_step_each(q, x), expected)
    assert torch.equal(one_step_each(q, x), expected)  # no state begins again


def test_what_is_refused_can_stay_in_float() -> None:
    net = seeded(
        0,
        lambda: norse.SequentialState(
            nn.Linear(4, 8), lif(), nn.Linear(8, 8), norse.LSNN(), nn.Linear(8, 3), lif()
        ),
    )
    x = torch.rand(STEPS, 24, 4, generator=torch.Generator().manual_seed(4)) * 4
    options = {"loop": lambda n, x: n(x)[0].sum(0), "overrides": {"3": {"exclude": True}}}
    q = ptq4snn.quantize(net, x, "w8m8", batch_axis=1, **options)
    assert set(q.plan.neurons) == {"1.synapse", "1.membrane", "5.synapse", "5.membrane"}


REFUSED = {
    "a threshold that adapts": (lambda: norse.LSNN(), "LSNN.*enters the comparison and not the sum"),
    "recurrent, adapts": (lambda: norse.LSNNRecurrentCell(4, 4), "use LIFRecurrentCell"),
    "refractory": (lambda: norse.LIFRefracCell(), "refractory.*use LIFCell"),
    "exponential": (lambda: norse.LIFEx(), "exponential.*use LIF,"),
    "adaptive exponential": (lambda: norse.LIFAdExCell(), "exponential term and adapts"),
    "quadratic": (lambda: norse.IzhikevichCell(norse.IzhikevichSpikingBehavior), "quadratic"),
    "conductances": (lambda: norse.CobaLIFCell(4, 4), "conductances"),
    "compartments": (lambda: norse.LIFMCRecurrentCell(4, 4), "compartments.*use LIFRecurrentCell"),
    "another reset": (
        lambda: norse.LIF(norse.LIFParameters(v_reset=torch.tensor(-0.5))),
        "reset to -0.5 and leaks to 0; give it the same v_reset and v_leak",
    ),
    "a large step": (lambda: norse.LIF(dt=0.1), "not in .0, 1.; use a smaller dt"),
    "weights without a name": (
        lambda: norse.LIFRecurrent(4, 4, input_weights=torch.ones(4, 4)), "nn.Parameter"
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
            return self.bad(self.fc(x))[0]

    with pytest.raises(UnsupportedNeuron, match=sentence) as why:
        ptq4snn.inspect(Net(), torch.rand(5, 3, 4), batch_axis=1)
    assert str(why.value).startswith("bad: ") and str(why.value).count(". ") == 0
