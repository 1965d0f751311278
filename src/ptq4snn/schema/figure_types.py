"""Data behind the figures, as a report and a file of `ptq4snn experiment` hold it; floats of six digits."""

from __future__ import annotations

import builtins
from typing import Literal, TypedDict

__all__ = [
    "AllocationData", "AllocationRow", "Bins", "BridgeData", "BridgeRow", "DistributionRow",
    "DistributionsData", "Figures", "FrontierData", "FrontierRow", "MembraneCostData", "MembraneCostRow",
    "MemoryData", "MemoryRow",
    "SegmentationData", "SegmentationRow", "SweepData", "SweepRow",
]  # fmt: skip


class _IdealCost(TypedDict):
    axis: Literal["batch", "T"]
    value: int  # samples, or steps
    weights: int | None  # bytes at 4 bits
    m32: int  # bytes
    m4: int


class MembraneCostRow(_IdealCost, total=False):
    """A model that is not quantized has the paper's curves only."""

    this: int  # bytes of the plan
    logical: int  # without padding


class _Counted(TypedDict):
    weights: int
    states: int
    carried_states: int
    stream_bytes: int
    rows: list[MembraneCostRow]


class MembraneCostData(_Counted, total=False):
    weight_bytes: int  # of the plan


class MemoryRow(TypedDict):
    part: str
    before: int  # bytes, float32
    after: int


class MemoryData(TypedDict):
    rows: list[MemoryRow]


class Bins(TypedDict):
    edges: list[float]
    counts: list[float]  # one fewer


class DistributionRow(TypedDict):
    """One channel; in theta."""

    neuron: str
    channel: int
    which: Literal["narrow", "middle", "wide"]
    bits: int
    zero: int
    k: int | None
    scale: float  # one step of the state
    weight_bits: int | None  # None: float
    weight_odd: bool  # its levels are odd multiples of the scale
    weight_scale: float | None
    weights: Bins
    states: Bins  # of the float network
    outside: float  # share of the float states more than half a step beyond the grid
    largest_weight: float
    largest_state: float


class DistributionsData(TypedDict):
    units: Literal["theta"]
    rows: list[DistributionRow]


class BridgeRow(TypedDict):
    neuron: str
    channel: int
    bits: int
    k: int | None
    bridged: float  # in theta
    observer: float


class BridgeData(TypedDict):
    k: dict[str, int]  # {exponent: channels}
    channels: int
    median_ratio: float | None
    within_factor_2: float | None
    rows: list[BridgeRow]


class AllocationRow(TypedDict):
    rank: int
    neuron: str
    channel: int
    stage: str
    score: float
    rate: float
    sensitivity: float
    bits: int
    elements: int


class AllocationData(TypedDict):
    by: Literal["uniform", "benefit", "mpba"]
    beta: float | None
    percentile: float | None
    average_bits: float
    stages: dict[str, dict[str, float]]  # {stage: {bits: share of its states}}
    rows: list[AllocationRow]  # none where no score decided


class SweepRow(TypedDict):
    beta: float
    percentile: float | None
    kl: float | None
    agreement: float | None
    average_bits: float


class SweepData(TypedDict):
    rows: list[SweepRow]


class FrontierRow(TypedDict):
    """One model that a search tried."""

    name: str
    weights: int  # bits
    membrane: float
    first_membrane: int
    narrower: int  # of its largest layers have weights of the next smaller width
    bytes: int  # weights, and for one sample states
    quality: float  # per cent
    low: float  # of the 95 % interval
    high: float
    kept: bool
    chosen: bool


class _Asked(TypedDict):  # apart, as "float" is a key below
    measure: Literal["agreement", "accuracy"]
    asked: float  # per cent, or points of drop
    limit: float  # per cent
    samples: int  # that judged
    rows: list[FrontierRow]  # in the order of trying


class FrontierData(_Asked):
    float: builtins.float | None  # accuracy of the float network, per cent


class _Compared(TypedDict):
    differs: float | None  # share of pixels; apart, as "float" is a key below


class SegmentationRow(_Compared):
    """PNG data URLs; None: not known."""

    image: str
    label: str | None
    float: str | None
    quantized: str


class SegmentationData(TypedDict):
    classes: int
    palette: list[list[int]]  # a colour for each class
    rows: list[SegmentationRow]


# functional, because of the hyphens
Figures = TypedDict(
    "Figures",
    {
        "membrane-cost": MembraneCostData,
        "memory": MemoryData,
        "distributions": DistributionsData,
        "bridge-analysis": BridgeData,
        "allocation": AllocationData,
        "sweep": SweepData,
        "frontier": FrontierData,
        "segmentation": SegmentationData,
    },
    total=False,
)
