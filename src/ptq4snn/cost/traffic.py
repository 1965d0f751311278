"""What a network keeps resident at a batch size, and the state words that its time steps move.

    resident(B)    weights + scales + biases + metadata + B (states + stream buffers)      bytes
    moved(T, B)    2 T (B payload + metadata)       32-bit SRAM words, read and written, of the 8x16-PE model

States are counted in the runtime's rows; `PlanCost.packets` has them in the paper's channel-major packets.

The normalised read/write energy is moved(T, 1) over that of the M32 row, the same for every T.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ptq4snn.cost.accounting import (
    FLOAT_BITS,
    STREAM_BITS,
    StateCost,
    WeightCost,
    is_mixed,
    packet_cost,
    resident_states,
    state_cost,
    weight_cost,
)
from ptq4snn.network.plan import Plan

if TYPE_CHECKING:
    from ptq4snn.network.program import Program

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
    """A network before quantization (float32) and after it, with states unpadded and as they are packed."""

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
    """Words read and written: every step takes all states in and out again, and the metadata with them."""
    return 2 * steps * (batch * state.payload_words + state.words - state.payload_words)


def ideal_bytes(elements: int, bits: int) -> int:
    """Values packed without padding."""
    return elements * bits // 8


@dataclass(frozen=True)
class PlanCost:
    """Everything that a plan costs."""

    projections: dict[str, WeightCost]
    weights: WeightCost  # of all projections
    state: StateCost
    packets: StateCost  # the same states as the paper lays them out
    streams: int  # bytes of one sample
    resident: Residents


def plan_cost(plan: Plan, sizes: Mapping[str, int], streams: int, program: Program | None = None) -> PlanCost:
    """sizes: number of weights of each projection. streams: bytes of their int16 buffers."""
    projections = {n: weight_cost(p, sizes[n]) for n, p in plan.projections.items()}
    weights = sum(projections.values(), WeightCost())
    states, mixed = resident_states(plan, program), is_mixed(plan)
    state = state_cost(states, mixed)
    packets = packet_cost(states, mixed)
    return PlanCost(projections, weights, state, packets, streams, residents(weights, state, streams))
