"""Bytes per batch and words per step: counted one by one, and the numbers that the paper's rows must have."""

from __future__ import annotations

from typing import Any

import pytest

from ptq4snn.cost.accounting import StateTensor, WeightCost, packet_cost, stream_bytes
from ptq4snn.cost.traffic import Resident, ideal_bytes, moved_words, plan_cost, residents

TENSORS = [
    StateTensor(3, 7, [2, 4, 8]),
    StateTensor(2, 40, [4], zero_points=True),
    StateTensor(4, 5, [16], stem=True),
]
# SEW-ResNet18 on CIFAR-10: 65,536 states of the stem at 16 bits, 548,864 others
STEM = StateTensor(64, 1024, [16], stem=True)
OTHERS = [(64, 1024)] * 4 + [(128, 256)] * 5 + [(256, 64)] * 5 + [(512, 16)] * 5


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize(("steps", "batch"), [(1, 1), (4, 1), (3, 5)])
def test_words_are_counted_one_by_one(steps: int, batch: int, mixed: bool) -> None:
    """A machine that reads and writes 32-bit words, packet by packet."""
    moved = 0
    for _ in range(steps):
        for _direction in ("read", "write"):
            for t in TENSORS:
                widths = list(t.bits) * (t.channels if len(t.bits) == 1 else 1)
                for bits in widths:
                    moved += batch * len(range(0, t.elements * bits, 32))
            tags = (3 + 2) * 2 if mixed else 0
            shifts = (3 + 2) * 8 if mixed else 0
            moved += len(range(0, tags + shifts + 2 * 8, 32))  # two zero points
    cost = packet_cost(TENSORS, mixed)
    assert moved_words(cost, steps, batch) == moved
    assert cost.words * 2 == moved_words(cost, 1)


def test_resident_bytes() -> None:
    cost = packet_cost(TENSORS, mixed=True)
    found = residents(WeightCost(float32=4000, packed=500, scales=12, biases=40), cost, streams=64)
    states = 3 * 7 + 2 * 40 + 4 * 5
    assert found.before == Resident(4000, 40, 4 * states, 0, 128)
    assert found.logical == Resident(500, 52, (7 * 14 + 80 * 4 + 20 * 16 + 7) // 8, cost.metadata, 64)
    words = (1 + 1 + 2) + 2 * 5 + 4 * 3
    assert found.packed == Resident(500, 52, 4 * words, cost.metadata, 64)
    for batch in (1, 8):
        once = 500 + 52 + -(-(5 * 10 + 16) // 8)
        assert found.packed.at(batch) == once + sum(4 * words + 64 for _ in range(batch))


def test_read_write_energy_of_the_papers_rows() -> None:
    """Normalised to the M32 row, for any number of steps."""

    def row(bits: int) -> list[StateTensor]:
        return [STEM, *(StateTensor(c, n, [bits]) for c, n in OTHERS)]

    m32, m4 = (packet_cost(row(b), mixed=False) for b in (32, 4))
    mpba = packet_cost(row(4), mixed=True)  # 4-bit packets, but a tag and a shift for each channel
    assert (m32.words, m32.m32_words) == (32_768 + 548_864,) * 2
    assert m4.words == 32_768 + 548_864 // 8 and mpba.words == m4.words + 4_736 * 10 // 32
    for steps in (1, 4, 10):
        base = moved_words(m32, steps)
        assert base == 2 * steps * 581_632
        assert f"{moved_words(m4, steps) / base:.3f} {moved_words(mpba, steps) / base:.3f}" == "0.174 0.177"
    assert (m32.energy, m4.energy, mpba.energy) == tuple(c.words / m32.words for c in (m32, m4, mpba))


def test_a_plan(summed: Any) -> None:
    plan, discovery = summed.model.plan, summed.prepared.folded.discovery
    sizes = {n: i.weight.numel() for n, i in summed.model.integers.items()}
    found = plan_cost(plan, sizes, stream_bytes(discovery))
    assert sum(sizes.values()) * 4 == found.weights.float32 == found.resident.before.weights
    assert found.resident.packed.streams == 2 * 5 and found.resident.before.streams == 4 * 5
    assert found.resident.before.states == 4 * (8 + 5)
    assert found.packets.payload == 4 * (8 + 5)  # a value a channel: a word each
    assert found.resident.packed.states == 2 * 8 + -(-4 * 5 // 8)  # a row of 16 bits, one of 4
    assert found.resident.logical.states == -(-(16 * 8 + 4 * 5) // 8)


def test_ideal_packing() -> None:
    assert ideal_bytes(19_425_024, 4) * 8 == ideal_bytes(19_425_024, 32) == 77_700_096
