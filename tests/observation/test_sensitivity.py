"""g_c on a two-layer net, computed a second time in float64 from the paper's formula."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from ptq4snn.allocation import mixed
from ptq4snn.allocation.mixed import reference_sensitivity
from ptq4snn.assemble import Assembly
from ptq4snn.bridge.lattice import Lattice
from ptq4snn.models.neuron import LIF
from ptq4snn.observation import sensitivity as observed
from ptq4snn.prepare import prepare
from ptq4snn.prepared import Cache, Prepared
from ptq4snn.recipe import Recipe

T, BATCH, DRAWS = 2, 2, 3
SIZES = (5, 4, 6, 3)


class TwoLayers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.a = nn.Linear(SIZES[0], SIZES[1]), LIF()
        self.second, self.b = nn.Linear(SIZES[1], SIZES[2]), LIF(v_reset=None)
        self.out = nn.Linear(SIZES[2], SIZES[3])

    def forward(self, x: Tensor) -> Tensor:  # [B, 5]
        y = self.first(x).unsqueeze(0).expand(T, -1, -1)
        logits: Tensor = self.out(self.b(self.second(self.a(y)))).mean(0)
        return logits


@pytest.fixture(scope="module")
def setting() -> tuple[TwoLayers, Prepared, Recipe]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model = TwoLayers().eval()
        nn.init.normal_(model.first.weight, 0.2, 1.2)
        nn.init.normal_(model.second.weight, 0.5, 1.5)
    recipe = Recipe(
        micro_batch=BATCH, sensitivity_batches=DRAWS, holdout=BATCH, first_bits=4, first_membrane=4
    )
    x = torch.randn(40, SIZES[0], generator=torch.Generator().manual_seed(0))
    return model, prepare(model, x, recipe), recipe


def float_spikes(model: TwoLayers, x: Tensor) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """Spikes of both layers and the decision, in float64, from the definition of the neuron."""
    w1, b1, w2, b2, w3, b3 = (p.detach().double() for p in model.parameters())
    va = vb = torch.zeros(())
    sa, sb, logits = [], [], torch.zeros(())
    for _ in range(T):
        h = va / 2 + (x.double() @ w1.T + b1) / 2
        sa.append((h >= 1).double())
        va = h * (1 - sa[-1])
        h = vb / 2 + (sa[-1] @ w2.T + b2) / 2
        sb.append((h >= 1).double())
        vb = h - sb[-1]
        logits = logits + (sb[-1] @ w3.T + b3) / T
    return sa, sb, logits.argmax(1)


def straight(x: Tensor, y: Tensor) -> Tensor:
    """The value of y with the gradient of x."""
    return x + (y - x).detach()


def by_hand(model: TwoLayers, prepared: Prepared, recipe: Recipe) -> dict[str, Tensor]:
    reference = recipe.replace(weights=4, coupling="bridge", allocation="uniform", membrane=4.0)
    assembly = Assembly(Lattice.of(prepared.folded, prepared.seen, reference))
    plan, ints = assembly.plan(assembly.uniform_bits()), assembly.integers()
    total = {"a": torch.zeros(SIZES[1]).double(), "b": torch.zeros(SIZES[2]).double()}
    for x in prepared.kept[:DRAWS]:
        p = plan.projections["first"].input
        assert p is not None
        z = p.zeros[0] / 2**16
        q = (x.double() / p.scales[0] + z).round().clamp(0, 255)
        w, b = ints["first"].weight * 2.0 ** plan.projections["first"].shift, ints["first"].bias
        current = q @ w.T + (b - z * w.sum(1)).round()
        state: dict[str, Tensor] = {}
        spikes: dict[str, list[Tensor]] = {"a": [], "b": []}
        logits = torch.zeros(())
        for _ in range(T):
            flow = current
            for name in ("a", "b"):
                n = plan.neurons[name]
                theta, rho, unit = (torch.tensor(v, dtype=torch.float64) for v in (n.theta, n.rho, n.unit))
                shift = torch.tensor([k + n.shift for k in n.k]).double()  # type: ignore[operator]
                h = flow
                if name in state:
                    kept = state[name] * 2.0**shift / 2
                    h = h + straight(kept, kept.detach().round())
                u = (h - theta) * unit
                soft = torch.atan(math.pi * u) / math.pi
                s = straight(soft, (h >= theta).double())
                if not s.requires_grad:
                    s = s.clone().requires_grad_(True)
                spikes[name].append(s)
                after = h * (1 - s.detach()) if name == "a" else h - rho * s.detach()
                scaled = after / 2.0**shift
                state[name] = straight(scaled, scaled.detach().round()).clamp(-8, 7)
                follow = {"a": "second", "b": "out"}[name]
                w, b = ints[follow].weight * 2.0 ** plan.projections[follow].shift, ints[follow].bias
                flow = s @ w.T + b
            out = plan.projections["out"]
            logits = logits + flow * torch.tensor(out.lattice, dtype=torch.float64) * 2.0**-out.shift / T
        sa, sb, labels = float_spikes(model, x)
        loss = -logits.log_softmax(1)[torch.arange(len(x)), labels].mean()
        flat = spikes["a"] + spikes["b"]
        gradients = torch.autograd.grad(loss, flat)
        for name, part, float_part in (("a", gradients[:T], sa), ("b", gradients[T:], sb)):
            z_c = sum(
                (g * (s.detach() - f)).sum(0) for g, s, f in zip(part, spikes[name], float_part, strict=True)
            )
            assert isinstance(z_c, Tensor)
            total[name] += (z_c + z_c**2 / 2).abs() / DRAWS
    return total


def test_sensitivity_on_a_two_layer_net(setting: tuple[TwoLayers, Prepared, Recipe]) -> None:
    model, prepared, recipe = setting
    expected = by_hand(model, prepared, recipe)
    found = reference_sensitivity(prepared, recipe).mean()
    assert any(float(g.max()) > 1e-4 for g in expected.values())  # quantization did change spikes
    for name, g in expected.items():
        assert found[name].tolist() == pytest.approx(g.tolist(), rel=1e-4, abs=1e-9), name


def test_the_reference_does_not_depend_on_the_allocation(setting: tuple[TwoLayers, Prepared, Recipe]) -> None:
    _, prepared, recipe = setting
    a = reference_sensitivity(prepared, recipe).mean()
    b = reference_sensitivity(
        prepared, recipe.replace(membrane=3.0, beta=0.2, coupling="layerwise", weights=8)
    ).mean()
    assert all(torch.equal(a[n], b[n]) for n in a)


@pytest.mark.parametrize(("level", "batches"), [(-2.0, 2), (2.0, 18)])
def test_batches_are_doubled_until_the_sensitivities_are_reliable(
    setting: tuple[TwoLayers, Prepared, Recipe], monkeypatch: pytest.MonkeyPatch, level: float, batches: int
) -> None:
    """The first two are enough, or 2, 4, 8, 16, and then all 18 of 20 that are not held out."""
    _, prepared, recipe = setting
    monkeypatch.setattr(mixed, "FIRST_BATCHES", 2)
    monkeypatch.setattr(mixed, "RELIABLE", level)
    prepared = replace(prepared, cache=Cache())
    found = reference_sensitivity(prepared, recipe.replace(sensitivity_batches="auto"))
    assert found.batches == batches
    same = reference_sensitivity(prepared, recipe.replace(sensitivity_batches=batches)).mean()
    assert all(torch.equal(g, same[n]) for n, g in found.mean().items())


def test_between_too_few_and_all(
    setting: tuple[TwoLayers, Prepared, Recipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stops at the first doubling that reaches the level."""
    _, prepared, recipe = setting
    counts = (2, 4, 8, 16)
    reached = []
    for count in counts:
        found = reference_sensitivity(prepared, recipe.replace(sensitivity_batches=count))
        reached.append(found.reliability(["a", "b"]).overall or 0.0)
    level = sorted(reached)[2]
    monkeypatch.setattr(mixed, "FIRST_BATCHES", 2)
    monkeypatch.setattr(mixed, "RELIABLE", level)
    auto = reference_sensitivity(replace(prepared, cache=Cache()), recipe.replace(sensitivity_batches="auto"))
    assert auto.batches == counts[next(i for i, r in enumerate(reached) if r >= level)]


def test_a_gradient_that_comes_back_in_parts(
    setting: tuple[TwoLayers, Prepared, Recipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    """z of the parts is added before it is squared: the same numbers, but for the order of float sums."""
    _, prepared, recipe = setting
    whole = reference_sensitivity(replace(prepared, cache=Cache()), recipe).mean()
    monkeypatch.setattr(observed, "MOST_SPIKES", 1)  # one sample at a time
    assert observed.at_once(prepared.folded) == 1
    parts = reference_sensitivity(replace(prepared, cache=Cache()), recipe).mean()
    for name, g in whole.items():
        assert parts[name].tolist() == pytest.approx(g.tolist(), rel=1e-4, abs=1e-9), name
