"""The order in which nodes of a graph run, and the edges on which something goes round."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ptq4snn.errors import UnsupportedModel

__all__ = ["Edge", "order_of"]

Edge = tuple[str, str]


def order_of(
    nodes: Iterable[str], edges: Sequence[Edge], neurons: frozenset[str]
) -> tuple[list[str], frozenset[Edge]]:
    """Nodes in an order in which only the second, edges behind a neuron, are read before they are made.

    An edge that closes a circle is moved back to where the circle leaves its last neuron: it is the spikes of
    the step before that come back, not what was made of them.
    """
    names = list(nodes)
    back: set[Edge] = set()
    for a, b in _closing(names, edges):
        todo = [(a, b)]
        while todo:
            edge = todo.pop()
            if edge[0] in neurons:
                back.add(edge)
                continue
            before = [e for e in edges if e[1] == edge[0]]
            if not before or len([e for e in edges if e[0] == edge[0]]) > 1:
                raise UnsupportedModel(
                    f"the circle through '{edge[0]}' in the NIR graph has no neuron, or leaves it by several ways"
                )
            todo += before
    return _sorted(names, [e for e in edges if e not in back]), frozenset(back)


def _closing(names: Sequence[str], edges: Sequence[Edge]) -> list[Edge]:
    """Edges to a node that the walk from the inputs has not left yet."""
    after = {n: [b for a, b in edges if a == n] for n in names}
    reached = {b for _, b in edges}
    state: dict[str, int] = {}
    found: list[Edge] = []
    for root in [n for n in names if n not in reached] + list(names):
        if root in state:
            continue
        state[root] = 1
        stack = [(root, iter(after[root]))]
        while stack:
            node, following = stack[-1]
            child = next(following, None)
            if child is None:
                state[node] = 2
                stack.pop()
            elif child not in state:
                state[child] = 1
                stack.append((child, iter(after[child])))
            elif state[child] == 1:
                found.append((node, child))
    return found


def _sorted(names: Sequence[str], edges: Sequence[Edge]) -> list[str]:
    order: list[str] = []
    while len(order) < len(names):
        ready = [n for n in names if n not in order and all(a in order for a, b in edges if b == n)]
        if not ready:
            raise UnsupportedModel("the NIR graph goes round in a way that has no order")
        order.append(ready[0])
    return order
