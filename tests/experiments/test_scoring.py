"""One pass gives both the scores of `evaluate` and which samples were right."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ptq4snn
from ptq4snn.experiments.scoring import pack, score, unpack
from ptq4snn.progress import Silent


def scored(model: nn.Module, batches: Any, axis: int = 0, limit: int | None = None) -> Any:
    return score(model, batches, axis, limit, Silent())


def batches(n: int = 23, size: int = 5, classes: int = 7) -> list[tuple[Tensor, Tensor]]:
    g = torch.Generator().manual_seed(0)
    x = torch.randint(0, 3, (n, classes), generator=g).float()  # many equal logits
    y = torch.randint(0, classes, (n,), generator=g)
    return [(x[i : i + size], y[i : i + size]) for i in range(0, n, size)]


@pytest.mark.parametrize("limit", [None, 1, 5, 13, 99])
def test_the_same_as_evaluate(limit: int | None) -> None:
    data = batches()
    found, expected = (
        scored(nn.Identity(), data, limit=limit),
        ptq4snn.evaluate(nn.Identity(), data, limit=limit),
    )
    assert {k: found[k] for k in expected if k != "throughput"} == {
        k: v for k, v in expected.items() if k != "throughput"
    }
    right = unpack(found["right"], found["samples"])
    assert 100 * float(right.double().mean()) == pytest.approx(found["accuracy"])
    for i, (x, y) in enumerate((x, y) for part in data for x, y in zip(*part, strict=True)):
        if i < len(right):  # each sample alone
            alone = ptq4snn.evaluate(nn.Identity(), [(x[None], y[None])])["accuracy"]
            assert bool(right[i]) == (alone == 100)


def test_time_first_outputs() -> None:
    steps = torch.zeros(3, 4, 2)  # [T, B, classes]
    steps[0, :, 0], steps[1:, :, 1] = 5.0, 2.0  # class 0 wins on average, class 1 in two of three steps
    found = scored(nn.Identity(), [(steps, torch.tensor([0, 1, 0, 1]))], axis=1)
    assert unpack(found["right"], 4).tolist() == [True, False, True, False]


def test_label_maps_have_scores_but_no_pairs() -> None:
    x = torch.zeros(2, 3, 4, 4)
    x[:, 1] = 1
    found = scored(nn.Identity(), [(x, torch.ones(2, 4, 4).long())])
    assert found["right"] is None and found["mIoU"] == 100


def test_unlabelled_samples() -> None:
    found = scored(nn.Identity(), [torch.eye(3)])
    assert found["right"] is None and found["accuracy"] is None


def test_packing() -> None:
    for n in (1, 7, 8, 9, 31):
        right = torch.rand(n, generator=torch.Generator().manual_seed(n)) < 0.5
        assert torch.equal(unpack(pack(right), n), right)
    assert pack(torch.tensor([True] + [False] * 7 + [True])) == "8080"
