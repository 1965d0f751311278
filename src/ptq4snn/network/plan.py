"""The frozen result of quantization: everything but the weight integers, JSON-able.

Units. A projection's accumulator counts multiples of `lattice[c]`; it emits ((Wq x) << shift) + bias, which
counts `lattice[c] * 2^-shift`. A neuron counts H in `unit[c]` and keeps V = scale[c] * Vq.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

from ptq4snn.network.edit import Edit
from ptq4snn.network.state_layout import Layout

__all__ = ["InputPlan", "MirrorPlan", "NeuronPlan", "OutputPlan", "Plan", "ProjectionPlan", "RescalePlan"]

# fields that may be missing
UNWRITTEN = ("emits", "lift", "most", "raw_scales", "raw_zeros", "then", "places", "output_scales", "odd")
Numbers = tuple[float, ...]
Integers = tuple[int, ...]


@dataclass(frozen=True)
class InputPlan:
    """x ~ scale * (p - zero / 2^16), p in 0..255, per input channel (one entry: for all of them).

    Where forward normalises the input, x is what the projection sees behind that; the model's own input is
    read by the grid `raw_scales`, `raw_zeros` to the same p.
    """

    scales: Numbers
    zeros: Integers
    exact: bool  # every calibration sample lies on this grid
    raw_scales: Numbers = ()
    raw_zeros: Integers = ()

    @property
    def read(self) -> tuple[Numbers, Integers]:
        """Scales and zeros of the grid that reads the model's input."""
        return (self.raw_scales, self.raw_zeros) if self.raw_scales else (self.scales, self.zeros)


@dataclass(frozen=True)
class RescalePlan:
    """clip(rshift(y * multiplier, shift)) to `bits` bits; the result counts `scales`."""

    multipliers: Integers
    shifts: Integers
    bits: int
    scales: Numbers


@dataclass(frozen=True)
class ProjectionPlan:
    name: str
    role: str
    bits: int | None  # None: float weights
    scales: Numbers  # s_w
    lattice: Numbers  # real value of one accumulator step
    shift: int  # F
    quantum: float  # the input carrier is quantum * integer
    over_time: bool  # the quantum holds 1/T
    bound: int  # largest |emitted integer| that any input can cause, also summed by the pooling behind it
    input: InputPlan | None = None
    rescale: RescalePlan | None = None
    decode: bool = False
    places: Integers = ()  # sizes of the output's axes, where every position has a bias of its own
    odd: bool = False  # weights are 2 q + 1, and q is what has `bits` bits and is stored


@dataclass(frozen=True)
class MirrorPlan:
    """In the place of a BatchNorm behind a max-pool: y -> sign y + shift, counted as the projection does."""

    projection: str
    signs: Integers
    shifts: Numbers  # integers unless arithmetic is "float"
    axis: int


@dataclass(frozen=True)
class NeuronPlan:
    name: str
    kind: str
    layout: Layout
    coupling: str
    comparator: str
    reset: str
    rounding: str
    v_rest: float
    shift: int  # F
    quantum: float
    over_time: bool
    emits_units: bool  # the input already counts units (pairs); else it counts 2^F units
    bits: Integers
    zero: Integers  # levels run from -2^(bits-1) + zero to 2^(bits-1) - 1 + zero; stored is Vq - zero
    k: tuple[int | None, ...]
    scales: Numbers  # s_mem
    unit: Numbers
    theta: Numbers  # integers unless arithmetic is "float"
    rho: Numbers
    leak: tuple[tuple[int, int], ...]  # m, n
    charge: tuple[tuple[int, int], ...]  # A += rshift(Vq * m, n)
    settle: tuple[tuple[int, int], ...]  # Vq = clip(rshift(A * m, n))
    bound: int  # largest |A|
    leak_error: float
    elements: int  # state values of one channel of one sample at calibration size
    steps: int
    in_budget: bool
    stem: bool
    readout: bool
    zero_state: bool
    emits: str = "spikes"  # or a current: "current" A[t], "carried" V[t-1]; such a neuron never fires
    lift: tuple[tuple[int, int], ...] = ()  # of "carried": rshift(Vq * m, n) counts units
    most: int = 1  # spikes of a step: above 1 it counts, S = floor(A / theta), 0 .. most

    @property
    def channels(self) -> int:
        return len(self.bits)

    @property
    def carries_state(self) -> bool:
        return self.steps > 1 and not self.zero_state


@dataclass(frozen=True)
class OutputPlan:
    projection: str | None
    axis: int
    then: tuple[tuple[str, int], ...] = ()  # softmax, log_softmax, argmax: what, and its axis from the end
    output_scales: Numbers = ()  # of spikes: what those of each channel along `axis` are worth


@dataclass(frozen=True)
class Plan:
    view: ClassVar[Callable[[Plan], str] | None] = None  # what shows a plan in a notebook, if it is loaded
    recipe: dict[str, Any]
    arithmetic: str
    steps: int  # T at calibration; another T may be used later
    norms: tuple[str, ...]
    projections: dict[str, ProjectionPlan]
    neurons: dict[str, NeuronPlan]
    outputs: tuple[OutputPlan, ...]
    mirrors: dict[str, MirrorPlan]
    beta: float | None = None
    percentile: float | None = None
    mixed: bool = False  # channels have widths of their own
    step_outputs: tuple[OutputPlan, ...] = ()  # of one step, where the loop over time is the user's
    excluded: tuple[str, ...] = ()  # modules that stay float
    edits: tuple[Edit, ...] = ()  # calls in the model's code that modules beside it answer

    def budgeted(self) -> list[NeuronPlan]:
        """Neurons whose states are in the budget; where none is, all that keep a state."""
        inside = [n for n in self.neurons.values() if n.in_budget]
        return inside or [n for n in self.neurons.values() if n.carries_state]

    def average_bits(self) -> float:
        """Element-weighted average over the states in the budget; where none is, over all that are kept."""
        counted = self.budgeted()
        total = sum(n.elements * n.channels for n in counted)
        spent = sum(n.elements * sum(n.bits) for n in counted)
        return spent / total if total else 0.0

    def _repr_html_(self) -> str | None:
        """What a notebook shows; None leaves it to the text."""
        return None if Plan.view is None else Plan.view(self)

    def to_dict(self) -> dict[str, Any]:
        d = asdict(self)
        if not self.edits:
            del d["edits"]
        for out in (*d["outputs"], *d["step_outputs"]):
            for field in ("then", "output_scales"):
                if not out[field]:
                    del out[field]
        for p in d["projections"].values():
            if not p["places"]:
                del p["places"]
            if not p["odd"]:
                del p["odd"]
            if p["input"] is not None and not p["input"]["raw_scales"]:
                del p["input"]["raw_scales"], p["input"]["raw_zeros"]
        for name, n in self.neurons.items():
            d["neurons"][name]["layout"] = n.layout.to_dict()
            if n.emits == "spikes":  # what most neurons do is not written
                del d["neurons"][name]["emits"], d["neurons"][name]["lift"]
            if n.most == 1:
                del d["neurons"][name]["most"]
        return d

    @classmethod
    def from_dict(cls, d: dict[str, Any]) -> Plan:
        """The plan of a JSON object; KeyError, TypeError, ValueError or the like where it is not one.

        Only the form is looked at here: `runtime/plan_check.py` proves the rest.
        """
        _refuse_unknown(cls, d)
        return cls(
            recipe=d["recipe"],
            arithmetic=d["arithmetic"],
            steps=d["steps"],
            norms=tuple(d["norms"]),
            projections={n: _projection(p) for n, p in d["projections"].items()},
            neurons={n: _neuron(p) for n, p in d["neurons"].items()},
            outputs=tuple(OutputPlan(**_known(OutputPlan, o)) for o in d["outputs"]),
            mirrors={n: MirrorPlan(**_known(MirrorPlan, m)) for n, m in d["mirrors"].items()},
            beta=d["beta"],
            percentile=d["percentile"],
            mixed=d["mixed"],
            step_outputs=tuple(OutputPlan(**_known(OutputPlan, o)) for o in d.get("step_outputs", ())),
            excluded=tuple(d.get("excluded", ())),
            edits=tuple(Edit.from_dict(e) for e in d.get("edits", ())),
        )


def _tuples(x: Any) -> Any:
    return tuple(_tuples(i) for i in x) if isinstance(x, list) else x


def _refuse_unknown(cls: Any, d: dict[str, Any]) -> None:
    if odd := set(d) - {f.name for f in fields(cls)}:
        raise ValueError(f"unknown field {min(odd)!r}")


def _known(cls: Any, d: dict[str, Any]) -> dict[str, Any]:
    _refuse_unknown(cls, d)
    return {f.name: _tuples(d[f.name]) for f in fields(cls) if f.name in d or f.name not in UNWRITTEN}


def _projection(d: dict[str, Any]) -> ProjectionPlan:
    p = _known(ProjectionPlan, d)
    p["input"] = InputPlan(**_known(InputPlan, d["input"])) if d["input"] is not None else None
    p["rescale"] = RescalePlan(**_known(RescalePlan, d["rescale"])) if d["rescale"] is not None else None
    return ProjectionPlan(**p)


def _neuron(d: dict[str, Any]) -> NeuronPlan:
    p = _known(NeuronPlan, d)
    p["layout"] = Layout.from_dict(d["layout"])
    return NeuronPlan(**p)
