"""What a seed draws, and what the marks of model and data see."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from ptq4snn.data.batches import ArraySamples
from ptq4snn.data.samples import SampleBatches
from ptq4snn.errors import DataError
from ptq4snn.experiments.samples import data_mark, draw, model_mark, pool, reiterable


def drawn(samples: object, count: int, seed: int, axis: int = 0) -> Tensor:
    return torch.cat(list(draw(pool(samples, axis), count, seed)), axis)


def test_a_seed_draws_without_repetition() -> None:
    x = torch.arange(40.0).view(40, 1)
    a, again, b = drawn(x, 24, 0), drawn(x, 24, 0), drawn(x, 24, 1)
    assert torch.equal(a, again) and not torch.equal(a, b)
    assert len(set(a.flatten().tolist())) == 24
    expected = torch.randperm(40, generator=torch.Generator().manual_seed(0))[:24].float()
    assert torch.equal(a.flatten(), expected)
    assert len(drawn(x, 99, 0)) == 40


def test_the_form_of_the_data_does_not_matter() -> None:
    x = torch.arange(40.0).view(40, 1)
    labelled = [(x[:30], torch.zeros(30)), (x[30:], torch.zeros(10))]
    batches = SampleBatches(ArraySamples(x), 7)
    for form in (labelled, iter(labelled), batches):
        assert torch.equal(drawn(form, 24, 5), drawn(x, 24, 5))
    time_first = x.view(1, 40, 1).expand(3, 40, 1)
    assert torch.equal(drawn(time_first, 24, 5, axis=1)[0], drawn(x, 24, 5))
    part = SampleBatches(ArraySamples(x), 7, indices=range(10))
    assert drawn(part, 24, 5).max() < 10
    with pytest.raises(DataError, match="no samples"):
        pool([], 0)


def test_data_marks_follow_content() -> None:
    x = torch.rand(40, 2)
    mark = data_mark(SampleBatches(ArraySamples(x), 7))
    assert mark == data_mark(SampleBatches(ArraySamples(x.clone()), 9))
    assert mark != data_mark(SampleBatches(ArraySamples(x + 1), 7))
    assert mark != data_mark(SampleBatches(ArraySamples(x[:39]), 7))
    assert mark != data_mark(SampleBatches(ArraySamples(x, torch.ones(40).long()), 7))
    assert data_mark(SampleBatches(ArraySamples(x), 7), 20) == data_mark(
        SampleBatches(ArraySamples(x[:20]), 7)
    )
    y = torch.zeros(40)
    assert data_mark([(x, y)]) != data_mark([(x, y + 1)])


def test_model_marks_follow_weights_and_settings(small_model: Callable[..., nn.Module]) -> None:
    mark = model_mark(small_model())
    assert mark == model_mark(small_model().train())
    assert len({mark, model_mark(small_model(seed=1)), model_mark(small_model(T=5))}) == 3
    changed = small_model()
    with torch.no_grad():
        next(changed.parameters()).view(-1)[0] += 1e-6
    assert model_mark(changed) != mark


def test_what_can_be_read_once_is_kept() -> None:
    kept = reiterable(iter([1, 2]))
    assert list(kept) == list(kept) == [1, 2]
    batches = SampleBatches(ArraySamples(torch.zeros(3, 1)), 2)
    assert reiterable(batches) is batches
