"""`evaluate` against counting by hand; what it refuses; what does not change its result."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles.numbers import known
from torch import Tensor, nn

from ptq4snn.errors import DataError, PTQ4SNNError
from ptq4snn.evaluation import metrics, throughput
from ptq4snn.evaluation.metrics import evaluate

KEYS = {"samples", "task", "accuracy", "accuracy_top5", "throughput"}


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def labels(count: int, classes: int, seed: int = 1) -> Tensor:
    return torch.randint(0, classes, (count,), generator=torch.Generator().manual_seed(seed))


def by_hand(logits: Tensor, y: Tensor) -> tuple[float, float]:
    """Acc@1 and Acc@5 from how many classes beat the label's."""
    better = [
        sum(v > row[label] for v in row) for row, label in zip(logits.tolist(), y.tolist(), strict=True)
    ]
    top1, top5 = (100 * sum(b < k for b in better) / len(better) for k in (1, 5))
    return top1, top5


def scores(result: Any) -> dict[str, Any]:
    """All but the time, which differs from run to run."""
    return {k: v for k, v in result.items() if k != "throughput"}


@pytest.mark.parametrize("classes", [2, 3, 5, 6, 40])
def test_accuracies_by_hand(classes: int) -> None:
    x, y = random(50, classes), labels(50, classes)
    found = evaluate(nn.Identity(), [(x[:32], y[:32]), (x[32:], y[32:])])
    assert set(found) == KEYS and (found["samples"], found["task"]) == (50, "classification")
    assert (found["accuracy"], found["accuracy_top5"]) == pytest.approx(by_hand(x, y))
    assert 0 < known(found["accuracy"]) < 100
    assert (found["accuracy_top5"] == 100) == (classes <= 5)


@given(st.lists(st.integers(1, 7), min_size=1, max_size=6), st.sampled_from([None, "classification"]))
def test_cutting_the_samples_otherwise_changes_nothing(sizes: list[int], task: Any) -> None:
    x, y = random(sum(sizes), 7), labels(sum(sizes), 7)
    parts = list(zip(x.split(sizes), y.split(sizes), strict=True))
    assert scores(evaluate(nn.Identity(), parts, task=task)) == scores(evaluate(nn.Identity(), [(x, y)]))


class Steps(nn.Module):
    """[T, B, N] to logits of every time step, and something else behind them."""

    def forward(self, x: Tensor) -> tuple[Tensor, str]:
        return 2 * x, "state"


def test_time_in_front_is_averaged() -> None:
    x, y = random(4, 30, 6), labels(30, 6)
    found = evaluate(Steps(), [(x[:, :20], y[:20]), (x[:, 20:], y[20:])], batch_axis=1)
    assert (found["accuracy"], found["accuracy_top5"]) == pytest.approx(by_hand(x.mean(0), y))
    assert found["samples"] == 30


@pytest.mark.parametrize("wrong", [0.5, math.nan, math.inf])
def test_labels_that_are_no_whole_numbers_are_refused(wrong: float) -> None:
    for x, y in ((random(6, 6), labels(6, 6)), (random(2, 3, 4, 4), labels(32, 3).view(2, 4, 4))):
        given_ = y.float()
        given_.view(-1)[3] += wrong
        with pytest.raises(DataError, match=r"a label is .*: labels are whole numbers"):
            evaluate(nn.Identity(), [(x, given_)])
        assert scores(evaluate(nn.Identity(), [(x, y.float())])) == scores(evaluate(nn.Identity(), [(x, y)]))


def test_the_first_sample_with_nan_is_named() -> None:
    x, y = random(40, 6), labels(40, 6)
    x[[29, 33], 2] = math.nan
    time_first = x.unsqueeze(0).split(8, 1)
    for model, axis, parts in ((nn.Identity(), 0, x.split(8)), (Steps(), 1, time_first)):
        with pytest.raises(DataError, match="sample 29, counted from 0"):
            evaluate(model, zip(parts, y.split(8), strict=True), batch_axis=axis)


def test_batches_without_labels() -> None:
    x, y = random(12, 6), labels(6, 6)
    for given_ in (x, [x], [(x,)]):
        found = evaluate(nn.Identity(), given_)
        assert (found["samples"], found["accuracy"], found["accuracy_top5"]) == (12, None, None)
    mixed = evaluate(nn.Identity(), [x[6:], (x[:6], y)])
    assert mixed["samples"] == 12 and mixed["accuracy"] == pytest.approx(by_hand(x[:6], y)[0])


@pytest.mark.parametrize("limit", [1, 8, 11, 16, 40])
def test_limit_reads_no_further(limit: int) -> None:
    x, y = random(40, 6), labels(40, 6)
    read: list[int] = []

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        for i in range(0, 40, 8):
            read.append(i)
            yield x[i : i + 8], y[i : i + 8]

    found = evaluate(nn.Identity(), batches(), limit=limit)
    assert found["samples"] == limit and len(read) == math.ceil(limit / 8)
    assert (found["accuracy"], found["accuracy_top5"]) == pytest.approx(by_hand(x[:limit], y[:limit]))


def test_limit_beyond_the_data_and_along_another_axis() -> None:
    x, y = random(3, 10, 6), labels(10, 6)
    assert evaluate(nn.Identity(), [(x, y)], 1, limit=99)["samples"] == 10
    found = evaluate(nn.Identity(), [(x, y)], 1, limit=7)
    assert found["samples"] == 7 and found["accuracy"] == pytest.approx(by_hand(x[:, :7].mean(0), y[:7])[0])


class Pooled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean((-2, -1))


def test_images_of_other_sizes() -> None:
    images = [random(2, 6, 4, 5), random(3, 6, 7, 3, seed=2), random(1, 6, 1, 1, seed=3)]
    y = labels(6, 6)
    found = evaluate(Pooled(), list(zip(images, y.split([2, 3, 1]), strict=True)))
    logits = torch.cat([x.mean((2, 3)) for x in images])
    assert found["accuracy"] == pytest.approx(by_hand(logits, y)[0])
    with pytest.raises(DataError, match=r"cannot run on a batch of shape \[2, 6, 5, 4\]"):
        evaluate(nn.Sequential(nn.Flatten(), nn.Linear(6 * 16, 3)), [random(2, 6, 4, 4), random(2, 6, 5, 4)])


@pytest.mark.parametrize(
    "shapes", [((2, 6), (2, 6, 1)), ((2, 3, 4), (2, 4, 5)), ((2, 3, 5, 4, 4), (2, 1, 4, 4, 4))]
)
def test_other_differences_are_refused(shapes: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(DataError, match=r"only the number of samples and of time steps, and height"):
        evaluate(nn.Flatten(), [random(*shape) for shape in shapes])


@pytest.mark.parametrize("shape", [(), (3,), (4, 6), (4, 2, 2, 2), (3, 2, 2)])
def test_labels_that_do_not_fit_the_samples(shape: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match=r"4 samples came with labels of shape"):
        evaluate(nn.Identity(), [(random(4, 6), torch.zeros(shape, dtype=torch.int64))])


def test_labels_that_do_not_fit_the_outputs() -> None:
    numbers, maps = labels(4, 2), torch.zeros(4, 5, 5, dtype=torch.int64)
    images, vectors = random(4, 2, 5, 5), random(4, 2)
    for x, y, task in (
        (images, numbers, None),
        (images, maps, "classification"),
        (vectors, maps, None),
        (vectors, numbers, "segmentation"),
    ):
        with pytest.raises(DataError, match=r"do not fit outputs of shape"):
            evaluate(nn.Identity(), [(x, y)], task=task)  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"do not fit outputs of shape"):  # the first labels decide
        evaluate(nn.Identity(), [(images, maps), (images, numbers)])


class Silent(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        raise RuntimeError


def test_other_refusals() -> None:
    x = random(4, 6)
    with pytest.raises(PTQ4SNNError, match="there is no task 'detection': give classification or segm"):
        evaluate(nn.Identity(), [x], task="detection")  # type: ignore[arg-type]
    with pytest.raises(PTQ4SNNError, match="limit is 0"):
        evaluate(nn.Identity(), [x], limit=0)
    with pytest.raises(DataError, match="no samples to evaluate"):
        evaluate(nn.Identity(), [])
    with pytest.raises(DataError, match="NaN"):
        evaluate(nn.Identity(), [x / 0])
    with pytest.raises(DataError, match="RuntimeError"):
        evaluate(Silent(), [x])


def test_throughput_is_there_for_one_batch_and_for_many() -> None:
    x, y = random(40, 6), labels(40, 6)
    for size in (40, 7):
        found = evaluate(nn.Identity(), list(zip(x.split(size), y.split(size), strict=True)))["throughput"]
        assert set(found) == {"samples_per_second", "model_samples_per_second"}
        assert 0 < found["samples_per_second"] <= found["model_samples_per_second"] < math.inf


def test_scores_do_not_depend_on_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = random(9, 6), labels(9, 6)
    found = scores(evaluate(nn.Identity(), [(x, y)]))
    for module in (metrics, throughput):
        monkeypatch.setattr(module, "perf_counter", lambda: 0.0)
    assert scores(evaluate(nn.Identity(), [(x, y)])) == found
