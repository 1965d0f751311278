"""What a bundle asks for, in memory and work, told from its sizes before anything is unfolded or computed.

A few bytes can describe a large network: a window that is unfolded, values of many positions. The figures are
upper bounds of what either executor holds while a model is loaded and one sample runs through it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ptq4snn.errors import BundleError
from ptq4snn.network import program as ops
from ptq4snn.network.index import Window
from ptq4snn.runtime.bounds import ROUNDS
from ptq4snn.runtime.operation_check import Numbers

__all__ = ["Demand", "Limits", "demand_of", "most_alive"]

GIB = 2**30
# bytes of memory at the worst moment, for one of each
TAP = 64  # of a window: its table in NumPy with what it is made from, then the native runs of it
TAP_AGAIN = 8  # of a further operation with the same window
INDEX = 32  # a number of an index
WEIGHT = 24  # int8, the sums of both signs, and a float64 matrix
CARRIED = 8  # an element of a value
BORDER = 32  # an element of a bias that differs from position to position
RATE = 1e9  # additions a second of one thread, roughly
# seconds to load, one for each of them; what is proven is gone through several times (ptq4snn.runtime.bounds)
OPERATION = 5e-4
CHANNEL = 1e-7  # of an operation's value
CELL = 2e-8  # of a projection's weight, its taps added up
UNFOLDED = 1e-9  # a byte of weights and tables
TIMES = ((1e-3, "less than a millisecond"), (1.0, "milliseconds"), (60.0, "seconds"), (3600.0, "minutes"))


@dataclass(frozen=True)
class Limits:
    """What a bundle may ask for. memory: bytes, to load it and to run one sample; additions: of one sample
    over all steps of the calibration, if no input were zero; loading: seconds to read, check and prove it."""

    memory: int = 8 * GIB
    additions: int = 10**13
    loading: float = 10.0


@dataclass(frozen=True)
class Demand:
    """Bytes and additions of one sample; `steps` are those of the calibration."""

    weights: int
    tables: int  # of windows and indices, unfolded
    values: int  # alive at once, over all steps
    state: int  # that a session keeps
    additions: int  # a step
    steps: int
    operations: int  # of the program
    loading: float  # seconds, before the first sample

    @property
    def memory(self) -> int:
        return self.weights + self.tables + self.values + self.state

    @property
    def time(self) -> str:
        """The order of magnitude of one sample's run on one thread."""
        return _order(self.additions * self.steps / RATE)

    def check(self, limits: Limits) -> None:
        """Refuse, in one sentence, what is above the limits."""
        if self.memory > limits.memory:
            raise BundleError(
                f"it asks for {size(self.memory)} of memory (weights {size(self.weights)}, tables "
                f"{size(self.tables)}, values {size(self.values)}, state {size(self.state)}), more than the "
                f"{size(limits.memory)} allowed; raise the limit if you trust the file"
            )
        additions = self.additions * self.steps
        if additions > limits.additions:
            raise BundleError(
                f"it asks for {additions:.1e} additions a sample ({self.additions:.1e} at each of "
                f"{self.steps:,} steps), more than the {limits.additions:.1e} allowed; raise the limit if "
                "you trust the file"
            )
        if self.loading > limits.loading:
            raise BundleError(
                f"it asks for {self.loading:.1f} s to be loaded ({self.operations:,} operations), more than "
                f"the {limits.loading:g} s allowed; raise the limit if you trust the file"
            )

    def to_dict(self) -> dict[str, int | str]:
        parts = {name: getattr(self, name) for name in ("weights", "tables", "values", "state", "memory")}
        return {f"{name}_bytes": n for name, n in parts.items()} | {
            "additions_a_step": self.additions, "steps": self.steps, "time": self.time,
            "operations": self.operations, "time_to_load": _order(self.loading),
        }  # fmt: skip

    def summary(self) -> str:
        return "\n".join([
            f"memory, at most:  {size(self.memory)} to load it and run one sample",
            f"  weights         {size(self.weights)}",
            f"  tables          {size(self.tables)}",
            f"  values          {size(self.values)}",
            f"  state           {size(self.state)} a session",
            f"time to load:     {_order(self.loading)} for {self.operations:,} operations",
            f"additions a step: {self.additions:,} if no input were zero",
            f"time a sample:    {self.time} for {self.steps} steps on one thread",
        ])  # fmt: skip


def _order(seconds: float) -> str:
    return next((word for most, word in TIMES if seconds < most), "hours or more")


def size(count: int) -> str:
    """Bytes as one reads them."""
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if count >= unit:
            return f"{count / unit:,.1f} {name}"
    return f"{count} bytes"


def demand_of(program: ops.Program, numbers: Numbers) -> Demand:
    """The demand of a checked program; no index or window is unfolded."""
    used = {op.name for op in program.operations if isinstance(op, ops.Project)}
    stored = sum(p.weight.size for name, p in numbers.projections.items() if name in used)
    weights, tables = WEIGHT * stored + _borders(program, numbers), _tables(program)
    return Demand(
        weights=weights,
        tables=tables,
        values=CARRIED * most_alive(program, program.steps),
        state=sum(_state(program, numbers, op) for op in program.operations),
        additions=sum(_additions(program, numbers, op) for op in program.operations),
        steps=program.steps,
        operations=len(program.operations),
        loading=UNFOLDED * (weights + tables) + _proving(program, numbers),
    )


def _proving(program: ops.Program, numbers: Numbers) -> float:
    """Seconds; what goes round is gone through again and again."""
    rounds = ROUNDS if any(isinstance(op, ops.Delay) for op in program.operations) else 1
    cells = sum(
        prod(numbers.projections[op.name].weight.shape[:2])
        for op in program.operations
        if isinstance(op, ops.Project)
    )
    channels = sum(program.values[op.output].channels for op in program.operations)
    return rounds * (OPERATION * len(program.operations) + CHANNEL * channels + CELL * cells)


def most_alive(program: ops.Program, steps: int) -> int:
    """The largest number of elements of one sample that are needed at one time."""
    last = {v: len(program.operations) for v in (o.value for o in program.outputs)}
    for i, op in enumerate(program.operations):
        last |= {v: max(i, last.get(v, 0)) for v in op.inputs}
    ends: dict[int, list[int]] = {}
    alive = most = 0
    for i, op in enumerate(program.operations):
        value = program.values[op.output]
        count = value.positions * value.channels * (steps if value.time else 1)
        alive += count
        most = max(most, alive)
        ends.setdefault(max(i, last.get(op.output, i)), []).append(count)
        alive -= sum(ends.pop(i, []))
    return most


def _elements(program: ops.Program, v: int) -> int:
    return program.values[v].positions * program.values[v].channels


def _borders(program: ops.Program, numbers: Numbers) -> int:
    """Biases that differ from position to position: the input's zero point lies under some taps only."""
    found = 0
    for op in program.operations:
        if isinstance(op, ops.Project):
            p = numbers.projections[op.name]
            moved = p.input is not None and bool(p.input.inside.any())
            found += BORDER * (_elements(program, op.output) if moved or p.bias.ndim == 2 else 0)
    return found


def _taps(window: Window) -> int:
    return prod(window.out_size) * prod(window.kernel)


def _listed(op: ops.Operation) -> int:
    """Taps of a pool without a window."""
    if not isinstance(op, ops.Pool) or op.window is not None:
        return 0
    return len(op.taps or ()) if op.axes is None else prod(len(a.taps) for a in op.axes)


def _tables(program: ops.Program) -> int:
    windows: set[Window] = set()
    total = 0
    for op in program.operations:
        window = getattr(op, "window", None)
        if window is not None:
            total += (TAP_AGAIN if window in windows else TAP) * _taps(window)
            windows.add(window)
        for name in ("index", "channel", "element"):
            index = getattr(op, name, None)
            total += 0 if index is None else INDEX * index.count
        total += INDEX * _listed(op)
    return total + INDEX * sum(out.index.count for out in program.outputs)


def _state(program: ops.Program, numbers: Numbers, op: ops.Operation) -> int:
    """Bytes that a session keeps; where channels are listed one by one, as if all had the widest's bits."""
    count = _elements(program, op.output)
    if isinstance(op, ops.TimeSum):
        return 8 * count
    if isinstance(op, ops.Delay):
        return 4 * count
    if not isinstance(op, ops.Neuron) or op.once:
        return 0
    bits = numbers.neurons[op.name].bits
    if op.channel is not None:
        return -(-int(bits.max()) * count // 8)
    return program.values[op.output].positions * -(-int(bits.sum()) // 8)


def _additions(program: ops.Program, numbers: Numbers, op: ops.Operation) -> int:
    """Of one step; taps outside of an image count as well."""
    count = _elements(program, op.output)
    if isinstance(op, ops.Project):
        return program.values[op.output].positions * int(numbers.projections[op.name].weight.size)
    if isinstance(op, ops.MatMul):
        return count * program.values[op.inputs[0]].channels
    if isinstance(op, ops.Pool):
        taps = prod(op.window.kernel) if op.window is not None else 0
        return count * taps + _listed(op) * program.values[op.output].channels
    if isinstance(op, ops.Gather):
        return count * op.width
    return count * max(1, len(op.inputs))
