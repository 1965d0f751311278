"""What a reconstruction compares, and how elements are weighted: against float64 and against the network."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from rounding.families import RECIPE, prepared
from rounding.test_reconstruction import network, units
from torch import Tensor
from torch.nn import functional as F

from ptq4snn.bridge.lattice import Lattice
from ptq4snn.discovery.blocks import WHOLE_ATTENTION, find_blocks
from ptq4snn.discovery.discover import reset_neurons
from ptq4snn.modules.readout import same_draws
from ptq4snn.rounding import reconstruction
from ptq4snn.rounding.boundary import Boundary, find_boundary
from ptq4snn.rounding.fisher import fisher_weights, gradients
from ptq4snn.rounding.network import Network
from ptq4snn.rounding.reconstruction import Aim, Batches, Reconstruction, Unit
from ptq4snn.rounding.stage import round_weights

BLOCK = ("layer2.0.conv1", "layer2.0.conv2", "layer2.0.downsample.0")


def compared(net: Network, boundary: Boundary, x: Tensor) -> dict[str, list[Tensor]]:
    """What the whole float network has at the places of the boundary."""
    folded = net.float
    seen: dict[str, list[Tensor]] = {n: [] for n in boundary.places}
    handles: list[Any] = []
    for name in (*boundary.outputs, *(r for r in boundary.readers if r in folded.discovery.projections)):

        def hook(_m: object, args: Any, out: Tensor, name: str = name) -> None:
            seen[name].append(out if name in boundary.outputs else args[0])

        handles.append(folded.projection(name).register_forward_hook(hook))
    for name in folded.discovery.neurons:
        if name in seen:
            folded.core(name).probe = lambda x, _h, s, *_, name=name: seen[name].append(
                s if name in boundary.fired else x
            )
    reset_neurons(folded.model)
    with torch.no_grad(), same_draws():
        folded.model(x)
    for name in folded.discovery.neurons:
        folded.core(name).probe = None
    for handle in handles:
        handle.remove()
    reset_neurons(folded.model)
    return seen


@pytest.mark.parametrize("aim", ["current", "output"])
@pytest.mark.parametrize("name", ["sew", "sdt", "vgg", "meta", "loop"])
def test_a_unit_alone_is_the_unit_in_the_network(name: str, aim: str) -> None:
    net = network(name)
    batches = Batches(net)
    places = set()
    blocks = (
        find_blocks(net.folded.discovery.graph, attention=WHOLE_ATTENTION) if name == "meta" else units(net)
    )
    for names in [free for block in blocks[-7:] if (free := tuple(n for n in block if net.is_open(n)))]:
        unit = Unit(net, names, batches, Aim(aim))
        expected = compared(net, unit.boundary, batches[0])
        with unit.alone.cut_out(), torch.no_grad():
            reached = unit.alone.run(batches.packed[0], unit.weights, unit.float[0])
            assert float(unit.loss(0, unit.weights)) >= 0
        found = {n: [x for x, _ in steps] for n, steps in reached.neurons.items()} | reached.outputs
        assert set(found) == set(unit.boundary.places) and found
        for place, tensors in found.items():
            assert len(tensors) == len(expected[place]), place
            if place in unit.boundary.shared:  # of a stream its share alone
                continue
            for a, b in zip(tensors, expected[place], strict=True):
                torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
        places |= {k for k in ("fired", "readers", "outputs", "neurons") if getattr(unit.boundary, k)}
    assert places <= ({"outputs"} if aim == "current" else {"outputs", "fired", "readers", "neurons"})


def test_a_residual_block_is_compared_behind_its_add() -> None:
    d = prepared("sew").folded.discovery
    output = find_boundary(d, BLOCK, "output")
    assert output.inner == {"layer2.0.sn1", "layer2.0.sn2", "layer2.0.downsample_sn"}
    assert set(output.readers) == {"fc"} and not (output.fired or output.neurons or output.outputs)
    first = tuple(n.replace("layer2", "layer1") for n in BLOCK)
    assert len(find_boundary(d, first, "output").readers) == 1  # two convolutions read the same sum
    current = find_boundary(d, BLOCK, "current")
    assert current.outputs == ("layer2.0.conv2", "layer2.0.downsample.0") and not current.neurons
    attention = tuple(f"block.0.attn.{n}_conv" for n in ("q", "k", "v", "proj"))
    d = prepared("sdt").folded.discovery
    shared = find_boundary(d, attention, "output")
    assert shared.readers == {"block.0.mlp.fc1_lif": "block.0.attn.proj_conv"} and not shared.outputs
    assert shared.shared == {"block.0.mlp.fc1_lif"}


def test_the_current_is_w_x_in_float64() -> None:
    """sum over channels, mean over the rest, of ((W~ - W) x)^2, from the spikes that the layer reads."""
    net = network("sew")
    name = "layer1.0.conv2"
    unit = Unit(net, (name,), Batches(net), Aim("current"))
    module: Any = net.float.projection(name)
    read: list[Tensor] = []
    handle = module.register_forward_pre_hook(lambda _m, args: read.append(args[0].double()))
    reset_neurons(net.float.model)
    with torch.no_grad(), same_draws():
        net.float.model(unit.batches[0])
    handle.remove()
    reset_neurons(net.float.model)
    rounded = net.values(name, net.weight(name).integers)
    difference = rounded - module.weight.double()
    errors = [F.conv2d(x, difference, None, module.stride, module.padding) for x in read]
    expected = sum(float(e.square().sum()) for e in errors) / sum(e.numel() / e.shape[-3] for e in errors)
    with unit.alone.cut_out(), torch.no_grad():
        found = float(unit.loss(0, {name: rounded.to(module.weight)}))
    potential = Unit(net, (name,), unit.batches)
    assert found == pytest.approx(expected, rel=1e-4)
    with potential.alone.cut_out(), torch.no_grad():
        assert float(potential.loss(0, {name: rounded.to(module.weight)})) != pytest.approx(expected, rel=0.1)


def test_what_is_read_behind_the_neurons_is_counted_in_spikes() -> None:
    """The error of a block with other weights is that of the spike counts that the head reads."""
    net = network("sew")
    unit = Unit(net, BLOCK, Batches(net), Aim("output"))
    nearest = {n: net.values(n, net.weight(n).integers).to(unit.weights[n]) for n in BLOCK}
    with unit.alone.cut_out(), torch.no_grad():
        found = float(unit.loss(0, nearest))
        exact = float(unit.loss(0, unit.weights))
    before = compared(net, unit.boundary, unit.batches[0])["fc"]
    net.settle(BLOCK, {})
    try:
        swapped: Any = type("Swapped", (), {"float": net.folded})
        after = compared(swapped, unit.boundary, unit.batches[0])["fc"]
    finally:
        net.folded = network("sew").folded
    channels = net.folded.discovery.neurons["layer2.0.sn2"].layout.channels
    total = sum(float((a - b).double().square().sum()) for a, b in zip(after, before, strict=True))
    assert found == pytest.approx(total * channels / sum(a.numel() for a in after), rel=1e-4)
    assert exact < 1e-9 < found


@pytest.mark.parametrize("name", ["sdt", "meta"])
def test_a_stream_is_compared_with_what_the_others_wrote(name: str) -> None:
    """Behind quantized blocks the error is that of the whole stream, as the next neuron reads it."""
    net = network(name)
    batches = Batches(net)
    blocks = find_blocks(net.folded.discovery.graph, attention=WHOLE_ATTENTION)
    streams = [b for b in blocks if find_boundary(net.folded.discovery, b, "output").shared and len(b) > 1]
    unit_names = streams[-1]
    for block in blocks[: blocks.index(unit_names)]:
        net.settle(block, {})
    unit = Unit(net, unit_names, batches, Aim("output"))
    (reader,) = unit.boundary.shared
    nearest = {n: net.values(n, net.weight(n).integers).to(unit.weights[n]) for n in unit_names}
    with unit.alone.cut_out(), torch.no_grad():
        found = [float(unit.loss(0, w)) for w in (unit.weights, nearest)]
    before = compared(net, unit.boundary, batches[0])[reader]
    quantized: Any = type("Quantized", (), {"float": net.folded})
    channels = unit.weights[unit.boundary.readers[reader]].shape[0]
    for loss in found:
        after = compared(quantized, unit.boundary, batches[0])[reader]
        total = sum(float((a - b).double().square().sum()) for a, b in zip(after, before, strict=True))
        assert loss == pytest.approx(total * channels / sum(a.numel() for a in after), rel=0.01)
        assert loss > 0
        net.settle(unit_names, {})  # for the second


def test_fisher_weights_of_the_outputs_are_those_of_the_softmax() -> None:
    """dKL/dlogits = softmax(q) - softmax(p), spread over what forward averages, in float64."""
    net = network("vgg")
    name = units(net)[-1]
    assert len(name) == 1
    boundary = find_boundary(net.folded.discovery, name, "current")
    assert boundary.outputs == name
    x = Batches(net)[0]
    logits = []
    rounded = Network(net.prepared, net.lattice)
    rounded.settle(name, {})
    for folded in (net.float, rounded.folded):
        reset_neurons(folded.model)
        with torch.no_grad(), same_draws():
            logits.append(net.prepared.readout(folded.model(x)).double())
        reset_neurons(folded.model)
    p, q = (y.softmax(1) for y in logits)
    found = gradients(net, boundary, x)[name[0]]
    whole = torch.stack([g.double().reshape(-1, len(x), q.shape[1]).sum(0) for g in found]).sum(0)
    torch.testing.assert_close(whole, (q - p) / len(x), rtol=1e-4, atol=1e-9)
    weights = fisher_weights(net, boundary, [x])[0][name[0]]
    square = torch.cat([g.square().flatten() for g in found])
    assert torch.cat([w.flatten() for w in weights]).float().mean() == pytest.approx(1.0, rel=0.02)
    torch.testing.assert_close(
        torch.cat([w.flatten() for w in weights]).float(), square / square.mean(), rtol=0.02, atol=1e-6
    )


@pytest.mark.parametrize("compares", ["potential", "current", "output"])
def test_fisher_weights_are_in_the_error_and_in_its_gradient(compares: str) -> None:
    """With one weight for all elements the error is the plain one; with others not."""
    net = network("sew")
    batches = Batches(net)
    plain, weighted = (Unit(net, BLOCK, batches, Aim(compares, fisher)) for fisher in (False, True))
    assert not plain.minds and set(weighted.minds[0]) == set(plain.boundary.places)
    nearest = {n: net.values(n, net.weight(n).integers).to(plain.weights[n]) for n in BLOCK}

    def error(unit: Unit) -> tuple[float, Tensor]:
        given = {n: (0.9 * w).requires_grad_() for n, w in nearest.items()}
        unit._targets.clear()
        unit._room = 2**28
        with unit.alone.cut_out():
            loss = unit.loss(0, given)
            grads = torch.autograd.grad(loss, list(given.values()))
        return float(loss.detach()), torch.cat([g.flatten() for g in grads])

    one = error(plain)
    other = error(weighted)
    weighted.minds = {
        0: {n: tuple(torch.full_like(w, 2.0) for w in ws) for n, ws in weighted.minds[0].items()}
    }
    twice = error(weighted)
    assert twice[0] == pytest.approx(2 * one[0], rel=1e-4)
    torch.testing.assert_close(twice[1], 2 * one[1], rtol=1e-3, atol=1e-6)
    assert other[0] != pytest.approx(one[0], rel=1e-3) and float(one[1].abs().max()) > 0


@pytest.mark.parametrize(
    ("names", "aim"),
    [(BLOCK, Aim("output")), (BLOCK, Aim("output", True)), (BLOCK, Aim("potential", True)),
     (("layer1.0.conv2",), Aim("current")), (BLOCK, Aim("current", True))],
)  # fmt: skip
def test_rounding_lowers_the_error_it_is_told_to_lower(
    names: tuple[str, ...], aim: Aim, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconstruction, "LEARNING_RATE", 1e-2)  # so that few iterations do
    net = network("sew")
    work = Reconstruction(net, 120, 0, aim)
    found = work.round_unit(names)
    unit = Unit(net, names, work.batches, aim)
    with unit.alone.cut_out():
        nearest, mine = (unit.total(q) for q in ({n: net.weight(n).integers for n in names}, found.integers))
    assert mine < nearest


def test_every_option_gives_other_integers() -> None:
    p = prepared("sew")
    made = []
    for changes in ({}, {"fisher": True}, {"reconstruction": "current"}, {"reconstruction": "output"}):
        recipe = RECIPE.replace(iterations=40, **changes)
        lattice = round_weights(p, Lattice.of(p.folded, p.seen, recipe), recipe)
        made.append(torch.cat([q.weight.integers.flatten() for q in lattice.projections.values()]))
    for i, a in enumerate(made):
        assert not any(torch.equal(a, b) for b in made[:i]), i


def test_attention_stays_whole_for_brecq_alone() -> None:
    g = prepared("meta").folded.discovery.graph
    whole = [b for b in find_blocks(g, attention=WHOLE_ATTENTION) if ".attn." in b[0]]
    assert [len(b) for b in whole] == [12, 12]  # q, k, v and the projection behind them, three layers each
    apart = find_blocks(g)
    assert all(len(b) == 1 for b in apart if ".attn." in b[0])
    others = [b for b in apart if ".attn." not in b[0]]
    assert others == [b for b in find_blocks(g, attention=WHOLE_ATTENTION) if ".attn." not in b[0]]
