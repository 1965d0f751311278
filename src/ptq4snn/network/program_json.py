"""The JSON form of an integer program, as docs/format.md describes it."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

from ptq4snn.network.index import Index, Window, index_from, index_to
from ptq4snn.network.program import (
    OPERATIONS,
    Input,
    Neuron,
    Operation,
    Output,
    Pool,
    PoolAxis,
    Program,
    Value,
)

__all__ = ["program_from_json", "program_to_json"]

UNWRITTEN = ("axes", "carried", "then", "scales")  # where they are what they mostly are


def program_to_json(program: Program) -> dict[str, Any]:
    d = _plain(program)
    assert isinstance(d, dict)
    return d


def program_from_json(d: dict[str, Any]) -> Program:
    """The program of a JSON object; KeyError, TypeError or ValueError where it is not one.

    Only the form is looked at here: `runtime/check.py` proves that it can be run.
    """
    if odd := set(d) - {f.name for f in fields(Program)}:
        raise ValueError(f"unknown field {min(odd)!r}")
    return Program(
        steps=_integer(d["steps"]),
        input=_from(Input, d["input"]),
        values=tuple(_from(Value, v) for v in d["values"]),
        operations=tuple(_from(OPERATIONS[o["kind"]], o) for o in d["operations"]),
        outputs=tuple(_from(Output, o) for o in d["outputs"]),
    )


def _shallow(x: Any) -> dict[str, Any]:
    """Fields of a dataclass; an operation's kind with them."""
    d = {f.name: getattr(x, f.name) for f in fields(x)}
    if isinstance(x, Neuron) and not x.carried:
        del d["carried"]  # what most neurons are not is not written
    if isinstance(x, Pool) and x.axes is None:
        del d["axes"]
    if isinstance(x, Output):
        d = {k: v for k, v in d.items() if v or k not in ("then", "scales")}
    return {"kind": x.kind, **d} if isinstance(x, Operation) else d


def _plain(x: Any) -> Any:
    """JSON-able form."""
    if isinstance(x, Index):
        return index_to(x)
    if isinstance(x, (Window, PoolAxis)):
        return _plain(asdict(x))
    if isinstance(x, (Program, Operation, Value, Input, Output)):
        return _plain(_shallow(x))
    if isinstance(x, dict):
        return {k: _plain(v) for k, v in x.items()}
    return [_plain(i) for i in x] if isinstance(x, (list, tuple)) else x


def _integer(x: Any) -> int:
    if not isinstance(x, int) or isinstance(x, bool):
        raise TypeError(f"{x!r} is not a whole number")
    return x


def _from(cls: Any, d: dict[str, Any]) -> Any:
    known = {f.name for f in fields(cls)}
    odd = set(d) - known - {"kind"} if issubclass(cls, Operation) else set(d) - known
    if odd:
        raise ValueError(f"unknown field {min(odd)!r}")
    return cls(**{name: _field(name, d[name]) for name in known if name in d or name not in UNWRITTEN})


def _field(name: str, x: Any) -> Any:
    if x is None:
        return None
    if name in ("index", "channel", "element"):
        return index_from(x)
    if name == "window":
        return Window(**{k: tuple(map(_integer, v)) for k, v in x.items()})
    if name == "axes":
        return tuple(_from(PoolAxis, a) for a in x)
    return _tuples(x)


def _tuples(x: Any) -> Any:
    return tuple(map(_tuples, x)) if isinstance(x, list) else x
