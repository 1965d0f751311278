"""The table of operations: both readers know what it says, and the bounds that discovery derives hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from ptq4snn.discovery import rules
from ptq4snn.discovery.facts import Constant, Count, Fact
from ptq4snn.discovery.graph import Graph
from ptq4snn.discovery.operations import KINDS, READERS
from ptq4snn.discovery.record import record
from ptq4snn.lowering.lower import RULES as LOWERING

Binary = Callable[[Tensor, Tensor], Tensor]


def test_every_operation_has_one_kind() -> None:
    names = [name for members in KINDS.values() for name in members]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(("reader", "known"), [("discovery", rules.RULES), ("lowering", LOWERING)])
def test_the_readers_know_what_the_table_says(reader: str, known: dict[str, Any]) -> None:
    expected = {name for kind, members in KINDS.items() if reader in READERS[kind] for name in members}
    assert set(known) == expected


# ways to call the operations on x and y [2, 3, 4, 6] of integers; what ATen makes of them shows when they run
CALLS: dict[str, Binary] = {
    "add": lambda x, y: x + y,
    "add alpha": lambda x, y: torch.add(x, y, alpha=3),
    "add number": lambda x, y: x + 2,
    "sub": lambda x, y: x - y,
    "sub alpha": lambda x, y: torch.sub(x, y, alpha=2),
    "rsub": lambda x, y: torch.rsub(x, y, alpha=2),
    "rsub number": lambda x, y: 3 - x,
    "in place": lambda x, y: x.clone().add_(y).sub_(1),
    "mul": lambda x, y: x * y,
    "mul number": lambda x, y: x * -2,
    "div": lambda x, y: x / 4,
    "gt": lambda x, y: (x > y).to(x),
    "ge": lambda x, y: (x >= 1).to(x),
    "lt": lambda x, y: (x < y).to(x),
    "le": lambda x, y: (x <= 2).to(x),
    "eq": lambda x, y: (x == y).to(x),
    "ne": lambda x, y: (x != 0).to(x),
    "logical_and": lambda x, y: torch.logical_and(x, y).to(x),
    "logical_or": lambda x, y: torch.logical_or(x, y).to(x),
    "logical_xor": lambda x, y: torch.logical_xor(x, y).to(x),
    "logical_not": lambda x, y: torch.logical_not(x).to(x),
    "bitwise_and": lambda x, y: ((x > 0) & (y > 0)).to(x),
    "bitwise_or": lambda x, y: ((x > 0) | (y > 0)).to(x),
    "bitwise_xor": lambda x, y: ((x > 0) ^ (y > 0)).to(x),
    "bitwise_not": lambda x, y: (~(x > 0)).to(x),
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "clamp": lambda x, y: x.clamp(-1, 2),
    "clamp below": lambda x, y: x.clamp(min=1),
    "clamp above": lambda x, y: x.clamp(max=1),
    "clamp_min": lambda x, y: torch.clamp_min(x, 1),
    "clamp_max": lambda x, y: torch.clamp_max(x, 3),
    "hardtanh": lambda x, y: F.hardtanh(x),
    "hardtanh bounds": lambda x, y: F.hardtanh(x, -2, 1),
    "relu": lambda x, y: F.relu(x),
    "matmul": lambda x, y: x @ y.transpose(-1, -2),
    "mm": lambda x, y: x[0, 0] @ y[0, 0].t(),
    "mv": lambda x, y: torch.mv(x[0, 0], y[0, 0, 0]),
    "dot": lambda x, y: torch.dot(x[0, 0, 0], y[0, 0, 0]),
    "sum": lambda x, y: x.sum((1, 3)),
    "sum all": lambda x, y: x.sum(),
    "mean": lambda x, y: x.mean(-1, keepdim=True),
    "amax": lambda x, y: x.amax(2),
    "max": lambda x, y: x.max(1).values,
    "max all": lambda x, y: x.max(),
    "max_pool1d": lambda x, y: F.max_pool1d(x[0], 2),
    "max_pool2d": lambda x, y: F.max_pool2d(x, 3, 1, padding=1),
    "max_pool3d": lambda x, y: F.max_pool3d(x, (3, 2, 2)),
    "avg_pool1d": lambda x, y: F.avg_pool1d(x[0], 2),
    "avg_pool2d": lambda x, y: F.avg_pool2d(x, 2, 1, padding=1),
    "avg_pool3d": lambda x, y: F.avg_pool3d(x, (3, 2, 2)),
    "adaptive_avg_pool2d": lambda x, y: F.adaptive_avg_pool2d(x, (2, 3)),
    "adaptive_avg_pool3d": lambda x, y: F.adaptive_avg_pool3d(x, (1, 2, 3)),
    "adaptive_max_pool1d": lambda x, y: F.adaptive_max_pool1d(x[0], 2),
    "adaptive_max_pool2d": lambda x, y: F.adaptive_max_pool2d(x, (2, 3)),
    "adaptive_max_pool3d": lambda x, y: F.adaptive_max_pool3d(x, (1, 2, 3)),
    "bilinear": lambda x, y: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "nearest": lambda x, y: F.interpolate(x, scale_factor=2, mode="nearest"),
    "pad": lambda x, y: F.pad(x, (1, 0, 2, 1)),
    "pad with ones": lambda x, y: F.pad(x, (1, 1), value=1.0),
    "cat": lambda x, y: torch.cat([x, y], 1),
    "stack with zeros": lambda x, y: torch.stack([x, torch.zeros_like(x)]),
    "shapes": lambda x, y: x.permute(1, 0, 3, 2).flip(0).reshape(3, -1).roll(1, 0)[:, 1:].unsqueeze(0),
    "split": lambda x, y: x.split(2, -1)[1].chunk(2, 2)[0],
    "index": lambda x, y: x[:, torch.tensor([2, 0])].repeat(1, 2, 1, 1),
    "written": lambda x, y: _written(x, y),
}  # fmt: skip


def _written(x: Tensor, y: Tensor) -> Tensor:
    out = torch.zeros(3, *x.shape)
    out[0] = x
    out[2] = y
    return out


class Call(nn.Module):
    def __init__(self, call: Binary) -> None:
        super().__init__()
        self.call = call

    def forward(self, both: Tensor) -> Tensor:
        return self.call(both[0], both[1])


def derived(graph: Graph, given: Count) -> Fact:
    """What discovery says of the output where the input is `given`."""
    facts: dict[int, Fact] = {
        v.id: Constant(v.data) for v in graph.values if v.name not in ("result", "input")
    }
    facts[graph.inputs[0]] = given
    for _, node, _ in graph.visits():
        facts.update(
            zip(node.outputs, rules.apply(graph, node, [facts[v] for v in node.inputs]), strict=True)
        )
    return facts[graph.outputs[0]]


def check_bounds(name: str, lo: int, hi: int, factor: float, seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    integers = torch.randint(lo, hi + 1, (2, 2, 3, 4, 6), generator=g).double()
    graph, out = record(Call(CALLS[name]), integers * factor, lambda _n, _m: None)
    fact = derived(graph, Count(factor, float(lo), float(hi), frozenset(["n"])))
    if not isinstance(fact, Count):
        return  # refused: nothing is claimed
    found = out.double() / fact.factor
    assert torch.allclose(found, found.round(), atol=1e-6), (name, fact.factor)
    assert fact.lo <= float(found.min().round()) and float(found.max().round()) <= fact.hi, (name, fact)


@pytest.mark.parametrize("name", CALLS)
@settings(max_examples=25)
@given(
    lo=st.integers(-4, 3),
    width=st.integers(0, 5),
    factor=st.sampled_from([1.0, 0.5]),
    seed=st.integers(0, 99),
)
def test_bounds_contain_what_comes_out(name: str, lo: int, width: int, factor: float, seed: int) -> None:
    check_bounds(name, lo, lo + width, factor, seed)


@pytest.mark.parametrize("name", CALLS)
def test_spikes_are_followed(name: str) -> None:
    """0 and 1 in, counts out: nothing of the list is refused there."""
    x = torch.ones(2, 2, 3, 4, 6).double()
    graph, _ = record(Call(CALLS[name]), x, lambda _n, _m: None)
    fact = derived(graph, Count(1.0, 0.0, 1.0, frozenset(["n"])))
    assert isinstance(fact, Count), fact


def test_the_list_calls_every_operation_of_the_table() -> None:
    seen: set[str] = set()
    for call in CALLS.values():
        graph, _ = record(Call(call), torch.ones(2, 2, 3, 4, 6).double(), lambda _n, _m: None)
        seen |= {node.op for node in graph.nodes}
    moves = set(KINDS["shape"])
    never = {  # torch turns these into others before they can be recorded, or has them for other devices
        "max_pool1d", "max_pool2d", "max_pool3d", "max_pool1d_with_indices", "adaptive_max_pool1d", "matmul",
        "avg_pool1d", "copy",
    }  # fmt: skip
    assert {n for members in KINDS.values() for n in members} - moves - never <= seen
