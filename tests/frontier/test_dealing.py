"""No sample calibrates and judges; the halves are even, whatever the order; labels go with their samples."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from ptq4snn.errors import DataError
from ptq4snn.frontier import dealing
from ptq4snn.frontier.dealing import Dealt, deal
from ptq4snn.recipe import Recipe

AGREE, DROP = Recipe(agreement=90), Recipe(max_drop=1)


def numbers(parts: list[Tensor], axis: int = 0) -> list[int]:
    return (
        torch.cat([p.movedim(axis, 0)[:, 0].flatten(1)[:, 0] if p.dim() > 2 else p[:, 0] for p in parts])
        .int()
        .tolist()
    )


def judging(found: Dealt) -> list[Tensor]:
    return [b.unpack() for b in found.judging]


def row(n: int) -> Tensor:
    """Sample i holds i."""
    return torch.arange(n).float()[:, None].expand(n, 3).contiguous()


@pytest.mark.parametrize("size", [1, 7, 64])
def test_halves_without_a_sample_in_common(size: int) -> None:
    found = deal(row(100).split(size), AGREE, 0)
    a, b = numbers(found.calibration), numbers(judging(found))
    assert sorted(a + b) == list(range(100)) and len(a) == len(b) == found.judges == 50
    assert a == sorted(a) and b == sorted(b) and found.labels is None
    assert {x // 2 for x in a} == {x // 2 for x in b} == set(range(50)), "one of every two"
    assert 15 < sum(x % 2 for x in a) < 35, "and not always the same"
    assert all(x.shape[0] <= 64 for x in judging(found))
    again = deal(row(100), AGREE, 0)
    assert numbers(again.calibration) == a, "batches change nothing"
    assert numbers(deal(row(100), AGREE.replace(seed=1), 0).calibration) != a


def test_when_enough_calibrate_all_others_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dealing, "JUDGES", 40)
    found = deal(row(100), AGREE.replace(calibration=10), 0)
    a, b = numbers(found.calibration), numbers(judging(found))
    assert len(a) == 10 and max(a) < 20 and len(b) == 40 and sorted(a + b) == list(range(50))
    found = deal(row(100), AGREE.replace(calibration=60), 0)
    assert (len(numbers(found.calibration)), found.judges) == (60, 40)


def test_labels_go_with_their_samples() -> None:
    y = 1000 + torch.arange(50)
    for given in ((row(50), y), list(zip(row(50).split(7), y.split(7), strict=True))):
        found = deal(given, DROP, 0)
        assert found.labels is not None
        assert found.labels.tolist() == [1000 + n for n in numbers(judging(found))]
    assert deal((row(50), y), AGREE, 0).labels is None


def test_time_first() -> None:
    x = row(30)[None].expand(4, 30, 3)
    found = deal(x, AGREE, 1)
    assert [p.shape[0] for p in found.calibration + judging(found)] == [4, 4]
    assert found.calibration[0].shape[1] == found.judges == 15


@pytest.mark.parametrize(
    ("given", "recipe", "message"),
    [
        (row(1), AGREE, "1 samples cannot be dealt"),
        ([], AGREE, "0 samples cannot be dealt"),
        (row(20), DROP, "max_drop needs samples with labels, and these have none"),
        ([(row(20), torch.rand(20))], DROP, "one class number for each sample"),
        ([(row(20), torch.zeros(20, 4, 4).long())], DROP, r"labels have shape \[20, 4, 4\]"),
        ([(row(20), torch.zeros(7).long())], DROP, r"labels have shape \[7\]"),
        (torch.full((20, 3), float("nan")), AGREE, "NaN"),
    ],
)
def test_refusals(given: Any, recipe: Recipe, message: str) -> None:
    with pytest.raises(DataError, match=message):
        deal(given, recipe, 0)
