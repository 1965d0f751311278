"""What quantization cost: the report of a quantized model, beside its bundle as JSON (docs/format.md).

Numbers are per sample; None stands for what does not exist. `saturation` is in per cent, all other rates are
shares from 0 to 1. before: the float network, after: the quantized one.
"""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from ptq4snn.schema.figure_types import Figures
from ptq4snn.schema.score_types import Metrics, Task

__all__ = [
    "BeforeAfter", "Counts", "Evaluation", "Exponents", "NeuroBench", "NeuroBenchCounts", "Neuron",
    "OverTime", "Projection", "Rates", "Report", "Silent", "SplitHalf", "StateBytes", "StatePackets",
    "StateWords", "Summary", "TrialRow", "WeightBytes",
]  # fmt: skip


class BeforeAfter(TypedDict):
    before: float
    after: float


class Counts(TypedDict):
    before: int
    after: int


class WeightBytes(TypedDict):
    float: int
    quantized: int  # packed
    scales: int
    biases: int


class StateBytes(TypedDict):
    """As the runtime packs the states."""

    float: int
    logical: int  # neither padding nor metadata
    payload: int
    metadata: int  # tags, shifts, zero points
    packed: int  # payload and metadata
    shifts: int  # what the scales take in any case
    packed_with_shifts: int


class StateWords(TypedDict):
    """32-bit words that a step reads, and writes."""

    m32: int
    packed: int


class StatePackets(TypedDict):
    """The same states in the paper's channel-major packets."""

    payload: int
    packed: int
    packed_with_shifts: int
    energy: float | None
    energy_with_shifts: float | None
    words: StateWords


class NeuroBenchCounts(TypedDict):
    """Of one network, by NeuroBench's definitions; operations of one sample, over all steps."""

    footprint: int  # bytes, without states
    connection_sparsity: float
    activation_sparsity: float | None  # None: nothing fires
    effective_macs: float
    effective_acs: float
    dense: float


class NeuroBench(TypedDict):
    before: NeuroBenchCounts
    after: NeuroBenchCounts


class Noise(TypedDict):
    kl: float | None
    agreement: float


class SplitHalf(TypedDict):
    """How far the sensitivities would come out again: rank correlation of two halves, by Spearman-Brown."""

    batches: int  # micro-batches behind them
    overall: float | None  # over all channels in the budget
    within_layers: float | None  # median over the neurons


class Summary(TypedDict, total=False):
    """Totals. Those of a plan alone, or of an older version, lack some; `make_report` gives all."""

    version: str  # of ptq4snn
    arithmetic: str  # integer or float
    steps: int  # T
    task: Task
    samples: int  # of calibration
    held_out: int  # samples behind every figure here
    choosing: int  # held-out samples that choices were made on, trials' figures are of these
    choosing_reports: bool  # whether both are the same, for there were too few samples to keep them apart
    recipe: dict[str, Any]  # all fields
    beta: float | None
    percentile: float | None
    agreement: float  # share of equal decisions
    kl: float | None  # to the float model; None: logits that overflow
    noise_floor: Noise  # the same two, of the float model with weights jittered by 0.01 %
    average_bits: float  # states in the budget
    saturation: float | None  # of the states in the budget
    flip_rate: float | None
    emd: float  # mean over channels
    firing_rate: BeforeAfter
    channels: int
    silent_channels: Counts
    leak_error: float  # the largest
    excluded: dict[str, int]  # {module that stays float: its parameters}, in none of the bytes here
    sensitivity: SplitHalf | None  # None: no bits were given by it
    objective: Literal["replay", "squared_error"]  # what the states were judged by
    weight_bytes: WeightBytes
    average_bits_all: float  # all resident states
    bits_split: dict[str, float]  # {bits: share} of the states outside the stem
    state_bytes: StateBytes
    state_energy: float | None  # packed words over the M32 row's; None: there is no state
    state_energy_with_shifts: float | None
    state_words: StateWords
    state_packets: StatePackets
    stream_bytes: int
    macs: int  # of projections that read data or chains
    synops: BeforeAfter
    energy_pj: BeforeAfter
    neurobench: NeuroBench


class Exponents(TypedDict):
    min: int
    median: float
    max: int


class _Facts(TypedDict):
    """A neuron as far as its plan tells."""

    name: str
    stage: str  # the part of the model
    kind: str
    coupling: str
    shape: list[int]
    channels: int
    elements: int
    steps: int
    bits: dict[str, int]  # {bits: channels}
    average_bits: float
    k: Exponents | None
    leak_error: float
    zero_state: bool
    carries_state: bool
    in_budget: bool
    readout: bool
    stem: bool


class Rates(TypedDict):
    """For each time step."""

    before: list[float]
    after: list[float]


class OverTime(TypedDict):
    """For each time step; None where it was not measured."""

    flip_rate: list[float | None]
    saturation: list[float | None]
    firing_rate: Rates


class Neuron(_Facts, total=False):
    """What was measured is missing where the plan alone is known."""

    saturation: float | None
    flip_rate: float | None
    firing_rate: BeforeAfter
    emd: float
    silent_channels: Counts
    divergence: list[float]  # for each time step the RMS, in theta
    over_time: OverTime


class Projection(TypedDict):
    name: str
    role: str
    reads: str | None
    bits: int | None  # None: float
    macs: int
    synops: BeforeAfter | None  # None: reads no spikes
    weight_bytes: WeightBytes
    bound: int
    shift: int
    dead_gptq_columns: int | None  # inputs without a spike; None: not rounded by GPTQ


class TrialRow(TypedDict):
    """What the allocation tried."""

    beta: float | None
    percentile: float | None
    kl: float | None
    agreement: float | None
    flips: float | None  # replay's cost of a state, mean over the neurons
    average_bits: float
    name: str


class Silent(TypedDict):
    before: str | None  # the first layer without a spike
    after: str | None
    lost: list[str]  # layers that fell silent


class Evaluation(TypedDict):
    """What `ptq4snn evaluate` measured of the bundle."""

    data: str
    samples: int
    limit: int | None
    task: Task
    float: Metrics | None
    quantized: Metrics


class Report(TypedDict, total=False):
    """A model that lost its report has an empty one; that of a plan alone is a summary and neurons.

    `bundle` is there as soon as the report is written beside one: the SHA-256 of that file.
    """

    summary: Summary
    neurons: list[Neuron]
    projections: list[Projection]
    trials: list[TrialRow]
    silent: Silent
    figures: Figures
    evaluations: list[Evaluation]
    bundle: str
