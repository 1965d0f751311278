"""What discovery says of a neuron and of a projection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from ptq4snn.network.state_layout import Layout

__all__ = ["Kind", "NeuronInfo", "Norm", "ProjectionInfo", "Role", "RowOrder"]

Kind = Literal["pair", "stream", "bare"]
Role = Literal["pair", "stream", "chain", "output"]


@dataclass(frozen=True)
class Norm:
    """A BatchNorm behind a projection, to be folded into it."""

    name: str
    constant: float  # what a projection that outputs 1 everywhere has become there
    after_max: bool  # a max-pool came before it
    channels: tuple[int, ...]  # its channel for every output channel of the projection; -1 where it has none
    border: int = 0  # pixels that it adds on every side, of what it makes of 0


@dataclass(frozen=True)
class NeuronInfo:
    name: str
    kind: Kind
    projections: tuple[str, ...]  # in the order they ran
    spike_sources: tuple[str, ...]
    norms: tuple[str, ...]
    ops: tuple[str, ...]
    layout: Layout
    source_projection: Tensor  # [C] int64: index into `projections`
    source_channel: Tensor  # [C] int64: output channel there
    factor: float
    window: float
    lo: float  # bounds of a bare neuron's integer input
    hi: float
    steps: int
    span: float = 1.0  # largest |input| of a stream's reader, in full ranges of the stream
    over_time: bool = False  # its input is a mean over time steps
    stream: int | None = None  # the stream it reads, also for a pair whose current goes on as a stream
    stem: bool = False
    readout: bool = False  # its membrane is an output of the model
    last: bool = False  # its spikes feed the classifier or are the output
    zero_state: bool = False
    synapse: str | None = None  # the neuron whose current it reads

    @property
    def carries_state(self) -> bool:
        return self.steps > 1 and not self.zero_state


@dataclass(frozen=True)
class RowOrder:
    """How the time steps of one call lie in the rows of a projection's input.

    each: rows of one sample at one step. apart: rows from one step to the next of the same sample; 0 where
    the steps come one after the other, each with all samples.
    """

    each: int
    apart: int


@dataclass(frozen=True)
class ProjectionInfo:
    name: str
    role: Role
    norms: tuple[Norm, ...]
    reads: Literal["data", "count", "chain", "stream"]
    spike_sources: tuple[str, ...]
    chained_from: tuple[str, ...]
    factor: float
    lo: float
    hi: float
    over_time: bool
    macs: int  # per sample, over the whole forward pass
    feeds: tuple[str, ...]
    span: float = (
        1.0  # largest |input| of a chain's second projection, in full ranges of the first one's output
    )
    stream: int | None = None
    constant: float | None = None  # what 1 everywhere behind the chain's first projection is at its input
    summed: tuple[str, ...] = ()  # projections whose sum is an output of the model, this one among them
    tied: tuple[str, ...] = ()  # projections that a recurrent neuron sums, this one among them
    source_stream: int | None = None  # that it reads, in 16 bits
    source_channels: tuple[int, ...] = ()  # the stream's channel for each of its input channels
    rectified: bool = False  # all that read it see it behind a ReLU
    reads_rectified: bool = False  # what it reads is not negative
    places: Tensor | None = None  # [*positions, C]: a bias for each position, beside that of its channel
    columns: Tensor | None = None  # [inputs] factors of the spikes it reads, to be folded into its weight
    gains: tuple[float, ...] = ()  # of one that reads the input: what forward multiplies it with before, and
    offsets: tuple[float, ...] = ()  # adds; one entry or one for each input channel, none where it does not
    decode: bool = False  # its output leaves integer arithmetic at once (an operation like softmax follows)
    rows: RowOrder | None = None  # of spikes; None: its calls are single steps, or it is not known
