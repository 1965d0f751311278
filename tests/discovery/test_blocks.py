"""Blocks come from the data flow: residuals and attention, whatever classes they are made of."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from oracles.meta_spikeformer import pixels, small
from torch import Tensor, nn

from ptq4snn.discovery.blocks import INPUT, OUTPUT, calls, find_blocks, readers
from ptq4snn.discovery.discover import discover
from ptq4snn.discovery.graph import Graph
from ptq4snn.models.neuron import LIF
from ptq4snn.models.sdt import SpikeDrivenTransformer
from ptq4snn.models.sew_resnet import SEWResNet
from ptq4snn.models.vgg import SpikingVGG


def graph(model: nn.Module, *shape: int) -> Graph:
    return discover(model, torch.rand(2, *shape, generator=torch.Generator().manual_seed(0))).graph


def several(found: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    return [b for b in found if len(b) > 1]


def test_basic_blocks(small_model: Callable[..., SEWResNet]) -> None:
    found = find_blocks(graph(small_model(), 3, 12, 12))
    assert found == [
        ("conv1",),
        ("layer1.0.conv1", "layer1.0.conv2", "layer1.0.downsample.0"),
        ("layer2.0.conv1", "layer2.0.conv2", "layer2.0.downsample.0"),
        ("fc",),
    ]


def test_an_identity_is_a_branch_too() -> None:
    found = find_blocks(graph(SEWResNet((8,), (2,), (1,), stem=8), 3, 8, 8))
    assert several(found) == [(f"layer1.{i}.conv1", f"layer1.{i}.conv2") for i in range(2)]


def test_attention_and_mlp_of_a_transformer() -> None:
    found = find_blocks(graph(SpikeDrivenTransformer(16, 2, 2), 3, 16, 16))
    expected = []
    for i in range(2):
        expected.append(tuple(f"block.{i}.attn.{n}_conv" for n in ("q", "k", "v", "proj")))
        expected.append((f"block.{i}.mlp.fc1_conv", f"block.{i}.mlp.fc2_conv"))
    assert several(found) == expected


def test_a_plain_stack_has_single_layers() -> None:
    g = graph(SpikingVGG(((8,), (8,))), 3, 8, 8)
    assert find_blocks(g) == [(n,) for n in calls(g)]


def test_a_region_that_is_too_large_falls_apart() -> None:
    g = discover(small("plain"), pixels(2)).graph
    found = find_blocks(g)
    attention = [b for b in found if any(".attn." in n for n in b)]
    assert all(len(b) == 1 for b in attention)  # 12 projections: four RepConvs of three
    assert ("block3.0.mlp.fc1_conv", "block3.0.mlp.fc2_conv") in found
    whole = find_blocks(g, largest=12)
    assert max(len(b) for b in whole if ".attn." in b[0]) == 12
    for blocks in (found, whole):
        assert sorted(n for b in blocks for n in b) == sorted(calls(g))


class Loop(nn.Module):
    """A residual made of functions, in a Python loop over time; `shared` runs twice in a step."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.a, self.b = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.shared, self.last = nn.Linear(8, 8), nn.Linear(8, 3)
        self.n1, self.n2, self.n3, self.n4, self.n5 = (LIF(v_threshold=0.3) for _ in range(5))

    def forward(self, x: Tensor) -> Tensor:  # [B, T, 6]
        counts = torch.zeros(x.shape[0], 3)
        for t in range(x.shape[1]):
            y = self.n1(self.first(x[:, t]).unsqueeze(0))
            branch = self.n3(self.b(self.n2(self.a(y))))
            y = torch.add(branch, y)
            y = self.n5(self.shared(self.n4(self.shared(y))))
            counts = counts + self.last(y)[0]
        return counts / x.shape[1]


def test_a_functional_residual_in_a_time_loop() -> None:
    g = graph(Loop(), 3, 6)
    assert find_blocks(g) == [("first",), ("a", "b"), ("shared",), ("last",)]
    assert calls(g) == {"first": 3, "a": 3, "b": 3, "shared": 6, "last": 3}


def test_readers_are_reached_through_operations_alone() -> None:
    found = readers(graph(Loop(), 3, 6))
    assert found[INPUT] == {"first"}
    assert found["n1"] == {"a", "shared"} and found["n3"] == {"shared"}
    assert found["shared"] == {"n4", "n5"} and found["last"] == {OUTPUT}


@pytest.mark.parametrize("depth", [1, 3])
def test_nested_residuals_give_the_larger_block(depth: int) -> None:
    class Nested(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.head = nn.Linear(4, 8), nn.Linear(8, 2)
            self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(depth * 2))
            self.neurons = nn.ModuleList(LIF(v_threshold=0.2) for _ in range(depth * 2 + 1))

        def forward(self, x: Tensor) -> Tensor:
            y = outer = self.neurons[-1](self.stem(x).expand(2, -1, -1))
            for i in range(depth):  # an inner residual each, and one around them all
                z = self.neurons[2 * i](self.layers[2 * i](y))
                y = self.neurons[2 * i + 1](self.layers[2 * i + 1](z)) + z
            return self.head(y + outer).mean(0)

    found = find_blocks(graph(Nested(), 4))
    assert several(found) == [tuple(f"layers.{i}" for i in range(2 * depth))]
