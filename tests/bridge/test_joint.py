"""The joint search of weight and state scales, against brute force over all candidates."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from ptq4snn.assemble import Assembly
from ptq4snn.bridge.joint import joint_scales
from ptq4snn.bridge.joint_streams import joint_stream_scales
from ptq4snn.bridge.lattice import Lattice
from ptq4snn.bridge.objective import SquaredError
from ptq4snn.models.neuron import LIF
from ptq4snn.observation.channel_statistics import bin_edges
from ptq4snn.pipeline import run
from ptq4snn.prepare import prepare
from ptq4snn.prepared import Prepared
from ptq4snn.recipe import Recipe

SHRINKS = [0.4 + 0.01 * i for i in range(61)]


class Two(nn.Module):
    """A pair behind the first layer, then two writers of a stream with two readers."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.first = nn.Linear(6, 8), LIF()
        self.pair, self.middle = nn.Linear(8, 8), LIF()
        self.a, self.s1 = nn.Linear(8, 8), LIF()
        self.b, self.s2 = nn.Linear(8, 8), LIF()
        self.out = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:  # [B, 6]
        y = self.first(self.stem(x).unsqueeze(0).expand(4, -1, -1))
        u = self.a(self.middle(self.pair(y)))
        u = u + self.b(self.s1(u))
        logits: Tensor = self.out(self.s2(u)).mean(0)
        return logits


@pytest.fixture(scope="module")
def two() -> Prepared:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model = Two().eval()
        for m in (model.stem, model.pair, model.a, model.b):
            nn.init.normal_(m.weight, 0.3, 1.0)
    x = torch.randn(64, 6, generator=torch.Generator().manual_seed(0))
    return prepare(model, x, Recipe(holdout=16))


def assembled(prepared: Prepared, coupling: str, **changes: object) -> Assembly:
    recipe = Recipe(coupling=coupling, objective="squared_error", joint=True, **changes)  # type: ignore[arg-type]
    return Assembly(Lattice.of(prepared.folded, prepared.seen, recipe))


def widths(assembly: Assembly) -> dict[str, Tensor]:
    """2, 4 and 8 bits in turn."""
    mixed = torch.tensor([2, 4, 8, 4, 2, 8, 4, 2])
    return {n: mixed if assembly.in_budget(n) else b for n, b in assembly.uniform_bits().items()}


def state_error(prepared: Prepared, assembly: Assembly, neuron: str, step: Tensor, bits: Tensor) -> Tensor:
    """Of every channel, one at a time, in shares of the states' energy."""
    st, n = prepared.seen.neurons[neuron], assembly.lattice.neurons[neuron]
    inner, outer = bin_edges()
    hist = st.histogram.double()
    energy = (hist * ((inner + outer) / 2).square()).sum(1) / hist.sum(1) * n.theta.square()
    errors = [SquaredError().error(st, n.theta, step[:, None], int(b))[c, 0] for c, b in enumerate(bits)]
    return torch.stack(errors) / energy


def weight_error(w: Tensor, s: Tensor, bits: int = 4) -> Tensor:
    """[C] of the weight's energy."""
    lo, hi = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    q = (w / s[:, None]).round().clamp(lo, hi) * s[:, None]
    return (q - w).square().sum(1) / w.square().sum(1)


@pytest.mark.parametrize("coupling", ["bridge", "layerwise", "flowq"])
def test_scale_and_exponent_are_the_best_of_all(two: Prepared, coupling: str) -> None:
    assembly = assembled(two, coupling)
    bits = widths(assembly)
    found = joint_scales(assembly, bits)["pair"]
    w = two.folded.weight("pair").double()
    n, p = assembly.lattice.neurons["middle"], assembly.lattice.projections["pair"]
    per_scale = n.scale / p.weight.scales
    top = w.abs().amax(1) / 7 if coupling != "flowq" else (w.abs().amax() / 7).expand(len(w))
    ks = list(assembly.exponents(n))

    def cost(s: Tensor, k: int) -> Tensor:
        step = s * per_scale * 2.0**k
        return weight_error(w, s) + state_error(two, assembly, "middle", step, bits["middle"])

    table = torch.stack([torch.stack([cost(top * f, k) for k in ks]) for f in SHRINKS])  # [61, K, C]
    reached = torch.stack([cost(found, k) for k in ks])  # [K, C]
    if coupling == "bridge":
        assert torch.allclose(reached.amin(0), table.amin((0, 1)), rtol=1e-9)
    elif coupling == "layerwise":
        assert float(reached.sum(1).amin()) == pytest.approx(float(table.amin(0).sum(1).amin()), rel=1e-9)
    else:
        assert len(set(found.tolist())) == 1
        assert float(reached.sum(1).amin()) == pytest.approx(float(table.sum(2).amin()), rel=1e-9)


def test_widths_of_the_channels_decide(two: Prepared) -> None:
    assembly = assembled(two, "bridge")
    uniform, mixed = assembly.uniform_bits(), widths(assembly)
    a, b = joint_scales(assembly, uniform)["pair"], joint_scales(assembly, mixed)["pair"]
    same = uniform["middle"] == mixed["middle"]
    assert torch.equal(a[same], b[same])
    assert not torch.equal(a[~same], b[~same])


@pytest.mark.parametrize("stream", ["shift", "multiply"])
def test_the_scale_of_a_stream_is_the_best_of_an_octave(two: Prepared, stream: str) -> None:
    assembly = assembled(two, "bridge", stream=stream)
    bits = widths(assembly)
    ((number, u),) = assembly.lattice.basis.streams.items()
    found = joint_stream_scales(assembly, bits)[number]

    def cost(scale: Tensor) -> Tensor:
        total = torch.zeros(8, dtype=torch.float64)
        for reader in ("s1", "s2"):
            n = assembly.lattice.neurons[reader]
            steps = [n.scale / u * scale * 2.0**k for k in assembly.exponents(n)]
            options = [state_error(two, assembly, reader, s, bits[reader]) for s in steps]
            total += torch.stack(options).amin(0)
        for writer in ("a", "b") if stream == "shift" else ():
            w = two.folded.weight(writer).double()
            own = Lattice.of(two.folded, two.seen, Recipe()).projections[writer].weight.scales
            exact = torch.log2(own / scale)
            total += torch.minimum(*(weight_error(w, scale * 2.0**j) for j in (exact.floor(), exact.ceil())))
        return total

    candidates = torch.stack([cost(u * 2.0 ** (i / 12)) for i in range(12)])
    assert torch.allclose(cost(found), candidates.amin(0), rtol=1e-9)
    assert bool(((found >= u) & (found < 2 * u)).all())


def test_one_scale_a_layer_everywhere(two: Prepared) -> None:
    """FlowQ: no projection, stream or state has scales that differ between channels."""
    recipe = Recipe.parse("paper+nearest+flowq+uniform+w4m4").replace(joint=True)
    plan = run(two, recipe).plan
    for p in plan.projections.values():
        assert len(set(p.scales)) == 1, p.name
    for n in plan.neurons.values():
        assert len(set(n.scales)) == 1 or n.name == "first", n.name
    assert len(set(plan.neurons["first"].k)) == 1


def test_flowq_chooses_both_scales_together_on_any_network(two: Prepared) -> None:
    """Also where the paper's bridge would keep the weight's own scale."""
    recipe = Recipe.parse("paper+nearest+flowq+uniform+w4m4").replace(joint=False)
    lattice = Lattice.of(two.folded, two.seen, recipe)
    found = joint_scales(Assembly(lattice), Assembly(lattice).uniform_bits())["pair"]
    assert run(two, recipe).plan.projections["pair"].scales == tuple(found.tolist())
    assert not torch.equal(found, lattice.projections["pair"].weight.scales)


def test_bits_are_allocated_before_the_scales(two: Prepared) -> None:
    """The weight's scales of the result are those for the widths that the channels ended up with."""
    recipe = Recipe.parse("paper+nearest+w4m4").replace(joint=True, beta=0.8, percentile=90.0)
    plan = run(two, recipe).plan
    assembly = Assembly(Lattice.of(two.folded, two.seen, recipe))
    bits = {n: torch.tensor(p.bits) for n, p in plan.neurons.items()}
    assert len(set(plan.neurons["middle"].bits)) > 1
    assert plan.projections["pair"].scales == tuple(joint_scales(assembly, bits)["pair"].tolist())
