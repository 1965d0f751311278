"""Inputs added up over time (rounding/filtered.py): against loops, and against the neurons' own currents."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from conftest import build, pixels
from rounding.families import RECIPE, seeded
from rounding.families import prepared as family
from torch import Tensor, nn

from ptq4snn.bridge.lattice import Lattice
from ptq4snn.discovery.discover import reset_neurons
from ptq4snn.discovery.info import RowOrder
from ptq4snn.frameworks import Shell
from ptq4snn.models.neuron import IF, LIF
from ptq4snn.models.vgg import SpikingVGG
from ptq4snn.pipeline import Prepared, prepare, run
from ptq4snn.prepared import Cache
from ptq4snn.recipe import Recipe
from ptq4snn.rounding.filtered import Filter, find_filters
from ptq4snn.rounding.network import Network
from ptq4snn.rounding.stage import round_weights

LEAK = 0.75
T, B, N = 5, 3, 4  # steps, samples, tokens
SBC = RECIPE.replace(rounding="sbc", weight_allocation="uniform")  # RECIPE has 3 bits
soft = functools.partial(LIF, tau=4.0, v_reset=None, v_threshold=0.6)


class Loop(nn.Module):
    """A step a call, without leak; a projection of images and one of features."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.n0 = nn.Conv2d(3, 6, 3, padding=1), IF(v_reset=None)
        self.mix, self.n1 = nn.Conv2d(6, 8, 3, padding=1), IF(v_threshold=0.8, v_reset=None)
        self.flat, self.n2 = nn.Linear(8 * 16, 10), IF(v_threshold=0.5, v_reset=None)
        self.head = nn.Linear(10, 4)
        with torch.no_grad():
            for layer in (self.stem, self.mix, self.flat):
                layer.weight.mul_(3)  # so that all fire

    def forward(self, x: Tensor) -> Tensor:  # [B, 3, 4, 4]
        logits = []
        steps = [self.stem(x * (1 + t % 2)) for t in range(T)]
        for y in self.n0(torch.stack(steps)):
            logits.append(self.mix(y))
        z = self.n1(torch.stack(logits))
        z = self.n2(torch.stack([self.flat(now.flatten(1)) for now in z]))
        return self.head(z.mean(0))


MODELS: dict[str, tuple[Callable[[], nn.Module], int]] = {  # and the size of its images
    "steps first": (lambda: build(neuron=soft), 12),
    "pooled": (lambda: seeded(lambda: SpikingVGG(((8,), (8, 8)), neuron=soft)), 8),
    "calls": (lambda: seeded(Loop), 4),
}


@functools.cache
def _prepared(name: str) -> Prepared:
    make, size = MODELS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return prepare(make(), pixels(24, size), SBC)


def prepared(name: str) -> Prepared:
    """With nothing rounded yet."""
    return replace(_prepared(name), cache=Cache())


def network(p: Prepared) -> Network:
    return Network(p, Lattice.of(p.folded, p.seen, SBC))


def integers(p: Prepared, recipe: Recipe) -> dict[str, Tensor]:
    made = round_weights(p, Lattice.of(p.folded, p.seen, recipe), recipe).projections
    return {n: w.weight.integers for n, w in made.items() if w.info.reads != "data"}


def added_up(x: Tensor, leaks: tuple[float, ...] = (LEAK,)) -> Tensor:
    """x [T, ...], a step at a time, by one leak after the other."""
    for leak in leaks:
        total, found = torch.zeros_like(x[0]), []
        for now in x:
            total = leak * total + now
            found.append(total)
        x = torch.stack(found)
    return x


# from [T, B, N, C]: where the steps are, and the order that says so
ORDERS: dict[str, tuple[Callable[[Tensor], Tensor], RowOrder, int]] = {
    "steps first": (lambda x: x[:, :, 0].flatten(0, 1), RowOrder(1, 0), 1),
    "steps first, tokens": (lambda x: x, RowOrder(N, 0), 1),
    "samples first": (lambda x: x[:, :, 0].transpose(0, 1), RowOrder(1, 1), 1),
    "samples first, tokens": (lambda x: x.transpose(0, 1).flatten(0, 2), RowOrder(N, N), 1),
    "images": (lambda x: x.flatten(0, 1)[..., None], RowOrder(1, 0), 3),  # N channels of C x 1 pixels
}


@pytest.mark.parametrize("leaks", [(LEAK,), (0.5, 0.9)])
@pytest.mark.parametrize("case", ORDERS)
def test_every_order_of_rows(case: str, leaks: tuple[float, ...]) -> None:
    lay, order, axes = ORDERS[case]
    x = torch.randn(T, B, N, 6, generator=torch.Generator().manual_seed(0))
    f = Filter(leaks, order, axes)
    f.begin(B)
    torch.testing.assert_close(f(lay(x)), lay(added_up(x, leaks)))


@pytest.mark.parametrize("leaks", [(LEAK,), (0.5, 0.9)])
def test_calls_are_steps_and_a_batch_begins_anew(leaks: tuple[float, ...]) -> None:
    x = torch.randn(T, B, 6, generator=torch.Generator().manual_seed(0))
    f = Filter(leaks, None, 1)
    for _ in range(2):
        f.begin(B)
        torch.testing.assert_close(torch.stack([f(now) for now in x]), added_up(x, leaks))


@pytest.mark.parametrize("name", MODELS)
def test_they_are_what_the_membranes_add_up(name: str) -> None:
    """W x~ + b (1 + leak + ...) is the neuron's own currents added up, where nothing lies between."""
    p = prepared(name)
    made = network(p)
    folded = made.folded
    filters = find_filters(made, tuple(folded.discovery.projections))
    spiking = {n for n, info in folded.discovery.projections.items() if info.reads == "count" and info.feeds}
    assert set(filters) == spiking and len(spiking) >= 2
    for projection, f in filters.items():
        (neuron,) = folded.discovery.projections[projection].feeds
        read, driven = _recorded(folded, projection, neuron, p.kept[0], f)
        module: Any = folded.projection(projection)
        (leak,) = f.leaks
        shape = [-1] + [1] * (module.weight.dim() - 2)
        bias = (torch.zeros(len(module.weight)) if module.bias is None else module.bias).reshape(shape)
        found = (module(read) - bias).reshape(len(driven), *driven[0].shape)  # all have their steps first
        ones = added_up(torch.ones(len(driven)), (leak,)).reshape(-1, 1, *[1] * len(shape))
        torch.testing.assert_close(
            found + bias * ones, added_up(torch.stack(driven), (leak,)), rtol=1e-4, atol=1e-4
        )


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


@pytest.mark.parametrize("name", MODELS)
def test_it_leaves_less_of_what_is_added_up(name: str) -> None:
    """Over all projections of a network, behind float inputs, by more than chance."""
    errors = {}
    for rounding in ("gptq", "sbc"):
        p = prepared(name)
        found, made = integers(p, RECIPE.replace(rounding=rounding)), network(p)
        filters = find_filters(made, tuple(found))
        errors[rounding] = sum(_error(made, n, found[n], f) for n, f in filters.items())
    assert errors["sbc"] < 0.98 * errors["gptq"], errors


def _error(made: Network, name: str, found: Tensor, f: Filter) -> float:
    """|dW x~|^2 of one projection, in shares of |W x~|^2."""
    module: Any = made.folded.projection(name)
    weight = made.folded.weight(name)
    off = made.values(name, found).to(weight) - weight
    total = {"off": 0.0, "all": 0.0}

    def add(_m: Any, args: Any) -> None:
        x = f(args[0])
        for key, w in (("off", off), ("all", weight)):
            y = x @ w.T if w.dim() == 2 else nn.functional.conv2d(x, w, None, module.stride, module.padding)
            total[key] += float(y.square().sum())

    hook = module.register_forward_pre_hook(add)
    try:
        for x in made.prepared.kept:
            f.begin(len(x))
            reset_neurons(made.folded.model)
            with torch.no_grad():
                made.folded.model(x)
    finally:
        hook.remove()
        reset_neurons(made.folded.model)
    return total["off"] / total["all"]


@pytest.mark.parametrize("name", ["sew", "sdt"])
def test_where_resets_forget_it_is_gptq(name: str) -> None:
    p = family(name)
    made = network(p)
    assert find_filters(made, tuple(made.folded.discovery.projections)) == {}
    same = [integers(replace(p, cache=Cache()), RECIPE.replace(rounding=r)) for r in ("gptq", "sbc")]
    assert all(torch.equal(same[0][n], same[1][n]) for n in same[0])


def test_it_is_a_rounding_like_the_others() -> None:
    p = prepared("steps first")
    q = run(p, SBC)
    found = integers(p, SBC)
    assert all(torch.equal(q.integers[n].weight, w) for n, w in found.items())
    plain = integers(p, RECIPE.replace(rounding="gptq"))
    assert any(not torch.equal(plain[n], w) for n, w in found.items())
