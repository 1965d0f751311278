"""What a seed draws."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ptq4snn.data.batches import ArraySamples
from ptq4snn.data.samples import SampleBatches
from ptq4snn.errors import DataError
from ptq4snn.experiments.draws import draw, pool, reiterable


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


def test_what_can_be_read_once_is_kept() -> None:
    kept = reiterable(iter([1, 2]))
    assert list(kept) == list(kept) == [1, 2]
    batches = SampleBatches(ArraySamples(torch.zeros(3, 1)), 2)
    assert reiterable(batches) is batches
