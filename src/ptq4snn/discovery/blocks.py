"""Blocks: parts of the data flow with one way in and one way out, found in the recorded graph.

A block lies between a fork and its immediate post-dominator (where all its paths meet again, e.g. the add of
a residual), if the fork dominates that. Calls of one module are one vertex, and operations alike on the same
vertices too, so that a time loop is seen as one step.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ptq4snn.discovery.graph import Graph, Node
from ptq4snn.discovery.operations import KINDS

__all__ = ["INPUT", "OUTPUT", "WHOLE_ATTENTION", "calls", "find_blocks", "readers"]

LARGEST = 8  # projections of one block
WHOLE_ATTENTION = 24  # of an attention, where it is to be kept whole
PRODUCTS = KINDS["multiply"] + KINDS["product"]
INPUT, OUTPUT = "<input>", "<output>"  # of the model, among the readers
ENTRY = 0
EXIT = 1


@dataclass
class Flow:
    """Vertices that data flows through: ENTRY and EXIT, modules, operations."""

    after: list[set[int]] = field(default_factory=lambda: [set(), set()])
    projection: dict[int, str] = field(default_factory=dict)
    neuron: dict[int, str] = field(default_factory=dict)
    products: set[int] = field(default_factory=set)  # operations that multiply data by data

    def vertex(self) -> int:
        self.after.append(set())
        return len(self.after) - 1


def calls(graph: Graph) -> dict[str, int]:
    """How often one forward pass calls every projection, in the order of their first calls."""
    counts: dict[str, int] = {}
    for node in graph.nodes:
        if node.kind == "projection":
            counts[node.target] = counts.get(node.target, 0) + 1
    return counts


def find_blocks(graph: Graph, largest: int = LARGEST, attention: int = 0) -> list[tuple[str, ...]]:
    """Every projection in one block, in execution order: the largest of at most `largest` projections that
    holds it, else itself alone. The smallest block around a product of data and data, which is an attention,
    may have as many as `attention`."""
    order, flow = list(calls(graph)), _flow(graph)
    found = _regions(flow)
    smallest = sorted(found, key=lambda r: len(r.inside))
    around = [next((r for r in smallest if v in r.inside), None) for v in flow.products]
    regions = [
        r.projections
        for r in found
        if 1 < len(r.projections) <= (max(largest, attention) if r in around else largest)
    ]
    regions.sort(key=len, reverse=True)
    blocks: list[tuple[str, ...]] = []
    placed: set[str] = set()
    for name in order:
        if name in placed:
            continue
        held = next((r for r in regions if name in r and not r & placed), frozenset([name]))
        blocks.append(tuple(n for n in order if n in held))
        placed |= held
    return blocks


def readers(graph: Graph) -> dict[str, set[str]]:
    """For INPUT and every module: the modules that it reaches through operations alone, and OUTPUT."""
    flow = _flow(graph)
    modules = {ENTRY: INPUT, EXIT: OUTPUT, **flow.projection, **flow.neuron}
    found: dict[str, set[str]] = {}
    for vertex, name in modules.items():
        todo, seen = list(flow.after[vertex]), set()
        while todo:
            v = todo.pop()
            if v not in seen:
                seen.add(v)
                todo += flow.after[v] if v not in modules else ()
        found[name] = {modules[v] for v in seen if v in modules}
    return found


def _flow(graph: Graph) -> Flow:
    flow = Flow()
    vertices: dict[object, int] = {}
    at = dict.fromkeys(graph.inputs, ENTRY)  # value -> vertex; constants have none
    for node in graph.nodes:
        before = {at[v] for v in node.inputs if v in at}
        if not before:
            continue
        key = _identity(node, before)
        if key not in vertices:
            vertices[key] = flow.vertex()
        vertex = vertices[key]
        if node.kind == "projection":
            flow.projection[vertex] = node.target
        if node.kind == "neuron":
            flow.neuron[vertex] = node.target
        if node.kind == "op" and node.op in PRODUCTS and len(before) > 1:
            flow.products.add(vertex)
        for b in before - {vertex}:  # a neuron that is handed its own membrane
            flow.after[b].add(vertex)
        at.update(dict.fromkeys(node.outputs, vertex))
    for v in graph.outputs:
        if v in at:
            flow.after[at[v]].add(EXIT)
    return flow


def _identity(node: Node, before: Iterable[int]) -> object:
    """What makes two nodes one vertex. Numbers do not: time steps are selected by them."""
    return (node.kind, node.target) if node.kind != "op" else (node.target, frozenset(before))


@dataclass(frozen=True)
class Region:
    """A part between a fork and its immediate post-dominator: its vertices, and the projections of them."""

    inside: frozenset[int]
    projections: frozenset[str]


def _regions(flow: Flow) -> list[Region]:
    before: list[set[int]] = [set() for _ in flow.after]
    for v, following in enumerate(flow.after):
        for w in following:
            before[w].add(v)
    dominator = _immediate_dominators(flow.after, before, ENTRY)
    postdominator = _immediate_dominators(before, flow.after, EXIT)
    regions = []
    for fork, following in enumerate(flow.after):
        meet = postdominator.get(fork)
        if len(following) < 2 or meet is None or not _dominates(dominator, fork, meet):
            continue
        inside = _between(flow.after, fork, meet)
        if all(_dominates(dominator, fork, v) for v in inside):
            names = frozenset(flow.projection[v] for v in inside if v in flow.projection)
            regions.append(Region(frozenset(inside), names))
    return regions


def _between(after: list[set[int]], fork: int, meet: int) -> set[int]:
    """Vertices on the paths from `fork` to `meet`, without both."""
    inside: set[int] = set()
    todo = list(after[fork])
    while todo:
        v = todo.pop()
        if v not in inside and v not in (fork, meet):
            inside.add(v)
            todo += after[v]
    return inside


def _dominates(dominator: dict[int, int], a: int, b: int) -> bool:
    while b != a and dominator.get(b, b) != b:
        b = dominator[b]
    return a == b


def _immediate_dominators(after: list[set[int]], before: list[set[int]], root: int) -> dict[int, int]:
    """Of every vertex that `root` reaches (Cooper, Harvey and Kennedy, 2001); the root's is itself."""
    order = _postorder(after, root)
    rank = {v: i for i, v in enumerate(order)}
    found = {root: root}

    def meet(a: int, b: int) -> int:
        while a != b:
            while rank[a] < rank[b]:
                a = found[a]
            while rank[b] < rank[a]:
                b = found[b]
        return a

    changed = True
    while changed:
        changed = False
        for v in reversed(order[:-1]):
            known = [p for p in before[v] if p in found]
            new = known[0]
            for p in known[1:]:
                new = meet(p, new)
            if found.get(v) != new:
                found[v], changed = new, True
    return found


def _postorder(after: list[set[int]], root: int) -> list[int]:
    """Vertices reachable from `root`, each behind what it reaches."""
    order: list[int] = []
    seen = {root}
    stack = [(root, iter(sorted(after[root])))]
    while stack:
        vertex, following = stack[-1]
        child = next((w for w in following if w not in seen), None)
        if child is None:
            order.append(vertex)
            stack.pop()
        else:
            seen.add(child)
            stack.append((child, iter(sorted(after[child]))))
    return order
