"""Small versions of Meta-SpikeFormer and its segmentation model are found as they are written, and folded."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from oracles.meta_spikeformer import expectation, found, pixels, small
from torch import Tensor, nn
from torch.nn import functional as F

from ptq4snn.discovery.discover import discover
from ptq4snn.discovery.folding import fold
from ptq4snn.discovery.proof import verify
from ptq4snn.errors import UnsupportedOperation
from ptq4snn.models.meta_spikeformer import MetaSpikeFormer


def test_a_small_network_is_found_as_it_is_written() -> None:
    d = found("plain")
    assert {n.name: (n.kind, list(n.projections)) for n in d.neurons.values()} == expectation()
    assert list(d.neurons) == list(expectation())
    for p in "qkv":
        chain = [d.projections[f"block3.0.attn.{p}_conv.0.body.{i}"] for i in ("0", "2.0", "2.1")]
        assert [(c.role, c.reads) for c in chain] == [
            ("chain", "count"),
            ("chain", "chain"),
            ("pair", "chain"),
        ]
        assert [[(n.name[-7:], n.border) for n in c.norms] for c in chain] == [
            [(".body.1", 1)], [], [("ody.2.2", 0), ("_conv.1", 0)],
        ]  # fmt: skip
    bare = d.neurons["block4.0.attn.attn_lif"]
    assert (bare.factor, bare.lo, bare.hi) == (1 / 8, 0.0, 4 * 12) and not bare.zero_state
    assert (
        d.neurons["lif"].factor == 1 / 4
        and d.neurons["lif"].stream == d.neurons["block4.0.mlp.fc1_lif"].stream
    )
    assert not d.unused_neurons and not d.unused_projections


def test_a_small_pyramid_is_found_as_it_is_written() -> None:
    d = found("fpn")
    inside = {f"backbone.{n}": (k, [f"backbone.{p}" for p in s]) for n, (k, s) in expectation().items()}
    ends = ["downsample1_2.encode_lif", "downsample2.encode_lif", "downsample3.encode_lif", "lif"]
    lateral = [f"neck.lateral_convs.{i}" for i in range(4)]
    head = "decode_head.scale_heads"
    expected = {n: v for n, v in inside.items() if n != "backbone.lif"}
    expected |= {f"{n}.0": inside[f"backbone.{e}"] for n, e in zip(lateral, ends, strict=True)}
    for i in range(4):
        kind = "pair" if i == 3 else "stream"
        expected[f"neck.fpn_convs.{i}.0"] = kind, [f"{n}.1.0.conv" for n in lateral[i:]]
    for i, k in [(0, 0), (1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2)]:
        source = f"{head}.{i}.{k - 1}.1.0.conv" if k else f"neck.fpn_convs.{i}.1.0.conv"
        expected[f"{head}.{i}.{k}.0"] = "pair", [source]
    last = [f"{head}.{i}.{max(0, i - 1)}.1.0.conv" for i in range(4)]
    expected["decode_head.decode_lif"] = "stream", last
    assert {n.name: (n.kind, list(n.projections)) for n in d.neurons.values()} == expected
    assert list(d.unused_neurons) == ["backbone.lif"]
    over_time = [n.name for n in d.neurons.values() if n.over_time]
    assert over_time == [f"{n}.0" for n in lateral]  # also the one whose stream begins with the image
    once = [n.name for n in d.neurons.values() if n.steps == 1]
    assert once == list(d.neurons)[-16:] and not any(d.neurons[n].carries_state for n in once)
    assert {n.factor for n in d.neurons.values()} == {1.0, 1 / 3, 1 / 8, 1 / 16}
    assert d.outputs[0].projection == "decode_head.conv_seg" and d.outputs[0].axis == -3


@pytest.mark.parametrize("kind", ["plain", "kd", "fpn"])
def test_folding_changes_no_spike_and_no_logit(kind: str) -> None:
    model, x = small(kind), pixels(4)
    verify(model, found(kind), x)
    folded = fold(model, found(kind), torch.float64).model
    assert not any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in folded.modules())
    with torch.no_grad():
        torch.testing.assert_close(folded(x.double()).float(), model(x), rtol=0, atol=1e-5)


def test_with_kd_the_output_is_the_average_of_both_heads() -> None:
    model, x = small("kd"), pixels(2)
    outputs: dict[str, Tensor] = {}
    handles = [
        model.get_submodule(n).register_forward_hook(lambda m, a, out, n=n: outputs.update({n: out}))
        for n in ("head", "head_kd")
    ]
    with torch.no_grad():
        logits = model(x)
    for h in handles:
        h.remove()
    torch.testing.assert_close(logits, (outputs["head"].mean(0) + outputs["head_kd"].mean(0)) / 2)


def test_sizes_that_do_not_double_are_refused() -> None:
    model, x = small("fpn"), torch.randn(1, 3, 40, 40)
    with torch.no_grad():
        assert model(x).shape == (1, 5, 20, 20)
    with pytest.raises(UnsupportedOperation, match="bilinear"):
        discover(model, x)


class Resized(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return F.interpolate(self.model(x), size=x.shape[-2:], mode="bicubic")


def test_the_last_resize_is_real() -> None:
    d = discover(Resized(small("fpn")), pixels(1))
    assert d.outputs[0].projection is None and d.projections["model.decode_head.conv_seg"].decode
    assert all(n.kind == found("fpn").neurons[n.name.removeprefix("model.")].kind for n in d.neurons.values())


@pytest.mark.parametrize(
    ("arguments", "word"),
    [({"widths": (8, 16)}, "four widths"), ({"widths": (9, 16, 16, 16)}, "even"), ({"heads": 7}, "heads")],
)
def test_bad_arguments(arguments: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        MetaSpikeFormer(**arguments)
