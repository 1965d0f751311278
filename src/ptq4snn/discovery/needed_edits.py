"""Which calls of a recorded forward pass have to be edited (network/edit.py) so that integers can follow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from contextlib import suppress
from typing import Any

from torch import nn

from ptq4snn.discovery.editing import spread
from ptq4snn.discovery.graph import Graph, Node, Ref, Wish
from ptq4snn.discovery.walk import walk
from ptq4snn.errors import UnsupportedOperation
from ptq4snn.network.edit import Edit

__all__ = ["constants", "edits_of", "needed_edits"]

PRODUCTS = {"convolution", "addmm", "mm", "bmm", "linear"}


def needed_edits(graph: Graph, model: nn.Module) -> tuple[Edit, ...]:
    """Products with parameters first: what comes behind them can be followed only when they are modules."""
    wishes = _loose_products(graph)
    if not wishes:
        graph.wishes = []
        with suppress(UnsupportedOperation):  # told again when the edits are made
            walk(graph, model)
        wishes, graph.wishes = graph.wishes, None
    return tuple(edits_of(graph, wishes, model))


def constants(graph: Graph) -> set[int]:
    """Values that are made of parameters and literals alone."""
    found = {v.id for v in graph.values if v.name is not None and v.name not in ("input", "result")}
    for node in graph.nodes:
        if node.kind == "op" and all(i in found for i in node.inputs):
            found.update(node.outputs)
    return found


def _loose_products(graph: Graph) -> list[Wish]:
    """Calls of linear, conv or a matrix product whose weight is a constant."""
    constant = constants(graph)
    origin = _origins(graph)
    wishes = []
    for node in graph.nodes:
        if node.op not in PRODUCTS or node.site is None:
            continue
        x, weight = _factors(node)
        if weight is None or x in constant or weight not in constant:
            continue
        shape = graph.values[weight].shape
        if node.op == "convolution":
            if not node.given["transposed"]:
                wishes.append(Wish("plain", node, 0, shape, 0, origin.get(weight)))
        elif len(shape) == 2:
            wishes.append(Wish("plain", node, 0, (shape[1], shape[0]), -1, origin.get(weight)))
    return wishes


def _factors(node: Node) -> tuple[int | None, int | None]:
    """Input and weight of a product."""
    names = {"convolution": ("input", "weight"), "addmm": ("mat1", "mat2")}.get(node.op, ("self", "mat2"))
    x, weight = (node.given.get(n) for n in names)
    return (x.value if isinstance(x, Ref) else None), (weight.value if isinstance(weight, Ref) else None)


def _origins(graph: Graph) -> dict[int, str]:
    """The parameter that a constant is made of."""
    found = {v.id: v.name for v in graph.values if v.name not in (None, "input", "result", "constant")}
    for node in graph.nodes:
        names = [found[i] for i in node.inputs if i in found]
        if node.kind == "op" and names:
            found.update(dict.fromkeys(node.outputs, names[0]))
    return found


def edits_of(graph: Graph, wishes: list[Wish], model: nn.Module) -> list[Edit]:
    """The edits that fulfil the wishes."""
    taken = Counter[str]()
    by_site: dict[tuple[str, int], list[Wish]] = {}
    for w in wishes:
        assert w.node.site is not None
        by_site.setdefault((w.node.scope, w.node.site.place), []).append(w)
    edits = []
    for (scope, place), here in by_site.items():
        keys = _keys(graph, scope, place, here)
        period = _period(keys)
        for turn, key in enumerate(max(keys, key=len)[:period]):
            wish = next((w for w in here if (w.kind, w.key) == key), None)
            if wish is not None:
                edits.append(_edit(graph, wish, place, turn, period, _name(model, scope, wish.kind, taken)))
    return edits


def _keys(graph: Graph, scope: str, place: int, wishes: list[Wish]) -> list[list[Hashable]]:
    """What the place needs, turn by turn, in every call of the module."""
    wanted = {w.node.site: (w.kind, w.key) for w in wishes}
    calls: dict[int, dict[int, Hashable]] = {}
    for node in graph.nodes:
        if node.scope == scope and node.site is not None and node.site.place == place:
            turns = calls.setdefault(node.site.call, {})
            turns[node.site.turn] = wanted.get(node.site) or turns.get(node.site.turn)
    return [[turns.get(t) for t in range(max(turns) + 1)] for turns in calls.values()]


def _period(keys: list[list[Hashable]]) -> int:
    """The least number of turns after which a place begins again."""
    pattern = max(keys, key=len)
    periods = range(1, len(pattern) + 1)
    return next(
        p
        for p in periods
        if all(k[t] == pattern[t % p] for k in keys for t in range(len(k))) or p == len(pattern)
    )


def _name(model: nn.Module, scope: str, kind: str, taken: Counter[str]) -> str:
    """`shortcut`, `shortcut1`, ...: the first that the module has not."""
    module = model.get_submodule(scope)
    while True:
        number = taken[f"{scope}.{kind}"]
        taken[f"{scope}.{kind}"] += 1
        name = f"{kind}{number or ''}"
        if not hasattr(module, name):
            return name


def _edit(graph: Graph, wish: Wish, place: int, turn: int, period: int, child: str) -> Edit:
    settings: tuple[Any, ...] = ()
    if wish.kind == "plain" and wish.node.op == "convolution":
        given, rank = wish.node.given, len(wish.shape) - 2
        settings = tuple(spread(given[s], rank) for s in ("stride", "padding", "dilation"))
        settings = (*settings, (given["groups"],))
    parameters = (wish.key,) if wish.kind == "plain" and wish.key is not None else ()
    return Edit(
        wish.kind, wish.node.scope, place, turn, period, child, wish.operand, tuple(wish.shape), wish.axis,
        settings, parameters,
    )  # fmt: skip
