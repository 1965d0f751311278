"""Bounds, F, floors, streams and the joint search on whole networks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn

from ptq4snn.assemble import Assembly
from ptq4snn.bridge.joint import joint_scales
from ptq4snn.bridge.lattice import Lattice
from ptq4snn.bridge.objective import SquaredError
from ptq4snn.models.neuron import LIF
from ptq4snn.network.plan import Plan
from ptq4snn.numerics.grid import quantize
from ptq4snn.prepare import prepare
from ptq4snn.prepared import Prepared
from ptq4snn.recipe import Recipe


def made(prepared: Prepared, recipe: Recipe) -> tuple[Lattice, Assembly, Plan]:
    lattice = Lattice.of(prepared.folded, prepared.seen, recipe)
    assembly = Assembly(lattice)
    return lattice, assembly, assembly.plan(assembly.uniform_bits())


class Shortcut(nn.Module):
    """A membrane shortcut: two writers of one stream, three readers of it."""

    def __init__(self, T: int = 4) -> None:
        super().__init__()
        self.T = T
        self.stem, self.first = nn.Linear(6, 8), LIF()
        self.a, self.s1 = nn.Linear(8, 8), LIF()
        self.b, self.s2 = nn.Linear(8, 8), LIF()
        self.out = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:  # [B, 6]
        y = self.first(self.stem(x).unsqueeze(0).expand(self.T, -1, -1))
        u = self.a(y)
        u = u + self.b(self.s1(u))
        logits: Tensor = self.out(self.s2(u)).mean(0)
        return logits


@pytest.fixture(scope="module")
def shortcut() -> Prepared:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = Shortcut().eval()
        for m in (model.stem, model.a, model.b):
            nn.init.normal_(m.weight, 0.3, 1.0)
    x = torch.randn(48, 6, generator=torch.Generator().manual_seed(0))
    return prepare(model, x, Recipe(holdout=16))


# --- bounds and F ---------------------------------------------------------------------------------


def worst(weight: Tensor, lo: float, hi: float) -> Tensor:
    """|Wq x| of the input that drives each output channel furthest, up and down, by trying it."""
    w = weight.flatten(1).double()
    up = torch.where(w > 0, hi, lo)
    down = torch.where(w > 0, lo, hi)
    return torch.maximum((w * up).sum(1).abs(), (w * down).sum(1).abs())


@pytest.mark.parametrize("weights", [2, 4, 8])
def test_bounds_hold_and_are_reached(observed: Prepared, weights: int) -> None:
    lattice, assembly, plan = made(observed, Recipe(weights=weights))
    ints = assembly.integers()
    for name, p in lattice.projections.items():
        if p.info.reads == "data":
            continue
        reach = worst(ints[name].weight, p.info.lo, p.info.hi) * 2**p.shift
        furthest = float((reach + ints[name].bias.abs()).max())
        assert furthest <= plan.projections[name].bound <= furthest + 2
    for n in plan.neurons.values():
        source = observed.folded.discovery.neurons[n.name].projections[0]
        kept = max(2 ** (b - 1) * math.ldexp(m, -s) for b, (m, s) in zip(n.bits, n.charge, strict=True))
        assert n.bound >= plan.projections[source].bound + kept


def test_f_is_the_largest_that_fits(observed: Prepared) -> None:
    for weights in (2, 4, 8):
        lattice, _, _ = made(observed, Recipe(weights=weights))
        for p in lattice.projections.values():
            lo, hi = (p.info.lo, p.info.hi) if p.input is None else (0.0, 255.0)
            peak = worst(p.weight.integers, lo, hi)
            if p.input is not None:
                peak = peak + worst(p.weight.integers, 0.0, max(p.input.zeros) / 2**16)
            accumulator = float((peak + (p.bias / p.lattice).abs()).max())
            fits = [f for f in range(9) if accumulator * 2**f < 2**23]
            assert p.shift == max(fits)


class OddInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.sn, self.fc = nn.Conv2d(2, 6, 1), LIF(), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:  # [B, 2, 1, 1]
        y = self.conv(x)
        y = self.sn(y.unsqueeze(0).expand(4, *y.shape)).flatten(2)
        logits: Tensor = self.fc(y).mean(0)
        return logits


def test_bound_of_inputs_with_zero_points_of_both_signs() -> None:
    """One channel in -100..155, one in 1000..1255: the zero points are 100 and -1000."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = OddInputs().eval()
    assert model.conv.bias is not None
    nn.init.zeros_(model.conv.bias)
    model.conv.weight.data[:] = torch.tensor([-0.01, 0.01]).view(
        2, 1, 1
    )  # both zero points pull the same way
    p = torch.randint(0, 256, (64, 2, 1, 1), generator=torch.Generator().manual_seed(0)).float()
    p[-2:] = torch.tensor([0.0, 255.0]).view(2, 1, 1, 1)
    prepared = prepare(model, p + torch.tensor([-100.0, 1000.0]).view(2, 1, 1), Recipe(holdout=16))
    lattice, assembly, plan = made(prepared, Recipe())
    conv = lattice.projections["conv"]
    assert conv.input is not None and conv.input.zeros == (100 * 2**16, -1000 * 2**16)
    ints = assembly.integers()["conv"]
    furthest = 0
    for w, b in zip(ints.weight.flatten(1).tolist(), ints.bias.tolist(), strict=True):
        for p0 in (0, 255):
            for p1 in (0, 255):
                furthest = max(furthest, abs((w[0] * (p0 - 100) + w[1] * (p1 + 1000)) * 2**conv.shift + b))
    assert furthest <= plan.projections["conv"].bound


# --- floors ---------------------------------------------------------------------------------------


def test_dead_channels_have_a_floor(
    small_model: Callable[..., nn.Module], images: Callable[..., Tensor]
) -> None:
    """A BatchNorm gain near 0: without a floor its integers would be noise and theta / s_c would overflow."""
    model: Any = small_model()
    with torch.no_grad():
        model.layer1[0].bn1.weight[:3] = torch.tensor([0.0, 1e-9, 1e-6])
    prepared = prepare(model, images(16), Recipe())
    lattice, _, plan = made(prepared, Recipe())
    scales = torch.tensor(plan.projections["layer1.0.conv1"].scales)
    assert bool((scales >= 2.0**-12 * (1 - 1e-9)).all())
    assert scales[:3].tolist() == pytest.approx([2.0**-12] * 3)
    assert max(plan.neurons["layer1.0.sn1"].theta) < 2**24
    assert lattice.projections["layer1.0.conv1"].weight.integers[:2].abs().max() == 0


# --- thresholds -----------------------------------------------------------------------------------


@pytest.mark.parametrize("comparator", [">=", ">"])
@pytest.mark.parametrize("reset", ["hard", "soft"])
def test_thresholds_and_resets(
    observed: Prepared, comparator: Literal[">=", ">"], reset: Literal["hard", "soft"]
) -> None:
    """The least integer that fires and round(rho / unit), for thresholds on the grid and off it."""
    lattice, assembly, _ = made(observed, Recipe())
    name = "layer1.0.sn1"
    n = lattice.neurons[name]
    specs = dict(observed.folded.specs)
    specs[name] = replace(specs[name], comparator=comparator, reset=reset)
    theta, rho = n.theta.clone(), n.rho * 1.37
    theta[:4] = n.unit[:4] * torch.tensor([100.0, 101.0, 7.0, 1.0])  # exactly on the grid
    n = replace(n, theta=theta, rho=rho)
    for arithmetic in ("integer", "float"):
        changed: dict[str, Any] = {
            "folded": replace(observed.folded, specs=specs),
            "recipe": Recipe(arithmetic=arithmetic),
        }
        assembly = Assembly(replace(lattice, basis=replace(lattice.basis, **changed)))
        plan = assembly._neuron(n, torch.full((len(theta),), 4))
        for c in range(len(theta)):
            exact = Fraction(float(theta[c])) / Fraction(float(n.unit[c]))
            exact = Fraction([100, 101, 7, 1][c]) if c < 4 else exact  # unit * 7 is rounded
            if arithmetic == "integer":
                q = int(plan.theta[c])
                assert q == plan.theta[c]
                fires = (q >= exact, q - 1 < exact) if comparator == ">=" else (q > exact, q - 1 <= exact)
                assert all(fires)
                assert plan.rho[c] == (round(float(rho[c] / n.unit[c])) if reset == "soft" else 0)
            else:
                assert plan.theta[c] == pytest.approx(float(exact), rel=1e-6)
                if c < 4:  # as float32 carriers compare: equal fires for >= only
                    assert (float(torch.tensor(float(exact))) >= float(torch.tensor(plan.theta[c]))) == (
                        comparator == ">="
                    )


def test_exponents_keep_a_dyadic_leak_exact(observed: Prepared) -> None:
    lattice, assembly, plan = made(observed, Recipe())
    for name, n in lattice.neurons.items():
        ks = assembly.exponents(n)
        assert ks[0] == 1 - n.shift and ks[-1] <= 15  # leak 1/2
        assert all(s == 0 for _, s in plan.neurons[name].charge)  # nothing is rounded when it leaks
    basis = replace(lattice.basis, recipe=Recipe(state_rounding="dither"))
    dither = Assembly(replace(lattice, basis=basis))
    assert all(dither.exponents(n)[-1] + n.shift <= 16 for n in lattice.neurons.values())


# --- couplings on networks ------------------------------------------------------------------------


def test_reuse_takes_the_folded_weights_scale(observed: Prepared) -> None:
    _, _, plan = made(observed, Recipe(coupling="reuse"))
    for name, n in plan.neurons.items():
        source = observed.folded.discovery.neurons[name].projections[0]
        scales = plan.projections[source].scales  # of gain * BN * W, gain 1/2
        assert list(n.scales) == pytest.approx([s / 0.5 for s in scales], rel=1e-12)


def test_flowq_has_one_scale_per_layer(observed: Prepared) -> None:
    _, _, plan = made(observed, Recipe(coupling="flowq"))
    for n in plan.neurons.values():
        assert len(set(n.scales)) == 1 and len(set(n.k)) == 1


# --- streams --------------------------------------------------------------------------------------


def test_streams_are_brought_to_u(shortcut: Prepared) -> None:
    """u_c = 2 max|stream_c| / 32767; what is written is within the multiplier's 2^-15."""
    lattice, _, plan = made(shortcut, Recipe())
    model: Any = shortcut.folded.model
    seen: list[Tensor] = []
    x = torch.randn(48, 6, generator=torch.Generator().manual_seed(0))[32:]  # what is not held out
    handles = [m.register_forward_hook(lambda _m, _a, y: seen.append(y.detach())) for m in (model.a, model.b)]
    with torch.no_grad():
        model(x)
    for h in handles:
        h.remove()
    a, b = seen
    top = torch.stack([a.abs().amax((0, 1)), b.abs().amax((0, 1)), (a + b).abs().amax((0, 1))]).amax(0)
    for name in ("a", "b"):
        rescale = plan.projections[name].rescale
        assert rescale is not None and rescale.bits == 16
        assert list(rescale.scales) == pytest.approx((2 * top / 32767).tolist(), rel=0.02)
        unit = torch.tensor(plan.projections[name].lattice) * 2.0 ** -plan.projections[name].shift
        for m, s, u, t in zip(
            rescale.multipliers, rescale.shifts, unit.tolist(), rescale.scales, strict=True
        ):
            assert m < 2**15 and math.ldexp(m, -s) == pytest.approx(u / t, rel=2.0**-15)
    rescale = plan.projections["a"].rescale
    assert rescale is not None
    assert lattice.neurons["s1"].scale.tolist() == pytest.approx([0.5 * t for t in rescale.scales])


def test_stream_shift_gives_powers_of_two(shortcut: Prepared) -> None:
    _, assembly, plan = made(shortcut, Recipe(stream="shift"))
    for name in ("a", "b"):
        p = plan.projections[name]
        assert p.rescale is not None
        for lat, target, m, s in zip(
            p.lattice, p.rescale.scales, p.rescale.multipliers, p.rescale.shifts, strict=True
        ):
            ratio = lat / target
            assert math.frexp(ratio)[0] == 0.5
            assert math.ldexp(m, -s) == math.ldexp(ratio, -p.shift)
        # and of the two neighbouring powers the better one
        w = shortcut.folded.weight(name).double()
        free = Lattice.of(shortcut.folded, shortcut.seen, Recipe()).projections[name].weight.scales
        for c in range(len(w)):
            errors = []
            for f in (math.floor, math.ceil):
                s_w = p.rescale.scales[c] * 2.0 ** f(math.log2(float(free[c]) / p.rescale.scales[c]))
                errors.append(float(((w[c] / s_w).round().clamp(-8, 7) * s_w - w[c]).square().sum()))
            q = assembly.integers()[name].weight[c]
            assert float((q * p.scales[c] - w[c]).square().sum()) == pytest.approx(min(errors), rel=1e-9)


def test_reuse_on_a_stream_is_the_last_writers(shortcut: Prepared) -> None:
    _, _, plan = made(shortcut, Recipe(coupling="reuse"))
    assert list(plan.neurons["s2"].scales) == pytest.approx(list(plan.projections["b"].scales), rel=1e-12)


# --- joint search ---------------------------------------------------------------------------------


@pytest.mark.parametrize("membrane", [2.0, 4.0])
@pytest.mark.parametrize("weights", [2, 4])
@pytest.mark.parametrize("lam", [0.0, 1.0, 100.0])
def test_joint_search_is_never_worse_than_the_separate_one(
    observed: Prepared, weights: int, membrane: float, lam: float
) -> None:
    recipe = Recipe(weights=weights, membrane=membrane, lambda_mem=lam, joint=True)
    lattice, assembly, _ = made(observed, recipe)
    chosen = joint_scales(assembly, assembly.uniform_bits())
    assert chosen
    moved = 0
    for name, scales in chosen.items():
        p = lattice.projections[name]
        neuron = lattice.neurons[p.info.feeds[0]]
        st = observed.seen.neurons[neuron.info.name]
        w = observed.folded.weight(name).double().flatten(1)
        ks = torch.exp2(torch.tensor(list(assembly.exponents(neuron))).double())
        hist = st.histogram.double()

        def objective(s: Tensor) -> Tensor:
            q = quantize(w, s[:, None], weights, p.weight.odd) * s[:, None]  # noqa: B023
            e_w = (q - w).square().sum(1) / w.square().sum(1)  # noqa: B023
            s_c = neuron.scale / p.weight.scales * s  # noqa: B023
            e_m = SquaredError().error(st, neuron.theta, s_c[:, None] * ks, int(membrane)).amin(1)  # noqa: B023
            return e_w + lam * e_m / energy  # noqa: B023

        from ptq4snn.observation.channel_statistics import bin_edges

        inner, outer = bin_edges()
        energy = (hist * ((inner + outer) / 2).square()).sum(1) / hist.sum(1) * neuron.theta.square()
        joint, separate = objective(scales), objective(p.weight.scales)
        assert bool((joint <= separate * (1 + 1e-9)).all()), name
        moved += int((joint < separate * (1 - 1e-6)).sum())
    assert (moved > 0) == (lam > 0)


def test_joint_search_respects_the_floor(
    small_model: Callable[..., nn.Module], images: Callable[..., Tensor]
) -> None:
    model: Any = small_model()
    with torch.no_grad():
        model.layer1[0].bn1.weight[:4] *= torch.tensor([0.0, 1e-4, 5e-4, 2e-3])
    recipe = Recipe(joint=True)
    prepared = prepare(model, images(16), recipe)
    _, assembly, _ = made(prepared, recipe)
    scales = joint_scales(assembly, assembly.uniform_bits())["layer1.0.conv1"]
    assert bool((scales >= 2.0**-12 * (1 - 1e-9)).all())
