"""What a network keeps resident at a batch size, and the state words that its time steps move.

    resident(B)    weights + scales + biases + metadata + B (states + stream buffers)      bytes
    moved(T, B)    2 T (B payload + metadata)       32-bit SRAM words, read and written, of the 8x16-PE model

The normalised read/write energy is moved(T, 1) over that of the M32 row, the same for every T.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ptq4snn.evaluation.cost import (
    FLOAT_BITS,
    STREAM_BITS,
    WORD,
    StateCost,
    WeightCost,
    is_mixed,
    resident_states,
    state_cost,
    weight_cost,
)
from ptq4snn.plan import Plan

__all__ = ["PlanCost", "Resident", "Residents", "ideal_bytes", "moved_words", "plan_cost", "residents"]


@dataclass(frozen=True)
class Resident:
    """Bytes: weights, constants and metadata are there once, states and streams for each sample."""

    weights: int
    constants: int  # scales and biases
    states: int
    metadata: int
    streams: int

    def at(self, batch: int) -> int:
        """Bytes of a batch."""
        return self.weights + self.constants + self.metadata + batch * (self.states + self.streams)


@dataclass(frozen=True)
class Residents:
    """A network before quantization (float32) and after it, with states unpadded and padded to words."""

    before: Resident
    logical: Resident
    packed: Resident


def residents(weights: WeightCost, state: StateCost, streams: int) -> Residents:
    """`streams`: bytes of the int16 buffers of one sample; before they are float32."""
    constants = weights.scales + weights.biases
    return Residents(
        Resident(weights.float32, weights.biases, state.float32, 0, streams * FLOAT_BITS // STREAM_BITS),
        Resident(weights.packed, constants, state.logical, state.metadata, streams),
        Resident(weights.packed, constants, state.payload, state.metadata, streams),
    )


def moved_words(state: StateCost, steps: int, batch: int = 1) -> int:
    """Words read and written: every step takes all packets in and out again, and the metadata with them."""
    payload = state.payload * 8 // WORD
    return 2 * steps * (batch * payload + state.words - payload)


def ideal_bytes(elements: int, bits: int) -> int:
    """Values packed without padding."""
    return elements * bits // 8


@dataclass(frozen=True)
class PlanCost:
    """Everything that a plan costs."""

    projections: dict[str, WeightCost]
    weights: WeightCost  # of all projections
    state: StateCost
    streams: int  # bytes of one sample
    resident: Residents


def plan_cost(plan: Plan, sizes: Mapping[str, int], streams: int) -> PlanCost:
    """sizes: number of weights of each projection. streams: bytes of their int16 buffers."""
    projections = {n: weight_cost(p, sizes[n]) for n, p in plan.projections.items()}
    weights = sum(projections.values(), WeightCost())
    state = state_cost(resident_states(plan), is_mixed(plan))
    return PlanCost(projections, weights, state, streams, residents(weights, state, streams))
