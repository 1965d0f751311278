"""Spikformer and QKFormer in all their layouts, reduced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from lowering.backbones import FRAMES, Case, check_backbone
from torch import nn

from ptq4snn.models.qkformer import QKFormer
from ptq4snn.models.spikformer import Spikformer


def spikformer(**arguments: Any) -> Callable[[], nn.Module]:
    return lambda: Spikformer(16, 1, 4, 5, 2, 2, mlp_ratio=1, **arguments)


def qkformer(depths: tuple[int, ...], **arguments: Any) -> Callable[[], nn.Module]:
    return lambda: QKFormer(32, depths, 4, 5, 2, 2, mlp_ratio=1, scale=0.5, **arguments)


CASES = {
    "spikformer_linear": Case(spikformer(), kinds=frozenset({"matmul"}), free=False),
    "spikformer_conv2d": Case(spikformer(kind="conv2d"), kinds=frozenset({"matmul"}), free=False),
    "spikformer_frames": Case(spikformer(kind="conv1d", pooling="1110"), FRAMES, free=False),
    "qkformer_cifar": Case(qkformer((1, 1, 1)), free=False),
    "qkformer_imagenet": Case(qkformer((1, 1, 1), layout="imagenet"), (2, 16, 16), free=False),
    "qkformer_frames": Case(qkformer((1, 1), layout="events"), FRAMES, free=False),
}


@pytest.mark.parametrize("name", CASES)
def test_backbone(name: str) -> None:
    check_backbone(CASES[name])
