"""Varied samples: moved and flipped as a loop over all places does it, the same for the same seed."""

from __future__ import annotations

import torch
from conftest import build, pixels
from torch import Tensor
from tuning.small import Slow, samples

from ptq4snn.pipeline import prepare
from ptq4snn.recipe import Recipe
from ptq4snn.tuning.variation import has_maps, varied


def moved(x: Tensor, down: int, right: int, flipped: bool) -> Tensor:
    """x [..., H, W] read at (r + down, c + right), mirrored at the edges, place by place."""
    height, width = x.shape[-2:]

    def inside(i: int, size: int) -> int:
        return -i if i < 0 else i if i < size else 2 * size - 2 - i

    out = torch.empty_like(x)
    for r in range(height):
        for c in range(width):
            to = width - 1 - c if flipped else c
            out[..., r, to] = x[..., inside(r + down, height), inside(c + right, width)]
    return out


def test_every_sample_is_moved_by_an_eighth_at_most_and_perhaps_flipped() -> None:
    x = torch.rand(24, 3, 16, 24, generator=torch.Generator().manual_seed(0))
    y = varied(x, 0, torch.Generator().manual_seed(1))
    ways = [(d, r, f) for d in range(-2, 3) for r in range(-3, 4) for f in (False, True)]
    found = []
    for a, b in zip(x, y, strict=True):
        fitting = [way for way in ways if torch.equal(moved(a, *way), b)]
        assert len(fitting) == 1
        found += fitting
    assert len(set(found)) > 10 and {f for *_, f in found} == {False, True}
    assert torch.equal(varied(x, 0, torch.Generator().manual_seed(1)), y)
    assert not torch.equal(varied(x, 0, torch.Generator().manual_seed(2)), y)


def test_all_steps_of_a_recording_are_moved_alike() -> None:
    x = torch.rand(1, 4, 2, 16, 16, generator=torch.Generator().manual_seed(0)).expand(5, -1, -1, -1, -1)
    y = varied(x, 1, torch.Generator().manual_seed(1))
    assert y.shape == x.shape and all(torch.equal(step, y[0]) for step in y)


def test_only_maps_are_varied() -> None:
    recipe = Recipe(holdout=8, rounding="nearest", calibration=32)
    assert has_maps(prepare(build(), pixels(32), recipe).folded)
    assert not has_maps(prepare(Slow(), samples(32), recipe).folded)
