"""Weights of two bits on odd levels: chosen where they are nearer, stored in two bits, run bit for bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from end_to_end.structures import drawn, quantized, seeded
from torch import nn

import ptq4snn
from ptq4snn import runtime
from ptq4snn.bundle.format import read_bundle, write_bundle
from ptq4snn.errors import BundleError
from ptq4snn.models.sew_resnet import SEWResNet
from ptq4snn.modules.quantized import QuantizedModel
from ptq4snn.runtime.loading import load_model_file

HIDDEN = "layer1.0.conv1"


def network() -> nn.Module:
    net = seeded(lambda: SEWResNet(widths=(8,), blocks=(1,), strides=(2,), stem=8, num_classes=4, T=3))
    for m in net.modules():
        if isinstance(m, nn.BatchNorm2d):
            nn.init.constant_(m.weight, 3.0)
    return net


def odd(q: QuantizedModel) -> set[str]:
    return {name for name, p in q.plan.projections.items() if p.odd}


@pytest.mark.parametrize("recipe", ["fast+w2m4", "w2m2", "brecq+w2m4", "distil+w2m4", "w2.5m4"])
def test_they_are_what_runs(recipe: str, tmp_path: Path) -> None:
    q = quantized(network(), drawn(24, 3, 12, 12), tmp_path, recipe, iterations=5)
    assert odd(q)
    for name in odd(q):
        assert q.plan.projections[name].bits == 2
        assert set(q.integers[name].weight.unique().tolist()) <= {-3, -1, 1, 3}
    stored = read_bundle(tmp_path / "q.ptq").integers
    for name, p in q.plan.projections.items():
        assert stored[f"weights/{name}"].bits == p.bits


def test_wider_weights_and_the_paper_have_none() -> None:
    x = drawn(24, 3, 12, 12)
    for recipe in ("fast+w3m4", "fast+w4m4", "paper+nearest+w2m4", "fast+whole-levels+w2m4"):
        assert odd(ptq4snn.quantize(network(), x, recipe)) == set()


@pytest.mark.parametrize("what", ["most are zero", "a channel is zero"])
def test_zeros_stay_zeros(what: str) -> None:
    net = network()
    weight = net.get_parameter(f"{HIDDEN}.weight")
    with torch.no_grad():
        if what == "most are zero":
            weight.mul_(drawn(*weight.shape) < 0.2)
        else:
            weight[3] = 0
    q = ptq4snn.quantize(net, drawn(24, 3, 12, 12), "fast+w2m4")
    assert HIDDEN not in odd(q) and odd(q)
    assert not bool(q.integers[HIDDEN].weight[weight == 0].any())


def test_whatever_runs_or_exports_them_sees_three_bits(tmp_path: Path) -> None:
    """Two's complement of one bit more holds -3 .. 3: kernels and exporters need not know of odd levels."""
    q = ptq4snn.quantize(network(), drawn(24, 3, 12, 12), "fast+w2m4")
    q.save(tmp_path / "q.ptq")
    model = load_model_file(tmp_path / "q.ptq")
    for name, p in q.plan.projections.items():
        np.testing.assert_array_equal(model.projections[name].weight, q.integers[name].weight.numpy())
        assert model.projections[name].bits == (3 if p.odd else p.bits)


@pytest.mark.parametrize(("change", "words"), [({"odd": 1}, "odd"), ({"bits": 8}, "do not fit eight")])
def test_a_bundle_that_says_nonsense_is_refused(
    change: dict[str, object], words: str, tmp_path: Path
) -> None:
    q = ptq4snn.quantize(network(), drawn(24, 3, 12, 12), "fast+w2m4")
    q.save(tmp_path / "q.ptq")
    bundle, name = read_bundle(tmp_path / "q.ptq"), min(odd(q))
    bundle.plan["plan"]["projections"][name].update(change)
    write_bundle(tmp_path / "bad.ptq", bundle.plan, bundle.integers, bundle.floats)
    with pytest.raises(BundleError, match=words):
        runtime.load(tmp_path / "bad.ptq")
