"""Memory is given back to the system for large networks only, and glibc is left as it leaves itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ptq4snn import heap


class Library:
    """Stands in for glibc and notes what it is told."""

    def __init__(self) -> None:
        self.settings: dict[int, int] = {}
        self.trims = 0

    def malloc_trim(self, pad: int) -> int:
        self.trims += 1
        return 1

    def mallopt(self, name: int, value: int) -> int:
        self.settings[name] = value
        return 1


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    found = Library()
    monkeypatch.setattr(heap, "_glibc", lambda: found)
    monkeypatch.setattr(heap, "STATE", heap._State())
    yield found


def test_a_section_that_spares_memory(library: Library) -> None:
    heap.at_hand(heap.SMALL)
    with heap.sparing():
        assert library.settings == {heap.MMAP_THRESHOLD: heap.PIECE, heap.TRIM_THRESHOLD: heap.PIECE}
        with heap.sparing():
            pass
        assert library.settings[heap.MMAP_THRESHOLD] == heap.PIECE  # the outer one goes on
    assert library.settings == {
        heap.MMAP_THRESHOLD: heap.LARGEST, heap.TRIM_THRESHOLD: 2 * heap.LARGEST
    }  # fmt: skip


def test_it_ends_with_an_error(library: Library) -> None:
    with pytest.raises(KeyError), heap.sparing():
        raise KeyError
    assert library.settings[heap.MMAP_THRESHOLD] == heap.LARGEST and heap.STATE.sparing == 0


def test_small_networks_are_left_alone(library: Library) -> None:
    heap.at_hand(heap.SMALL - 1)
    with heap.sparing():
        heap.trim_behind()
    heap.give_back()
    assert not library.settings and not library.trims


def test_a_network_that_is_small_while_a_larger_one_is_at_hand(library: Library) -> None:
    with heap.sparing():
        heap.at_hand(1)
    assert library.settings[heap.MMAP_THRESHOLD] == heap.LARGEST


def test_behind_layers_only_where_memory_is_spared(library: Library) -> None:
    heap.trim_behind()
    assert not library.trims
    with heap.sparing():
        before = library.trims
        heap.trim_behind()
        assert library.trims == before + 1


def test_where_there_is_no_glibc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap, "_glibc", lambda: None)
    with heap.sparing():
        heap.trim_behind()
    heap.give_back()
