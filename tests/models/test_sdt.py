"""Spike-Driven Transformer: its one stream, its attention neuron, event frames, bad arguments."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from oracles.backbones import discovered
from torch import nn

from ptq4snn.discovery.discover import discover
from ptq4snn.models.sdt import SpikeDrivenTransformer as SDT


def test_the_attention_neuron_of_sdt_never_holds_a_state() -> None:
    neurons = discovered("sdt_2_256_cifar10").neurons
    zero = [n.name for n in neurons.values() if n.zero_state]
    assert zero == ["block.0.attn.talking_heads_lif", "block.1.attn.talking_heads_lif"]
    bare = neurons[zero[0]]
    assert (bare.factor, bare.lo, bare.hi, bare.layout.dims) == (1.0, 0.0, 64.0, (0, 2))
    assert not bare.carries_state and neurons["head_lif"].carries_state


def test_the_stream_of_sdt_is_one() -> None:
    d = discovered("sdt_2_256_cifar10")
    writers = [n for n, p in d.projections.items() if p.stream is not None]
    assert {d.projections[n].stream for n in writers} == {0}
    assert writers == [
        "patch_embed.proj_conv3", "patch_embed.rpe_conv", "block.0.attn.proj_conv", "block.0.mlp.fc2_conv",
        "block.1.attn.proj_conv", "block.1.mlp.fc2_conv",
    ]  # fmt: skip
    readers = [n.name for n in d.neurons.values() if n.stream == 0]
    assert readers[0] == "patch_embed.proj_lif3" and d.neurons[readers[0]].kind == "pair"
    head = d.neurons["head_lif"]
    assert (head.factor, head.span) == (1 / 64, 1.0)
    assert d.outputs[0].projection == "head" and d.projections["head"].role == "output"


def small_sdt(dvs: bool = False) -> nn.Module:
    torch.manual_seed(1)
    return SDT(32, 1, heads=4, in_channels=2 if dvs else 3, T=3, dvs=dvs).eval()


def test_event_frames_come_batch_first() -> None:
    model = small_sdt(dvs=True)
    x = torch.randn(2, 5, 2, 16, 16)
    with torch.no_grad():
        both, one = model(x), model(x[:1])
    assert both.shape == (2, 10)
    torch.testing.assert_close(both[:1], one)


def test_eroding_pools_keep_the_channels_of_the_attention() -> None:
    d = discover(small_sdt(dvs=True), torch.randn(1, 3, 2, 16, 16))
    bare = d.neurons["block.0.attn.talking_heads_lif"]
    assert bare.kind == "bare" and bare.layout.shape == (4, 1, 8) and bare.layout.dims == (0, 2)
    assert bare.spike_sources == ("block.0.attn.k_lif", "block.0.attn.v_lif")


def test_a_still_image_is_a_constant_sequence() -> None:
    model = small_sdt()
    x = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        torch.testing.assert_close(model(x), model(x.unsqueeze(1).repeat(1, 3, 1, 1, 1)))


@pytest.mark.parametrize(
    ("arguments", "word"),
    [({"width": 20}, "multiple of 8"), ({"pooling": "01"}, "pooling"), ({"heads": 3}, "heads")],
)
def test_bad_arguments(arguments: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        SDT(**arguments)
