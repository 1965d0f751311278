"""Spiking VGG: still images, sequences, its two heads, bad arguments."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from ptq4snn.models.neuron import IF
from ptq4snn.models.vgg import SpikingVGG


def small(**arguments: Any) -> nn.Module:
    torch.manual_seed(0)
    model = SpikingVGG(((8,), (16, 16)), num_classes=5, T=3, hidden=12, **arguments)
    for m in model.modules():
        if isinstance(m, nn.BatchNorm2d):
            nn.init.constant_(m.bias, 1.0)
    return model.eval()


@pytest.mark.parametrize("head", ["linear", "stock"])
def test_a_still_image_is_a_constant_sequence(head: str) -> None:
    model = small(head=head)
    x = torch.randn(2, 3, 28, 28)
    with torch.no_grad():
        logits = model(x)
        assert logits.shape == (2, 5)
        torch.testing.assert_close(model(x.expand(3, *x.shape)), logits)
        torch.testing.assert_close(model(x[:1]), logits[:1])


def test_the_modules_of_a_stage_are_one_row() -> None:
    model = small(head="stock", neuron=IF)
    features = [type(m).__name__ for m in model.get_submodule("features")]  # type: ignore[attr-defined]
    group = ["Conv2d", "BatchNorm2d", "IF"]
    assert features == [*group, "MaxPool2d", *group, *group, "MaxPool2d"]
    classifier = [type(m).__name__ for m in model.get_submodule("classifier")]  # type: ignore[attr-defined]
    assert classifier == ["Linear", "IF", "Dropout", "Linear", "IF", "Dropout", "Linear"]


def test_pools_follow_the_neurons() -> None:
    """The largest of four spikes is a spike: what enters the second group is binary and halved."""
    model = small()
    seen = []
    model.get_submodule("features.4").register_forward_pre_hook(lambda _m, args: seen.append(args[0]))
    model(torch.randn(2, 3, 16, 16))
    assert seen[0].shape == (6, 8, 8, 8)
    assert set(seen[0].unique().tolist()) == {0.0, 1.0}


@pytest.mark.parametrize(
    ("arguments", "word"),
    [({"head": "mlp"}, "head"), ({"widths": ()}, "widths"), ({"widths": ((),)}, "widths")],
)
def test_bad_arguments(arguments: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        SpikingVGG(**arguments)
