"""What is quantized reads the user's own parameters, and writes none of them."""

from __future__ import annotations

import pytest
import torch
from end_to_end.structures import drawn, seeded

import ptq4snn
from ptq4snn.models.sew_resnet import SEWResNet


@pytest.mark.parametrize("recipe", ["w2m2", "brecq+w4m4", "distil+w2m4", "paper+nearest+w4m4"])
def test_the_users_parameters_are_read_and_never_written(recipe: str) -> None:
    """They are shared with what is quantized, not copied."""
    net = seeded(
        lambda: SEWResNet(widths=(8,), blocks=(1,), strides=(2,), stem=8, num_classes=4, T=3), gain=6.0
    )
    before = {name: t.clone() for name, t in net.state_dict().items()}
    ptq4snn.quantize(net, drawn(24, 3, 12, 12), recipe, iterations=3)
    assert all(torch.equal(t, before[name]) for name, t in net.state_dict().items())
