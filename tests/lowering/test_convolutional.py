"""SEW-ResNet and VGG, reduced: their programs give the simulation's spikes, states and logits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from lowering.backbones import Case, check_backbone
from torch import nn

from ptq4snn.models.neuron import IF, LIF, PLIF
from ptq4snn.models.sew_resnet import Bottleneck, SEWResNet
from ptq4snn.models.vgg import SpikingVGG


def sew(**arguments: Any) -> Callable[[], nn.Module]:
    return lambda: SEWResNet((4, 6), (1, 1), (1, 2), num_classes=5, in_channels=2, T=3, **arguments)


def vgg(**arguments: Any) -> Callable[[], nn.Module]:
    return lambda: SpikingVGG(((4,), (6, 5)), 5, 2, 3, **arguments)


CASES = {
    "sew_add": Case(sew(), kinds=frozenset({"combine", "pool"})),
    "sew_and": Case(sew(connect="AND", stem_kind="imagenet", neuron=IF), kinds=frozenset({"multiply"})),
    "sew_iand_plif": Case(sew(connect="IAND", neuron=PLIF), kinds=frozenset({"multiply", "combine"})),
    "sew_bottleneck": Case(sew(block=Bottleneck, connect="IAND", swapped_iand=True)),
    "sew_soft": Case(sew(neuron=partial(LIF, v_reset=None, decay_input=False))),
    "sew_reset_elsewhere": Case(sew(neuron=partial(LIF, v_reset=-0.3, tau=1.7))),
    "vgg_linear": Case(vgg()),
    "vgg_stock": Case(vgg(head="stock", hidden=16), (2, 28, 28), free=False),
    "vgg_frames": Case(vgg(dvs=True), (3, 2, 8, 8)),
}


@pytest.mark.parametrize("name", CASES)
def test_backbone(name: str) -> None:
    check_backbone(CASES[name])
