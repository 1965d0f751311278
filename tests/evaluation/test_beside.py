"""Work beside other work: one order of events, errors told where they are waited for, no thread left."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch

import ptq4snn
from ptq4snn.evaluation import fidelity
from ptq4snn.evaluation.beside import Beside
from ptq4snn.models.vgg import SpikingVGG


def test_the_two_take_turns() -> None:
    events: list[str] = []

    def work(pause: Callable[[], None]) -> int:
        for i in range(3):
            events.append(f"beside {i}")
            pause()
        return 7

    beside = Beside(work)
    assert events == []  # nothing runs before it is waited for
    for i in range(3):
        assert beside.advance()
        events.append(f"here {i}")
    assert beside.result() == 7 and not beside.advance()
    assert events == [f"{where} {i}" for i in range(3) for where in ("beside", "here")]
    beside.close()


def test_what_it_raises_is_raised_where_it_is_waited_for() -> None:
    def work(pause: Callable[[], None]) -> None:
        pause()
        raise MemoryError("can't allocate memory")

    beside = Beside(work)
    assert beside.advance()
    with pytest.raises(MemoryError, match="allocate"):
        beside.advance()
    beside.close()


def test_work_that_nobody_wants_any_more_ends() -> None:
    tidied: list[bool] = []

    def work(pause: Callable[[], None]) -> None:
        try:
            while True:
                pause()
        finally:
            tidied.append(True)

    before = threading.active_count()
    beside = Beside(work)
    assert beside.advance() and threading.active_count() == before + 1
    beside.close()
    assert tidied == [True] and threading.active_count() == before


def test_a_report_is_the_same_side_by_side_and_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """And for portions of any size, where outputs are of few steps."""
    torch.manual_seed(0)
    model = SpikingVGG(((8,), (16,)), num_classes=4)
    x = 8 * torch.rand(40, 3, 8, 8)

    def reported() -> dict[str, object]:
        return dict(ptq4snn.quantize(model, x, "nearest+w4m4", holdout=8, micro_batch=8).report)

    found = reported()
    monkeypatch.setattr(fidelity, "LITTLE_BYTES", 0)  # as if it were large
    assert reported() == found
    monkeypatch.setattr(fidelity, "AT_ONCE_BYTES", 1)
    assert reported() == found
    held: list[int] = []

    class AtOnce(Beside[torch.Tensor]):
        """The float network runs to its end before the quantized one begins."""

        def advance(self) -> bool:
            while super().advance():
                pass
            held.append(1)
            return False

    monkeypatch.setattr(fidelity, "Beside", AtOnce)
    assert reported() == found and held
