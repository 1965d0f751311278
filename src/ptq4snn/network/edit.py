"""A call in the model's own code that goes through a module which discovery put there.

The user's code is not changed: it runs as it is written, and one of its calls is answered by a child of the
module in whose forward it stands (discovery/editing.py). A bundle keeps the edits, so that they can be made
again.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

__all__ = ["KINDS", "MOVED", "Edit", "EditKind"]

EditKind = Literal[
    "shortcut", "affine", "plain", "position", "scale", "input", "softmax", "log_softmax", "argmax"
]
MOVED = ("position", "scale", "input", "softmax", "log_softmax", "argmax")
KINDS = ("shortcut", "affine", "plain", *MOVED)


@dataclass(frozen=True)
class Edit:
    """Which call it is, and what answers it.

    shortcut  spikes that are added to a current go through a projection with weights of one
    affine    a scale or a constant for each channel of a current is a norm, to be folded
    plain     linear, convolution or matrix product with a parameter: a projection
    position  a constant that differs from position to position: in the bias of the projection in front of it
    scale     spikes times a factor of their channel: in the weights that read them, or behind the outputs
    input     a factor or a constant on the input's way to its first layer: in the grid that reads the input
    softmax, log_softmax, argmax    at the end of forward: behind the decoded outputs
    """

    kind: EditKind
    scope: str  # the module in whose forward the call stands; "" is the model itself
    place: int  # of the arithmetic in that forward, numbered in the order in which it is first run
    turn: int  # where one place serves several layers in turn: which of `period` this is
    period: int
    child: str  # name of what answers, among the module's children
    operand: int  # which argument goes through it
    shape: tuple[int, ...]  # of its weight; of an affine its channels; of what moved (1,)
    axis: int = -1  # channel axis, counted from the end; that of a softmax or an argmax
    settings: tuple[tuple[int, ...], ...] = ()  # stride, padding, dilation and groups of a convolution
    parameters: tuple[str, ...] = ()  # of the model, that are in the projection now and not stored again

    @property
    def path(self) -> str:
        """The child's name in the whole model."""
        return f"{self.scope}.{self.child}" if self.scope else self.child

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, d: dict[str, Any]) -> Edit:
        if set(d) != {f.name for f in fields(cls)}:
            raise ValueError("an edit has other fields than it should")
        return cls(
            **{
                **d,
                "shape": tuple(d["shape"]),
                "settings": tuple(tuple(s) for s in d["settings"]),
                "parameters": tuple(d["parameters"]),
            }
        )
