"""What a target can hold, as data: a field that is None, empty or false asks for nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from ptq4snn.errors import PTQ4SNNError, RecipeError
from ptq4snn.files import short
from ptq4snn.hints import hint
from ptq4snn.validation import boolean, choice, integer

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["FEATURES", "LEAK_KINDS", "RESETS", "Target", "read_target"]

LEAK_KINDS = ("none", "power", "12-bit")
RESETS = ("hard", "soft", "none")
FEATURES = ("recurrence", "residual", "stream", "attention", "max-pool", "synapse")
MOST, MOST_CORES = 2**53, 256


@dataclass(frozen=True)
class Target:
    """A chip, a tool or a memory.

    weight_bits, state_bits: least and most width that is stored; narrower integers are stored in the least.
    one_scale: the weights of a layer share one scale.
    leak: none (neurons never forget), power (V -= V >> n, n up to 15), or 12-bit (multiples of 2^-12).
    resets: which there are: hard (to rest), soft (the threshold is subtracted), none.
    comparator: ">" or ">=" between potential and threshold.
    layers: the most of them. dense: fully connected layers only.
    without: what the target does not have, of FEATURES.
    spiking_output: what leaves the target are spikes.
    inputs, hidden_neurons, output_neurons: the most of them.
    kernel: the longest side of a convolution's. strides: which there are.
    cores: weights and neurons that each core holds, one layer to a core; `padded`: in rows of powers of two.
    nir: what `export --to nir` can write.
    flash, ram: bytes of a microcontroller, for the C that `export --to c` writes.
    note: what is not checked, for the reader.
    """

    name: str
    weight_bits: tuple[int, int] | None = None
    state_bits: tuple[int, int] | None = None
    one_scale: bool = False
    leak: str | None = None
    resets: tuple[str, ...] = ()
    comparator: str | None = None
    layers: int | None = None
    dense: bool = False
    without: tuple[str, ...] = ()
    spiking_output: bool = False
    inputs: int | None = None
    hidden_neurons: int | None = None
    output_neurons: int | None = None
    kernel: int | None = None
    strides: tuple[int, ...] = ()
    cores: tuple[tuple[int, int], ...] = ()
    padded: bool = False
    nir: bool = False
    flash: int | None = None
    ram: int | None = None
    note: str = ""


def read_target(path: str | Path) -> Target:
    """A target of one's own: a TOML file whose keys are the fields; a width is a number or [least, most]."""
    where = f"the target {short(path)}"
    try:
        found = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as e:
        raise PTQ4SNNError(f"cannot read {where}: {e.strerror}") from e
    except (ValueError, RecursionError) as e:  # not TOML, not text, or nested too deeply
        raise PTQ4SNNError(f"{where} is not TOML: {short(e)}") from e
    known = [f.name for f in fields(Target)]
    for key in found:
        if key not in known:
            raise PTQ4SNNError(f"{where} has no constraint {short(key)!r}: {hint(key, known, alike=0.5)}")
    try:
        given = {key: _READERS[key](key, value) for key, value in found.items()}
    except RecipeError as e:
        raise PTQ4SNNError(f"{where}: {e}") from e
    if not set(given) - {"name", "note"}:
        raise PTQ4SNNError(f"{where} has no constraint: give one of {', '.join(known[1:-1])}")
    return replace(Target(Path(path).stem), **given)


def _count(key: str, value: Any) -> int:
    return integer(key, value, 0, MOST)


def _bits(key: str, value: Any) -> tuple[int, int]:
    if not isinstance(value, list):
        return 1, integer(key, value, 2, 64)
    if len(value) != 2:
        raise RecipeError(f"{key} must be a number of bits or [least, most], not {short(repr(value))}")
    least = integer(f"the least of {key}", value[0], 1, 64)
    return least, integer(f"the most of {key}", value[1], max(2, least), 64)


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str) or not value.isprintable() or len(value) > 2000:
        raise RecipeError(f"{key} must be one line of text, not {short(repr(value))}")
    return value


def _one_of(allowed: Sequence[str]) -> Callable[[str, Any], str]:
    def read(key: str, value: Any) -> str:
        choice(key, value, allowed)
        return str(value)

    return read


def _some_of(allowed: Sequence[str]) -> Callable[[str, Any], tuple[str, ...]]:
    def read(key: str, value: Any) -> tuple[str, ...]:
        if not isinstance(value, list):
            raise RecipeError(f"{key} must be a list of {', '.join(allowed)}, not {short(repr(value))}")
        for item in value:
            choice(f"every entry of {key}", item, allowed)
        return tuple(value)

    return read


def _cores(key: str, value: Any) -> tuple[tuple[int, int], ...]:
    pairs = value if isinstance(value, list) and len(value) <= MOST_CORES else None
    if pairs is None or not all(isinstance(p, list) and len(p) == 2 for p in pairs):
        raise RecipeError(
            f"{key} must be a list of up to {MOST_CORES} times [weights, neurons], not {short(repr(value))}"
        )
    return tuple((_count(f"weights of {key}", w), _count(f"neurons of {key}", n)) for w, n in pairs)


def _strides(key: str, value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > MOST_CORES:
        raise RecipeError(f"{key} must be a list of whole numbers, not {short(repr(value))}")
    return tuple(_count(f"every entry of {key}", item) for item in value)


_READERS: Mapping[str, Callable[[str, Any], Any]] = {
    "name": _text,
    "weight_bits": _bits,
    "state_bits": _bits,
    "one_scale": boolean,
    "leak": _one_of(LEAK_KINDS),
    "resets": _some_of(RESETS),
    "comparator": _one_of((">", ">=")),
    "layers": _count,
    "dense": boolean,
    "without": _some_of(FEATURES),
    "spiking_output": boolean,
    "inputs": _count,
    "hidden_neurons": _count,
    "output_neurons": _count,
    "kernel": _count,
    "strides": _strides,
    "cores": _cores,
    "padded": boolean,
    "nir": boolean,
    "flash": _count,
    "ram": _count,
    "note": _text,
}
