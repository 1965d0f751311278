"""The packed-state table of the paper, and counts by hand."""

from __future__ import annotations

import numpy as np
import pytest

from ptq4snn.bundle.packing import pack
from ptq4snn.cost.accounting import (
    StateTensor,
    is_mixed,
    operations,
    packet_cost,
    resident_states,
    state_cost,
    stream_bytes,
    weight_cost,
)
from ptq4snn.network.plan import ProjectionPlan
from ptq4snn.pipeline import run
from ptq4snn.recipe import Recipe

KIB, MIB = 2**10, 2**20
# SEW-ResNet18 on 32x32: channels, states per channel, how many such neurons
STEM = (64, 1024)
STAGES = ((64, 1024, 4), (128, 256, 5), (256, 64, 5), (512, 16, 5))
NEURONS = [(channels, elements) for channels, elements, count in STAGES for _ in range(count)]


def row(bits: int, stem_bits: int = 16) -> list[StateTensor]:
    return [StateTensor(*STEM, [stem_bits], stem=True), *(StateTensor(*n, [bits]) for n in NEURONS)]


def mixed_row(narrow: int, wide: int) -> list[StateTensor]:
    """`narrow` states at 2 bits, `wide` at 8, the others at 4, given out from the last layer on."""
    out = []
    for channels, elements in reversed(NEURONS):
        two = min(channels, narrow // elements)
        eight = min(channels - two, wide // elements)
        narrow, wide = narrow - two * elements, wide - eight * elements
        out.append(StateTensor(channels, elements, [2] * two + [8] * eight + [4] * (channels - two - eight)))
    assert narrow == wide == 0
    return [StateTensor(*STEM, [16], stem=True), *reversed(out)]


def test_shape_of_the_table() -> None:
    cost = packet_cost(row(32), mixed=False)
    assert (cost.elements, cost.channels) == (614_400, 4_736)


def test_m32_row() -> None:
    cost = packet_cost(row(32), mixed=False)
    assert f"{cost.average_bits:.3f}" == "30.293"
    assert f"{cost.logical / MIB:.3f} {cost.packed / MIB:.3f}" == "2.219 2.219"
    assert cost.energy == 1.0
    assert cost.float32 == 4 * 614_400


def test_uniform_m4_row_without_and_with_shifts() -> None:
    cost = packet_cost(row(4), mixed=False)
    assert f"{cost.average_bits:.3f}" == "5.280"
    assert f"{cost.logical / MIB:.3f} {cost.packed / MIB:.3f} {cost.energy:.3f}" == "0.387 0.387 0.174"
    assert cost.metadata == 0
    assert cost.shifts == 4_736  # a byte each
    assert cost.packed_with_shifts == 405_504 + 4_736
    assert cost.energy_with_shifts == (405_504 + 4_736) / 2_326_528


def test_mixed_row() -> None:
    cost = packet_cost(mixed_row(narrow=34_032, wide=17_296), mixed=True)
    assert [f"{100 * cost.split[b]:.2f}" for b in (2, 4, 8)] == ["6.20", "90.65", "3.15"]
    nonstem = (8 * cost.logical - 16 * 65_536) / (614_400 - 65_536)
    assert f"{nonstem:.3f} {cost.average_bits:.3f}" == "4.002 5.282"
    assert f"{cost.metadata / KIB:.2f}" == "5.78" and cost.metadata * 8 == 4_736 * 10
    assert cost.payload == cost.logical  # no channel needs padding here
    assert f"{cost.logical / MIB:.3f} {cost.packed / MIB:.3f} {cost.energy:.3f}" == "0.387 0.392 0.177"
    assert (cost.packed_with_shifts, cost.energy_with_shifts) == (cost.packed, cost.energy)


@pytest.mark.parametrize("elements", [1, 3, 7, 16, 49])
@pytest.mark.parametrize("bits", [[2, 4, 8, 2, 16], [4, 4, 4, 4, 4], [2, 2, 2, 2, 8], [3, 3, 2, 3, 4]])
def test_packets_are_padded_per_channel(elements: int, bits: list[int]) -> None:
    words = 0
    for b in bits:  # lay the bits out one after the other
        used = 0
        for _ in range(elements):
            used += b
        words += used // 32 + (used % 32 > 0)
    cost = packet_cost([StateTensor(5, elements, bits)], mixed=True)
    assert cost.payload == 4 * words
    assert cost.packed == 4 * words + -(-5 * 10 // 8)
    assert cost.energy == pytest.approx((words + 2) / (5 * elements))


def test_three_bits_fill_words_up() -> None:
    """11 values of 3 bits are 33 bits, two words; 32 values are three words, as in a packed array."""
    for elements in (1, 10, 11, 21, 22, 32, 64):
        words = packet_cost([StateTensor(7, elements, [3])], mixed=False)
        packed = pack(np.zeros(elements, np.int64), 3).size
        assert words.payload == 7 * 4 * -(-packed // 4)
        assert words.logical == -(-7 * 3 * elements // 8)
    assert packet_cost([StateTensor(1, 11, [3])], mixed=False).payload == 8
    assert packet_cost([StateTensor(1, 10, [3])], mixed=False).payload == 4


@pytest.mark.parametrize("bits", [4, 32])
def test_rows_are_the_papers_packets_where_no_packet_is_padded(bits: int) -> None:
    rows, packets = state_cost(row(bits), mixed=False), packet_cost(row(bits), mixed=False)
    assert rows == packets


@pytest.mark.parametrize("elements", [1, 3, 16])
@pytest.mark.parametrize("bits", [[2, 4, 8, 2, 16], [4, 4, 4, 4, 4], [2, 2, 2, 2, 8], [3, 3, 2, 3, 4]])
def test_rows_are_padded_per_position(elements: int, bits: list[int]) -> None:
    cost = state_cost([StateTensor(5, elements, bits)], mixed=False)
    assert cost.payload == elements * -(-sum(bits) // 8)
    assert cost.words == cost.payload_words == -(-cost.payload // 4)
    assert cost.energy == cost.words / (5 * elements)
    one = state_cost([StateTensor(5, elements, bits, rows=1)], mixed=False)
    assert one.payload == -(-sum(bits) * elements // 8) == one.logical


@pytest.mark.parametrize("mixed", [False, True])
def test_zero_points_are_counted(mixed: bool) -> None:
    plain = packet_cost([StateTensor(5, 64, [4]), StateTensor(3, 64, [4])], mixed)
    moved = packet_cost([StateTensor(5, 64, [4], zero_points=True), StateTensor(3, 64, [4])], mixed)
    assert moved.payload == plain.payload and moved.shifts == plain.shifts
    assert moved.metadata == plain.metadata + 5  # a byte for each channel of the one that has them
    assert moved.packed == plain.packed + 5 and moved.packed_with_shifts == plain.packed_with_shifts + 5
    assert moved.energy is not None and plain.energy is not None and moved.energy > plain.energy


def test_zero_points_of_a_plan_are_counted(residual) -> None:  # type: ignore[no-untyped-def]
    recipe = Recipe(
        holdout=16, sensitivity_batches=1, membrane=3, rounding="nearest", allocation="uniform",
        objective="replay", sequential=False, zero_point="channel",
    )  # fmt: skip
    plan = run(residual.prepared, recipe).plan
    moved = sum(n.channels for n in plan.neurons.values() if any(n.zero))
    cost = packet_cost(resident_states(plan), is_mixed(plan))
    assert moved > 0 and not is_mixed(plan)
    assert cost.metadata == moved and cost.packed == cost.payload + moved


@pytest.mark.parametrize(("widths", "tag"), [((2, 4), 2), ((2, 4, 8, 16), 2), ((2, 3, 4, 8, 16), 3)])
def test_a_tag_tells_all_widths_apart(widths: tuple[int, ...], tag: int) -> None:
    cost = packet_cost([StateTensor(len(widths), 32, widths)], mixed=True)
    assert cost.metadata == -(-len(widths) * (tag + 8) // 8)


def test_widths_must_fit_the_channels() -> None:
    with pytest.raises(ValueError, match="3 widths for 4 channels"):
        StateTensor(4, 1, [2, 4, 8]).widths()


def test_no_state_costs_nothing() -> None:
    cost = packet_cost([], mixed=True)
    assert (cost.packed, cost.energy, cost.average_bits) == (0, None, 0.0)


def projection(bits: int | None, scales: tuple[float, ...]) -> ProjectionPlan:
    return ProjectionPlan("p", "pair", bits, scales, scales, 0, 1.0, False, 0)


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 8])
def test_weight_bytes_are_those_of_the_bundle(bits: int) -> None:
    cost = weight_cost(projection(bits, (0.1, 0.2, 0.3)), 27)
    assert cost.packed == pack(np.zeros(27, np.int64), bits).size
    assert (cost.float32, cost.scales, cost.biases) == (108, 12, 12)


def test_float_weights_and_one_scale_per_tensor() -> None:
    assert weight_cost(projection(None, (0.1, 0.2)), 10).packed == 40
    assert weight_cost(projection(8, (0.5, 0.5, 0.5)), 9).scales == 4
    assert weight_cost(projection(8, (0.5, 0.5, 0.1)), 9).scales == 12


def test_operations_by_hand() -> None:
    found = operations({"stem": 1000, "a": 400, "b": 50}, {"a": 0.25, "b": 2.0})
    assert (found.synops, found.macs) == (200.0, 1000)
    assert found.energy_pj == pytest.approx(0.9 * 200 + 4.6 * 1000)


def test_states_of_a_plan(residual, twice) -> None:  # type: ignore[no-untyped-def]
    plan = residual.model.plan
    states = resident_states(plan)
    assert sum(t.channels * t.elements for t in states) == 8 * 256 + 3 * 8 * 64 + 3 * 16 * 16
    assert is_mixed(plan) and not is_mixed(twice.model.plan)
    cost = packet_cost(states, mixed=True)
    assert cost.metadata == -(-(3 * 8 + 3 * 16) * 10 // 8)
    free = packet_cost(resident_states(twice.model.plan), mixed=False)
    assert free.shifts == -(-7 * 2 * 23 // 8)  # sn2 has two multipliers and shifts per channel, the stem none
    assert stream_bytes(residual.prepared.folded.discovery) == 0
