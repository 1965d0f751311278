"""Values of one step while they are written: name, carrier, and what a step knows besides."""

from __future__ import annotations

from dataclasses import dataclass, field

from ptq4snn.export.onnx_form.graph import Name, Nodes
from ptq4snn.runtime.parameters import Model

__all__ = ["Step", "Value"]


@dataclass(frozen=True)
class Value:
    """A tensor [B, positions, channels] of whole numbers in floats of type `dtype`."""

    name: Name
    dtype: str


@dataclass
class Step:
    """One time step: `total` is the number of steps with this one, a float64; `phase` the step modulo 16."""

    model: Model
    nodes: Nodes
    x: Name  # [B, numbers] float32
    total: Name
    phase: Name
    states: dict[int, Name]  # before the step, by value: int32, of sums int64
    after: dict[int, Name] = field(default_factory=dict)
    values: dict[int, Value] = field(default_factory=dict)

    def get(self, v: int, dtype: str) -> Name:
        """A value in a carrier of this type."""
        value = self.values[v]
        return value.name if value.dtype == dtype else self.nodes.cast(value.name, dtype)

    def put(self, v: int, name: Name, dtype: str) -> None:
        self.values[v] = Value(name, dtype)

    def from_calibration(self) -> Name:
        """T / T', T being that of calibration, as 2 T / 2 T': onnxruntime would turn 1 / T' times x into
        x / T', which may differ in the last bit."""
        steps, two = self.model.program.steps, self.nodes.constant(2.0, "float64")
        twice = self.nodes("Mul", self.total, two)
        name: Name = self.nodes("Div", self.nodes.constant(2.0 * steps, "float64"), twice)
        return name

    def largest(self, v: int) -> int:
        return max(map(abs, self.model.bounds.values[v]))
