"""Inputs added up over time (rounding/filtered.py): against loops, and against the neurons' own currents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from rounding.families import RECIPE, prepared
from rounding.test_stage import fresh, lattice, rounded
from torch import Tensor

from ptq4snn.discovery.discover import reset_neurons
from ptq4snn.discovery.info import RowOrder
from ptq4snn.frameworks import Shell
from ptq4snn.pipeline import run
from ptq4snn.rounding.filtered import Filter, find_filters
from ptq4snn.rounding.network import Network

LEAK = 0.75
T, B, N = 5, 3, 4  # steps, samples, tokens


def added_up(x: Tensor) -> Tensor:
    """x [T, ...], a step at a time."""
    total, found = torch.zeros_like(x[0]), []
    for now in x:
        total = LEAK * total + now
        found.append(total)
    return torch.stack(found)


ORDERS: dict[
    str, tuple[Callable[[Tensor], Tensor], RowOrder, int]
] = {  # from [T, B, N, C]: where the steps are, and the order that says so
    "steps first": (lambda x: x[:, :, 0].flatten(0, 1), RowOrder(1, 0), 1),
    "steps first, tokens": (lambda x: x, RowOrder(N, 0), 1),
    "samples first": (lambda x: x[:, :, 0].transpose(0, 1), RowOrder(1, 1), 1),
    "samples first, tokens": (lambda x: x.transpose(0, 1).flatten(0, 2), RowOrder(N, N), 1),
    "images": (lambda x: x.flatten(0, 1)[..., None], RowOrder(1, 0), 3),  # N channels of C x 1 pixels
}


@pytest.mark.parametrize("case", ORDERS)
def test_every_order_of_rows(case: str) -> None:
    lay, order, axes = ORDERS[case]
    x = torch.randn(T, B, N, 6, generator=torch.Generator().manual_seed(0))
    f = Filter(LEAK, order, axes)
    f.begin(B)
    torch.testing.assert_close(f(lay(x)), lay(added_up(x)))


def test_calls_are_steps_and_a_batch_begins_anew() -> None:
    x = torch.randn(T, B, 6, generator=torch.Generator().manual_seed(0))
    f = Filter(LEAK, None, 1)
    for _ in range(2):
        f.begin(B)
        torch.testing.assert_close(torch.stack([f(now) for now in x]), added_up(x))


@pytest.mark.parametrize("name", ["sew", "vgg", "sdt", "loop"])
def test_they_are_what_the_membranes_add_up(name: str) -> None:
    """W x~ + b (1 + leak + ...) is the neuron's own currents filtered step by step, where nothing lies
    between projection and neuron."""
    p = prepared(name)
    network = Network(p, lattice(p, RECIPE))
    folded = network.folded
    filters = find_filters(network, tuple(folded.discovery.projections))
    direct = [n for n in filters if _reads_it_directly(folded, n)]
    assert direct
    for projection in direct:
        (neuron,) = folded.discovery.projections[projection].feeds
        read, driven = _recorded(folded, projection, neuron, p.kept[0], filters[projection])
        spec = folded.specs[neuron]
        leak, gain = float(torch.as_tensor(spec.leak)), float(torch.as_tensor(spec.gain))
        module: Any = folded.projection(projection)
        expected, total = [], torch.zeros_like(driven[0])
        for now in driven:
            total = leak * total + gain * now
            expected.append(total)
        bias = torch.zeros(len(module.weight)) if module.bias is None else module.bias
        shape = [-1] + [1] * (module.weight.dim() - 2)
        found = module(read) - bias.reshape(shape)
        found = found.reshape(len(driven), *driven[0].shape)  # these networks have their steps first
        weights = torch.tensor([sum(leak**k for k in range(t + 1)) for t in range(len(driven))])
        spread = bias.reshape(shape) * weights.reshape(-1, 1, *[1] * len(shape))
        torch.testing.assert_close(gain * (found + spread), torch.stack(expected), rtol=1e-4, atol=1e-4)


def _reads_it_directly(folded: Any, projection: str) -> bool:
    info = folded.discovery.projections[projection]
    neurons = [folded.discovery.neurons[n] for n in info.feeds]
    pools = [op for n in neurons for op in n.ops if "pool" in op or "mean" in op]
    return info.role == "pair" and len(neurons) == 1 and not pools


def _recorded(folded: Any, projection: str, neuron: str, x: Tensor, f: Filter) -> tuple[Tensor, list[Tensor]]:
    """What the projection reads, filtered, and the currents of the neuron at every step."""
    read: list[Tensor] = []
    driven: list[Tensor] = []
    shell = folded.model.get_submodule(neuron)
    assert isinstance(shell, Shell)
    f.begin(len(x))
    hook = folded.projection(projection).register_forward_pre_hook(lambda _m, a: read.append(f(a[0])))
    shell.core.probe = lambda i, _h, _s, _v, _t: driven.append(i.clone())
    reset_neurons(folded.model)
    try:
        with torch.no_grad():
            folded.model(x)
    finally:
        hook.remove()
        shell.core.probe = None
        reset_neurons(folded.model)
    return torch.cat(read), driven


@pytest.mark.parametrize("name", ["sew", "vgg"])
def test_it_leaves_less_of_what_is_added_up(name: str) -> None:
    """Of every network's projections together, by more than chance."""
    p = fresh(name)
    made = lattice(p)
    errors = {}
    for rounding in ("gptq", "sbc"):
        integers = rounded(fresh(name), RECIPE.replace(rounding=rounding))
        network = Network(p, made)
        filters = find_filters(network, tuple(integers))
        errors[rounding] = sum(_error(network, n, integers[n], f) for n, f in filters.items())
    assert errors["sbc"] < 0.98 * errors["gptq"], errors


def _error(network: Network, name: str, integers: Tensor, f: Filter) -> float:
    """|dW x~|^2 of one projection behind float ones."""
    module: Any = network.folded.projection(name)
    off = (network.values(name, integers) - network.folded.weight(name).double()).float()
    total = 0.0

    def add(_m: Any, args: Any) -> None:
        nonlocal total
        y = torch.nn.functional.conv2d(f(args[0]), off, None, module.stride, module.padding)
        total += float(y.square().sum())

    hook = module.register_forward_pre_hook(add)
    try:
        for x in network.prepared.kept:
            f.begin(len(x))
            reset_neurons(network.folded.model)
            with torch.no_grad():
                network.folded.model(x)
    finally:
        hook.remove()
        reset_neurons(network.folded.model)
    return total


@pytest.mark.filterwarnings("ignore::ptq4snn.errors.SilentNetworkWarning")
@pytest.mark.parametrize("name", ["sew", "sdt"])
def test_it_is_a_rounding_like_the_others(name: str) -> None:
    p = fresh(name)
    q = run(p, RECIPE.replace(rounding="sbc"))
    assert torch.isfinite(q(p.held_out[0])).all()
    assert any(
        not torch.equal(a, b)
        for a, b in zip(
            rounded(p, RECIPE.replace(rounding="sbc")).values(),
            rounded(p, RECIPE.replace(rounding="gptq")).values(),
            strict=True,
        )
    )
