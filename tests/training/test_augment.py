"""Crops and flips against a loop over samples."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from ptq4snn.data.samples import VOID
from ptq4snn.training.augment import augment


def generator(seed: int = 4) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("shape", [(6, 3, 5, 7), (6, 4, 2, 5, 7)])
@pytest.mark.parametrize("kind", ["crop", "crop-flip"])
def test_each_sample_is_a_crop_of_its_padded_self(shape: tuple[int, ...], kind: str) -> None:
    x = torch.rand(shape, generator=generator(1)) + 1.0
    out, y = augment(x, torch.arange(6), kind, 2, generator())
    assert torch.equal(y, torch.arange(6))
    flips = 0
    for a, b in zip(x, out, strict=True):
        found = [
            (flip, dy, dx)
            for flip in (False, True)
            for dy in range(5)
            for dx in range(5)
            if torch.equal(crop(a, dy, dx, flip), b)
        ]
        assert len(found) == 1
        flips += found[0][0]
    assert flips == 0 if kind == "crop" else 0 < flips < 6


def crop(x: torch.Tensor, dy: int, dx: int, flip: bool) -> torch.Tensor:
    cut = F.pad(x, [2] * 4)[..., dy : dy + 5, dx : dx + 7]
    return cut.flip(-1) if flip else cut


def test_maps_move_with_their_images() -> None:
    y = torch.randint(1, 9, (4, 6, 8), generator=generator(1))
    x = y.unsqueeze(1).float()
    image, labels = augment(x, y, "crop-flip", 3, generator())
    inside = labels != VOID
    assert torch.equal(image[:, 0][inside].long(), labels[inside])
    assert torch.equal(image[:, 0] == 0, ~inside)
    assert not torch.equal(labels, y)


def test_the_generator_decides() -> None:
    x, y = torch.rand(8, 1, 6, 6), torch.zeros(8)
    first, again, other = (augment(x, y, "crop-flip", 2, generator(s))[0] for s in (1, 1, 2))
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert augment(x, y, "none", 2, generator())[0] is x


@pytest.mark.parametrize("shape", [(40, 3, 8, 12), (40, 4, 2, 8, 12)])
def test_a_square_is_erased_inside_and_nothing_else(shape: tuple[int, ...]) -> None:
    x = torch.rand(shape, generator=generator(1)) + 1.0
    plain, _ = augment(x, torch.zeros(40), "crop-flip", 0, generator())
    out, _ = augment(x, torch.zeros(40), "crop-flip-erase", 0, generator())
    places = set()
    for a, b in zip(plain.flatten(1, -3), out.flatten(1, -3), strict=True):
        gone = (b == 0).all(0)  # [H, W]
        assert torch.equal(a * ~gone, b)
        rows, columns = gone.any(1).nonzero().flatten(), gone.any(0).nonzero().flatten()
        assert len(rows) == len(columns) == 2 and int(gone.sum()) == 4
        places.add((int(rows[0]), int(columns[0])))
    assert len(places) > 20 and max(r for r, _ in places) == 6 and max(c for _, c in places) == 10
