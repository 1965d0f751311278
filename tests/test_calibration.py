"""The calibration set: micro-batches whatever the user's batches are, what is kept, and bad data."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from ptq4snn.calibration.calibration_set import Calibration, batches_of, micro_batches
from ptq4snn.errors import DataError


def numbered(n: int) -> Tensor:
    """n samples [2, 3]; all values of sample i are i."""
    return torch.arange(n, dtype=torch.float32).view(n, 1, 1).expand(n, 2, 3).contiguous()


def names(batches: Any, axis: int = 0) -> list[list[int]]:
    return [b.movedim(axis, 0)[:, 0, 0].long().tolist() for b in batches]


def chunks(n: int, size: int) -> list[list[int]]:
    return [list(range(i, min(i + size, n))) for i in range(0, n, size)]


@pytest.mark.parametrize("n", [1, 2, 5, 16, 17, 50])
@pytest.mark.parametrize("size", [1, 3, 16, 40, 1000])
def test_the_users_batches_do_not_matter(n: int, size: int) -> None:
    x = numbered(n)
    for samples in (x, list(x.split(size)), [(b, "label") for b in x.split(size)], iter(x.split(size))):
        assert names(micro_batches(samples, 16)) == chunks(n, 16)


def test_uneven_and_empty_batches() -> None:
    x = numbered(40)
    parts = [x[:3], x[3:3], x[3:37], x[37:38], x[38:]]
    assert names(micro_batches(parts, 16)) == chunks(40, 16)


@pytest.mark.parametrize("axis", [1, 2])
def test_other_batch_axes(axis: int) -> None:
    x = numbered(20).movedim(0, axis)
    found = list(micro_batches(list(x.split(7, axis)), 8, axis))
    assert names(found, axis) == chunks(20, 8)
    assert all(b.is_contiguous() for b in found)


@pytest.mark.parametrize("limit", [1, 16, 20, 32, 100])
def test_limit(limit: int) -> None:
    for size in (5, 50):
        found = names(micro_batches(list(numbered(50).split(size)), 16, limit=limit))
        assert found == chunks(min(limit, 50), 16)


def test_nothing_is_read_beyond_the_limit() -> None:
    read = 0

    def endless() -> Iterator[Tensor]:
        nonlocal read
        while True:
            read += 4
            yield numbered(4)

    assert len(list(micro_batches(endless(), 8, limit=20))) == 3
    assert read == 20


def test_micro_batches_are_the_models_own() -> None:
    """No view of the user's tensors: those may be reused, and a view keeps the whole of them alive."""
    x = numbered(64)
    found = list(micro_batches([x], 16))
    x.zero_()
    assert names(found) == chunks(64, 16)
    assert all(b.untyped_storage().nbytes() == b.numel() * 4 for b in found)
    last = next(micro_batches([numbered(5)], 16))
    assert last.untyped_storage().nbytes() == last.numel() * 4


def test_memory_format_of_the_users_batches_does_not_matter() -> None:
    x = torch.randn(20, 3, 4, 4, generator=torch.Generator().manual_seed(0)).to(
        memory_format=torch.channels_last
    )
    found = list(micro_batches(x, 16))
    assert all(b.is_contiguous() for b in found) and torch.equal(torch.cat(found), x)


def opened(samples: Any, **options: Any) -> tuple[Calibration, Tensor, list[Tensor]]:
    c = Calibration(samples, **options)
    first = c.open()
    return c, first, list(c.stream())


def test_split_of_a_large_set() -> None:
    c, first, streamed = opened(numbered(1000), size=16, holdout=128, keep=160)
    assert names(c.held_out) == chunks(128, 16)
    assert names(c.reporting) == [[i + 128 for i in b] for b in chunks(128, 16)]
    assert names(streamed) == [[i + 256 for i in b] for b in chunks(744, 16)]
    assert names(c.kept) == names(streamed[:10])
    assert torch.equal(first, c.held_out[0])
    assert c.total == 1000


@pytest.mark.parametrize("n", [1, 2, 5, 16, 17, 40, 48, 49, 64, 100, 256, 272, 511, 512, 600])
def test_small_sets(n: int) -> None:
    """Some samples to judge on and some to observe, whatever there is; no sample twice if it can be."""
    c, _, streamed = opened(numbered(n), size=16, holdout=128, keep=32)
    held, told, seen, kept = (
        [i for b in names(part) for i in b] for part in (c.held_out, c.reporting, streamed, c.kept)
    )
    assert held and seen
    assert sorted({*held, *told, *seen}) == list(range(n))
    assert not {*held} & {*told} and not {*told} & {*seen}
    if n > 32:  # three micro-batches
        assert not {*held} & {*seen} and len(c.reporting) == len(c.held_out)
        assert len(streamed) >= len(held) // 16 + len(told) // 16 - 1
    else:
        assert not told
    assert c.total == n
    assert kept == seen[:32]


@pytest.mark.parametrize("n", [1, 17, 33, 40, 64, 300])
def test_expected_number_of_micro_batches(n: int) -> None:
    c = Calibration(numbered(n), size=16, holdout=128)
    c.open()
    expected = c.expected()
    assert expected == len(list(c.stream()))


def test_memory_follows_what_is_kept_not_the_data() -> None:
    """Batches come from a generator; after each one count the samples that are still alive."""
    alive: list[int] = []

    def count() -> int:
        gc.collect()
        storages = {
            t.untyped_storage().data_ptr(): t.untyped_storage().nbytes()
            for t in gc.get_objects()
            if type(t) is Tensor and t.shape[1:] == (7, 11)
        }
        return sum(storages.values()) // (7 * 11 * 4)

    def batches() -> Iterator[Tensor]:
        for i in range(12):
            alive.append(count())
            yield torch.full((100, 7, 11), float(i))

    c = Calibration(batches(), size=16, holdout=32, keep=48)
    c.open()
    for x in c.stream():
        del x
    # both held-out parts, kept, a batch of the user's, what is left of the one before with it, a micro-batch
    assert max(alive) <= 2 * 32 + 48 + 3 * 100 + 16 * 4
    assert max(alive[8:]) <= max(alive[4:8])


# --- bad data -------------------------------------------------------------------------------------


def one_sentence(e: pytest.ExceptionInfo[DataError]) -> None:
    text = str(e.value)
    assert "\n" not in text and 10 < len(text) < 200


@pytest.mark.parametrize("samples", [[], torch.zeros(0, 3), iter(()), [torch.zeros(0, 3), torch.zeros(0, 3)]])
def test_no_samples(samples: Any) -> None:
    with pytest.raises(DataError, match="no samples") as e:
        list(micro_batches(samples, 16))
    one_sentence(e)
    with pytest.raises(DataError, match="no samples"):
        Calibration([]).open()


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_not_finite(bad: float) -> None:
    x = numbered(40)
    x[33, 1, 2] = bad
    with pytest.raises(DataError, match=r"sample 33, counted from 0 .* holds NaN or infinite") as e:
        list(micro_batches(x, 16))
    with pytest.raises(DataError, match="sample 33, "):
        list(micro_batches(x.split(7), 16))
    one_sentence(e)


def test_different_shapes() -> None:
    with pytest.raises(DataError, match=r"\[3, 4\] after \[2, 3\]") as e:
        list(micro_batches([torch.zeros(4, 2, 3), torch.zeros(4, 3, 4)], 16))
    one_sentence(e)
    with pytest.raises(DataError, match="different shapes"):
        list(micro_batches([torch.zeros(4, 2, 3), torch.zeros(4, 2)], 16))


def test_one_axis_may_differ_and_is_never_mixed() -> None:
    parts = [torch.full((n, 2, t), float(t)) for n, t in ((5, 3), (4, 7), (6, 3), (1, 7), (2, 3))]
    found = list(micro_batches(parts, 4))
    assert [tuple(x.shape) for x in found] == [
        (4, 2, 3), (4, 2, 7), (4, 2, 3), (4, 2, 3), (1, 2, 3), (1, 2, 7)
    ]  # fmt: skip
    assert all(bool((x == x.shape[2]).all()) for x in found)


def test_no_batch_axis() -> None:
    with pytest.raises(DataError, match="no batch axis 1") as e:
        list(micro_batches([torch.zeros(4)], 16, batch_axis=1))
    one_sentence(e)
    with pytest.raises(DataError, match="no batch axis"):
        list(micro_batches([torch.tensor(1.0)], 16))
    with pytest.raises(DataError, match="no batch axis"):
        list(micro_batches(torch.zeros(4), 16, batch_axis=1))
    with pytest.raises(DataError, match="no batch axis"):
        list(micro_batches(torch.tensor(1.0), 16))


@pytest.mark.parametrize("samples", [3, None, "file.npz", {"x": 1}, [{"x": 1}], [()], [None]])
def test_things_that_are_no_samples(samples: Any) -> None:
    with pytest.raises(DataError) as e:
        list(micro_batches(samples, 16))
    one_sentence(e)


def test_arrays_and_lists_are_batches() -> None:
    import numpy as np

    found = list(batches_of([np.zeros((2, 3), dtype=np.float32), (np.ones((1, 3)), 0)]))
    assert [tuple(b.shape) for b in found] == [(2, 3), (1, 3)]
