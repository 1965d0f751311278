"""SDT, Meta-SpikeFormer and its segmentation model, reduced."""

from __future__ import annotations

import pytest
from lowering.backbones import FRAMES, Case, check_backbone

from ptq4snn.models.fpn import SpikeFPN
from ptq4snn.models.meta_spikeformer import MetaSpikeFormer
from ptq4snn.models.sdt import SpikeDrivenTransformer

CASES = {
    "sdt": Case(lambda: SpikeDrivenTransformer(16, 1, 4, 5, 2, 3, mlp_ratio=2), kinds=frozenset({"clip"})),
    "sdt_frames": Case(
        lambda: SpikeDrivenTransformer(16, 1, 4, 5, 2, 3, "1110", 2, dvs=True), FRAMES, free=False
    ),
    "meta": Case(
        lambda: MetaSpikeFormer((8, 8, 16, 16), (1, 1), 4, 5, 2, 2, mlp_ratio=1),
        (2, 16, 16),
        frozenset({"matmul", "clip"}),
        False,
    ),
    "meta_two_heads": Case(
        lambda: MetaSpikeFormer((8, 8, 16, 16), (1, 1), 4, 5, 2, 2, mlp_ratio=1, kd=True),
        (2, 16, 16),
        frozenset({"combine"}),
        False,
    ),
    "fpn": Case(
        lambda: SpikeFPN((8, 8, 16, 16), 8, (1, 1), 4, 5, 2, 2, mlp_ratio=1),
        (2, 16, 16),
        frozenset({"matmul", "clip", "time_sum"}),
        False,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_backbone(name: str) -> None:
    check_backbone(CASES[name])
