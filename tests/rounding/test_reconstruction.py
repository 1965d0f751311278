"""Units run alone give what they give in the network, and their rounding lowers their error."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from rounding.families import RECIPE, prepared
from torch import Tensor

from ptq4snn.bridge.lattice import Lattice
from ptq4snn.discovery.blocks import find_blocks
from ptq4snn.discovery.discover import reset_neurons
from ptq4snn.modules.readout import same_draws
from ptq4snn.numerics.nearest import QuantWeight, round_nearest
from ptq4snn.prepared import Cache
from ptq4snn.rounding import reconstruction
from ptq4snn.rounding.boundary import find_boundary
from ptq4snn.rounding.network import Network
from ptq4snn.rounding.reconstruction import Batches, Reconstruction, Unit
from ptq4snn.rounding.soft import SoftWeight, exponent


def network(name: str) -> Network:
    p = prepared(name)
    return Network(p, Lattice.of(p.folded, p.seen, RECIPE))


def units(net: Network) -> list[tuple[str, ...]]:
    found = find_blocks(net.folded.discovery.graph)
    free = [tuple(n for n in unit if net.is_open(n)) for unit in found]
    return [unit for unit in free if unit]


def currents(net: Network, x: Tensor) -> dict[str, list[Tensor]]:
    """What drives every neuron and what every projection puts out in a whole forward pass."""
    folded = net.float
    seen: dict[str, list[Tensor]] = {}
    handles = []
    for name in folded.discovery.neurons:
        folded.core(name).probe = lambda x, *_, name=name: seen.setdefault(name, []).append(x)
    for name in folded.discovery.projections:

        def hook(_m: object, _a: object, out: Tensor, name: str = name) -> None:
            seen.setdefault(name, []).append(out)

        handles.append(folded.projection(name).register_forward_hook(hook))
    reset_neurons(folded.model)
    with torch.no_grad(), same_draws():
        folded.model(x)
    for name in folded.discovery.neurons:
        folded.core(name).probe = None
    for handle in handles:
        handle.remove()
    reset_neurons(folded.model)
    return seen


@pytest.mark.parametrize("name", ["sew", "sdt", "vgg", "loop", "curious"])
def test_a_unit_alone_is_the_unit_in_the_network(name: str) -> None:
    net = network(name)
    batches = Batches(net)
    expected = currents(net, batches[0])
    for names in units(net):
        unit = Unit(net, names, batches)
        with unit.alone.cut_out(), torch.no_grad():
            for real in (False, True):
                unit.alone.real = unit.alone.real or real
                reached = unit.alone.run(batches.packed[0], unit.weights, unit.float[0])
                found = {n: [x for x, _ in steps] for n, steps in reached.neurons.items()} | reached.outputs
                assert set(found) == {*unit.boundary.neurons, *unit.boundary.outputs} and found
                for place, tensors in found.items():
                    assert len(tensors) == len(expected[place])
                    for a, b in zip(tensors, expected[place], strict=True):
                        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def test_only_a_model_that_looks_at_values_needs_zeros() -> None:
    for name, looks in (("loop", False), ("curious", True)):
        net = network(name)
        unit = Unit(net, units(net)[-1], Batches(net))  # far from the neuron whose spikes are looked at
        with unit.alone.cut_out():
            unit.target(0)
        assert unit.alone.real is looks


def test_the_boundary_of_attention() -> None:
    d = prepared("sdt").folded.discovery
    unit = tuple(f"block.0.attn.{n}_conv" for n in ("q", "k", "v", "proj"))
    found = find_boundary(d, unit)
    assert found.inner == {f"block.0.attn.{n}_lif" for n in ("q", "k", "v", "talking_heads")}
    assert found.spikes == ("block.0.attn.shortcut_lif",) and found.currents == ()
    assert found.neurons == () and found.outputs == ("block.0.attn.proj_conv",) and not found.data


def test_the_boundary_of_a_chain_and_of_a_basic_block() -> None:
    d = prepared("meta").folded.discovery
    chained = find_boundary(d, ("block3.0.attn.q_conv.0.body.2.0",))
    assert chained.currents == ("block3.0.attn.q_conv.0.body.0",) and chained.spikes == ()
    assert chained.outputs == chained.unit
    d = prepared("sew").folded.discovery
    block = find_boundary(d, ("layer2.0.conv1", "layer2.0.conv2", "layer2.0.downsample.0"))
    assert block.inner == {"layer2.0.sn1"} and set(block.spikes) == {"layer1.0.sn2", "layer1.0.downsample_sn"}
    assert block.neurons == ("layer2.0.sn2", "layer2.0.downsample_sn") and block.outputs == ()


def test_the_error_is_that_of_the_potential_and_its_gradient_is_exact() -> None:
    """A single layer's error is quadratic in its weight: central differences are exact."""
    net = network("sew")
    unit = Unit(net, ("layer1.0.conv2",), Batches(net))
    weight = net.values("layer1.0.conv2", net.weight("layer1.0.conv2").integers).float().requires_grad_()
    step = torch.randn(weight.shape, generator=torch.Generator().manual_seed(0)) * 0.3
    with unit.alone.cut_out():
        unit.loss(0, {"layer1.0.conv2": weight}).backward()
        ends = [float(unit.loss(0, {"layer1.0.conv2": weight.detach() + s * step})) for s in (1, -1)]
        assert float(unit.loss(0, unit.weights)) < 1e-8
    assert weight.grad is not None
    assert float((weight.grad * step).sum()) == pytest.approx((ends[0] - ends[1]) / 2, rel=1e-3)


def test_gradients_reach_every_projection_of_a_block() -> None:
    for name in ("sew", "sdt"):
        net = network(name)
        batches = Batches(net)
        for names in units(net):
            unit = Unit(net, names, batches)
            soft = {n: SoftWeight(w, net.weight(n)) for n, w in unit.weights.items()}
            with unit.alone.cut_out():
                unit.loss(0, {n: s.value(s.h()) * 1.3 for n, s in soft.items()}).backward()
            assert all(s.v.grad is not None and float(s.v.grad.abs().max()) > 0 for s in soft.values())


def test_soft_weights_start_as_the_weight_and_end_on_the_grid() -> None:
    w = torch.randn(6, 50, generator=torch.Generator().manual_seed(0))
    q = round_nearest(w, 3)
    soft = SoftWeight(w, q)
    inside = (w / q.scales[:, None]).abs() < 3
    torch.testing.assert_close(soft.value(soft.h())[inside], w[inside], rtol=0, atol=2e-4)
    optimizer = torch.optim.Adam([soft.v], 1e-3)
    iterations = 4000
    assert exponent(0, iterations) is None and exponent(800, iterations) == 20
    assert exponent(2400, iterations) == 11 and exponent(iterations, iterations) == 2
    for i in range(800, iterations):
        optimizer.zero_grad()
        b = exponent(i, iterations)
        assert b is not None
        SoftWeight.penalty(soft.h(), b).backward()
        optimizer.step()
    h = soft.h().detach()
    assert float(((h > 1e-3) & (h < 1 - 1e-3)).float().mean()) < 0.01
    assert torch.equal(soft.integers()[inside], q.integers[inside])  # nothing but the penalty: the nearest


def test_soft_weights_can_reach_both_neighbours_and_no_more() -> None:
    w = torch.tensor([[-9.0, -2.4, 0.2, 1.0, 7.0]])
    soft = SoftWeight(w, QuantWeight(3, torch.ones(1, dtype=torch.float64), torch.zeros(1, 5)))
    for v, expected in ((-5.0, [-4, -3, 0, 1, 3]), (5.0, [-4, -2, 1, 2, 3])):
        soft.v.data.fill_(v)
        assert soft.integers().tolist() == [expected]
        assert soft.value(soft.h()).tolist() == [expected]


def test_soft_weights_on_odd_levels() -> None:
    w = torch.tensor([[-9.0, -2.4, 0.2, 1.0, 7.0]])
    q = QuantWeight(2, torch.ones(1, dtype=torch.float64), torch.zeros(1, 5), odd=True)
    soft = SoftWeight(w, q)
    for v, expected in ((-5.0, [-3, -3, -1, 1, 3]), (5.0, [-3, -1, 1, 3, 3])):
        soft.v.data.fill_(v)
        assert soft.integers().tolist() == [expected]
        assert soft.value(soft.h()).tolist() == [expected]


@pytest.mark.parametrize(("name", "number"), [("sew", 0), ("sdt", 4)])
def test_a_block_loses_less_than_with_nearest_rounding(
    name: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconstruction, "LEARNING_RATE", 1e-2)  # so that few iterations do
    net = network(name)
    work = Reconstruction(net, 100, seed=0)
    names = units(net)[number]
    found = work.round_unit(names)
    unit = Unit(net, names, work.batches)
    with unit.alone.cut_out():
        nearest = unit.total({n: net.weight(n).integers for n in names})
        mine = unit.total(found.integers)
    assert mine < 0.97 * nearest
    for n in names:
        shape = (-1, *[1] * (found.integers[n].dim() - 1))
        position = net.float.weight(n).double() / net.weight(n).scales.view(shape)
        assert bool(((found.integers[n] - position.clamp(-4, 3)).abs() < 1).all())  # a neighbour, up or down


def test_the_same_seed_gives_the_same_integers() -> None:
    p = prepared("sew")
    runs = []
    for _ in range(2):
        net = Network(replace(p, cache=Cache()), Lattice.of(p.folded, p.seen, RECIPE))
        runs.append(Reconstruction(net, 60, seed=1).round_unit(units(net)[0]).integers)
    assert all(torch.equal(runs[0][n], runs[1][n]) for n in runs[0])
