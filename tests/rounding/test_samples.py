"""Samples come back as they were, in a quarter of the memory where they have few values."""

from __future__ import annotations

import torch

from ptq4snn.calibration.calibration_set import Calibration
from ptq4snn.calibration.packed import pack


def test_images_and_counts_become_bytes(images: object) -> None:
    x = images(16)  # type: ignore[operator]
    packed = pack(x)
    assert packed.content.dtype == torch.uint8 and len(packed.tables) == 3
    assert torch.equal(packed.unpack(), x) and packed.dtype == x.dtype
    counts = torch.poisson(torch.full((5, 4, 2, 8, 8), 3.0), generator=torch.Generator().manual_seed(0))
    packed = pack(counts, batch_axis=1)
    assert packed.content.dtype == torch.uint8 and len(packed.tables) == 1
    assert torch.equal(packed.unpack(), counts)


def test_real_numbers_stay_as_they_are() -> None:
    x = torch.randn(8, 3, 20, 20, generator=torch.Generator().manual_seed(0))
    assert pack(x).content is x
    late = torch.zeros(2, 1, 100, 100)
    late[1] = torch.arange(10000).view(100, 100)  # the first values alone would fit
    assert torch.equal(pack(late).unpack(), late)


def test_channels_on_any_axis() -> None:
    levels = torch.arange(200.0)
    x = torch.stack([levels + 1000 * c for c in range(4)], -1).expand(3, 200, 4)  # channels last
    packed = pack(x.contiguous())
    assert packed.axis == 2 and torch.equal(packed.unpack(), x)


def test_all_streamed_samples_are_remembered_only_if_asked(images: object) -> None:
    x = images(48)  # type: ignore[operator]
    for remember in (False, True):
        c = Calibration(x, size=8, holdout=8, keep=8, remember=remember)
        c.open()
        streamed = torch.cat(list(c.stream()))
        assert len(c.packed) == (len(streamed) // 8 if remember else 0)
    assert torch.equal(torch.cat([p.unpack() for p in c.packed]), streamed)
