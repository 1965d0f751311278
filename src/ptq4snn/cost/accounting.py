"""Exact accounting: bytes of weights and resident state, synaptic operations, energy.

The models take plain tuples, not torch modules, so that any allocation can be counted. Rules:

* States lie as the runtime packs them (`state_cost`): the channels of one position side by side in a row that
  is padded to a byte; a fully connected layer is a single row. The paper's layout is counted apart
  (`packet_cost`): a packet for each channel, padded to 32-bit words (channel-major). Where channels have many
  elements both are alike; where they have one, a packet is a whole word for every state.
* Metadata of mixed precision: a 2-bit tag and an 8-bit shift for every channel but the stem's; a wider tag
  where more than four widths occur, as by overrides. A uniform width needs no tag, and the paper counts no
  shift there; both totals are given, without and with shifts.
* Zero points of the states are metadata in any case: a byte for every channel of a neuron that has them.
* State energy: words moved, metadata included, over the words of the M32 row (stem 16 bits, the others 32).
* Operation energy: 0.9 pJ an accumulate, 4.6 pJ a multiply-accumulate (45 nm, float32), before and after
  alike: it shows what changed firing costs, and gives no credit for narrower integers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from ptq4snn.network.plan import NeuronPlan, Plan, ProjectionPlan
from ptq4snn.numerics.limits import MULTIPLIER_BITS

if TYPE_CHECKING:
    from ptq4snn.discovery.discover import Discovery
    from ptq4snn.network.program import Operation, Program

__all__ = [
    "Operations", "StateCost", "StateTensor", "WeightCost", "is_mixed", "operations", "packet_cost",
    "resident_states", "state_cost", "stream_bytes", "weight_cost",
]  # fmt: skip

WORD = 32
TAG_BITS, SHIFT_BITS, ZERO_POINT_BITS = 2, 8, 8  # of a channel
FLOAT_BITS, STEM_BITS, STREAM_BITS = 32, 16, 16
AC_PJ, MAC_PJ = 0.9, 4.6


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


@dataclass(frozen=True)
class StateTensor:
    """The state of one neuron: `elements` values in each channel, of bits[c] bits."""

    channels: int
    elements: int
    bits: Sequence[int]  # one per channel, or one for all
    stem: bool = False
    scale_bits: int | None = None  # what says its scale; None: a shift per channel
    zero_points: bool = False
    rows: int | None = None  # that a sample is packed into; None: one for each element of a channel

    def widths(self) -> dict[int, int]:
        """Channels of each width."""
        if len(self.bits) == 1:
            return {self.bits[0]: self.channels}
        if len(self.bits) != self.channels:
            raise ValueError(
                f"{len(self.bits)} widths for {self.channels} channels; give one each or one for all"
            )
        return {b: list(self.bits).count(b) for b in sorted(set(self.bits))}

    def row_bytes(self, bits: int | None = None) -> int:
        """Bytes of all rows (runtime/state.py), at the assigned widths or at one width."""
        rows = self.elements if self.rows is None else self.rows
        total = self.logical_bits() if bits is None else self.channels * self.elements * bits
        return rows * _ceil(total // max(1, rows), 8)

    def packet_bytes(self, bits: int | None = None) -> int:
        """Bytes of all packets, whole words, at the assigned widths or at one width."""
        widths = self.widths() if bits is None else {bits: self.channels}
        return WORD // 8 * sum(n * _ceil(self.elements * b, WORD) for b, n in widths.items())

    def logical_bits(self) -> int:
        return sum(n * self.elements * b for b, n in self.widths().items())

    def shift_bits(self) -> int:
        if self.stem:
            return 0
        return self.channels * SHIFT_BITS if self.scale_bits is None else self.scale_bits

    def zero_bits(self) -> int:
        return self.channels * ZERO_POINT_BITS if self.zero_points else 0

    def tagged(self) -> int:
        """Channels whose width is told by a tag; a 32-bit state has none."""
        return 0 if self.stem else sum(n for b, n in self.widths().items() if b < FLOAT_BITS)


@dataclass(frozen=True)
class StateCost:
    """Resident membrane state of one sample (B = 1). Bytes; `logical` has neither padding nor metadata."""

    elements: int
    channels: int  # without the stem's
    average_bits: float  # over all resident states
    split: dict[int, float]  # share of the states outside the stem that have this width
    float32: int
    logical: int
    payload: int  # rows padded to bytes, or packets padded to words
    metadata: int  # tags and shifts of mixed precision, and zero points
    packed: int  # payload and metadata
    energy: float | None  # None: there is no state
    shifts: int  # what the scales take in any case
    packed_with_shifts: int
    energy_with_shifts: float | None
    payload_words: int  # 32-bit words; every neuron begins a new one
    words: int  # of payload and metadata: what a step reads, and writes again
    m32_words: int  # of the M32 row


def state_cost(tensors: Iterable[StateTensor], mixed: bool) -> StateCost:
    """Count the states in the runtime's rows; `mixed`: widths are stored per channel, so tags and shifts are
    metadata."""
    return _cost(list(tensors), mixed, StateTensor.row_bytes)


def packet_cost(tensors: Iterable[StateTensor], mixed: bool) -> StateCost:
    """The same in the paper's channel-major packets."""
    return _cost(list(tensors), mixed, StateTensor.packet_bytes)


def _cost(ts: list[StateTensor], mixed: bool, size: Callable[[StateTensor, int | None], int]) -> StateCost:
    """size(t, bits): bytes of a neuron's states at their own widths (None) or at one width."""
    elements = sum(t.channels * t.elements for t in ts)
    outside = [t for t in ts if not t.stem]
    rest = sum(t.channels * t.elements for t in outside)
    counts: dict[int, int] = {}
    for t in outside:
        for b, n in t.widths().items():
            counts[b] = counts.get(b, 0) + n * t.elements
    logical = sum(t.logical_bits() for t in ts)
    payload = sum(size(t, None) for t in ts)
    words = sum(_ceil(8 * size(t, None), WORD) for t in ts)
    tag = max(TAG_BITS, (len([b for b in counts if b < FLOAT_BITS]) - 1).bit_length())
    tags, shifts = tag * sum(t.tagged() for t in ts) if mixed else 0, sum(t.shift_bits() for t in ts)
    zeros = sum(t.zero_bits() for t in ts)
    metadata = zeros + (tags + shifts if mixed else 0)
    baseline = sum(_ceil(8 * size(t, STEM_BITS if t.stem else FLOAT_BITS), WORD) for t in ts)

    def energy(extra: int) -> float | None:
        return (words + _ceil(extra, WORD)) / baseline if baseline else None

    return StateCost(
        elements=elements,
        channels=sum(t.channels for t in outside),
        average_bits=logical / elements if elements else 0.0,
        split={b: counts[b] / rest for b in sorted(counts)},
        float32=elements * FLOAT_BITS // 8,
        logical=_ceil(logical, 8),
        payload=payload,
        metadata=_ceil(metadata, 8),
        packed=payload + _ceil(metadata, 8),
        energy=energy(metadata),
        shifts=_ceil(shifts, 8),
        packed_with_shifts=payload + _ceil(tags + shifts + zeros, 8),
        energy_with_shifts=energy(tags + shifts + zeros),
        payload_words=words,
        words=words + _ceil(metadata, WORD),
        m32_words=baseline,
    )


def _scale_bits(n: NeuronPlan) -> int:
    """Bits that say a neuron's state scale: a shift where it is one, multipliers where it is free."""
    if n.coupling in ("none", "reuse"):
        return 0  # the scale is the unit's or the weight's own
    if n.coupling == "independent":  # to the state's scale and back
        return n.channels * 2 * (MULTIPLIER_BITS + SHIFT_BITS)
    return SHIFT_BITS * (1 if n.coupling in ("layerwise", "flowq") else n.channels)


def program_rows(program: Program) -> dict[str, int]:
    """Rows of one sample of every neuron, as runtime/state.py packs it."""
    from ptq4snn.network.program import Neuron  # here, because a report is shown without NumPy

    return {
        op.name: program.values[op.output].positions if op.channel is None else 1
        for op in program.operations
        if isinstance(op, Neuron)
    }


def delayed_spikes(plan: Plan, program: Program, op: Operation) -> StateTensor:
    """Spikes that come back one step later: a bit each (where they are counted, as many as a count needs), in
    one row, without tags and shifts like the stem."""
    value, made = program.values[op.output], {o.output: o for o in program.operations}
    source = made[op.inputs[0]]
    while source.kind == "gather":
        source = made[source.inputs[0]]
    most = plan.neurons[source.name].most if source.kind == "neuron" else 1
    return StateTensor(value.channels, value.positions, (most.bit_length(),), stem=True, scale_bits=0, rows=1)


def resident_states(plan: Plan, program: Program | None = None) -> list[StateTensor]:
    """The states a plan keeps between time steps; neurons that carry none are left out. Without the program a
    row is taken for each position."""
    rows = {} if program is None else program_rows(program)
    operations = () if program is None else program.operations
    delays = [delayed_spikes(plan, program, op) for op in operations if program and op.kind == "delay"]
    return delays + [
        StateTensor(
            n.channels,
            n.elements,
            n.bits,
            n.stem and not n.in_budget,
            _scale_bits(n),
            any(n.zero),
            rows.get(n.name),
        )
        for n in plan.neurons.values()
        if n.carries_state
    ]


def is_mixed(plan: Plan) -> bool:
    """Whether channels have widths of their own, which must be stored."""
    return plan.mixed


def stream_bytes(discovery: Discovery) -> int:
    """int16 buffers of the streams of one sample, one time step, at the largest size a neuron reads them."""
    largest: dict[int, int] = {}
    for n in discovery.neurons.values():
        if n.stream is not None:
            largest[n.stream] = max(largest.get(n.stream, 0), prod(n.layout.shape))
    return sum(largest.values()) * STREAM_BITS // 8


@dataclass(frozen=True)
class WeightCost:
    """Bytes of one or more projections."""

    float32: int = 0  # weights before
    packed: int = 0  # weights after
    scales: int = 0  # float32, one per channel or one per tensor
    biases: int = 0  # 32 bits per channel, and per position where these have their own; before and after

    def __add__(self, other: WeightCost) -> WeightCost:
        return WeightCost(
            self.float32 + other.float32,
            self.packed + other.packed,
            self.scales + other.scales,
            self.biases + other.biases,
        )


def weight_cost(p: ProjectionPlan, numel: int) -> WeightCost:
    """Bytes of a projection of `numel` weights, each packed to its bits."""
    bits = FLOAT_BITS if p.bits is None else p.bits
    scales = 0 if p.bits is None else 1 if len(set(p.scales)) == 1 else len(p.scales)
    return WeightCost(4 * numel, _ceil(bits * numel, 8), 4 * scales, 4 * len(p.scales) * prod(p.places))


@dataclass(frozen=True)
class Operations:
    """Per sample, over all time steps."""

    synops: float  # accumulates that spikes cause
    macs: int  # multiply-accumulates of projections that read data or another projection

    @property
    def energy_pj(self) -> float:
        return AC_PJ * self.synops + MAC_PJ * self.macs


def operations(macs: Mapping[str, int], firing: Mapping[str, float]) -> Operations:
    """Operations of the projections `macs`; firing[p] is the mean |input| of those that read spikes.

    Approximations: SynOps are macs * mean input, so every input position is taken to reach as many outputs as
    the average one (borders and strides differ a little); an input of n spikes costs n accumulates; spikes
    averaged by a pool count as their mean. Neuron updates, pooling and products of spikes with spikes are not
    counted.
    """
    return Operations(
        sum(n * firing[p] for p, n in macs.items() if p in firing),
        sum(n for p, n in macs.items() if p not in firing),
    )
