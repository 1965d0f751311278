"""From a bundle or a model to files of C."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ptq4snn.errors import DataError, PTQ4SNNError
from ptq4snn.export.c99.figures import Figures
from ptq4snn.export.c99.files import FORMS, weight_file
from ptq4snn.export.c99.header import facts, header_lines
from ptq4snn.export.c99.names import identifier, name_of
from ptq4snn.export.c99.names import section as checked_section
from ptq4snn.export.c99.source import write_source
from ptq4snn.files import check_target, short, write_together
from ptq4snn.network.program import Project
from ptq4snn.runtime.bounds import prove_for
from ptq4snn.runtime.demand import Limits
from ptq4snn.runtime.engine import Runtime
from ptq4snn.runtime.loading import load_model_file
from ptq4snn.runtime.parameters import Model
from ptq4snn.runtime.state import MAX_STEPS

__all__ = ["PATHS", "CSource", "Choices", "c", "generate"]

PATHS = ("event", "dense", "auto")
DENSE = 0.5  # from this share of inputs that are not zero on, going over all of them is faster
MAX_BYTES = 2**26  # of weights and tables: what no microcontroller has


@dataclass(frozen=True)
class CSource:
    """What was written: the files by name, what they cost, and sentences about it."""

    name: str
    files: dict[str, bytes]
    figures: Figures
    paths: dict[str, str]

    @property
    def facts(self) -> list[str]:
        return facts(self.figures)


def c(
    model: str | Path | Model,
    out: str | Path,
    name: str | None = None,
    *,
    section: str | None = None,
    weights: str = "c",
    steps: int | None = None,
    path: str = "event",
    samples: Any = None,
    densities: Mapping[str, float] | None = None,
    limits: Limits | None = None,
) -> CSource:
    """Write NAME.h and NAME.c (and NAME.bin, .mem or .hex) of a bundle into the folder `out`, which is made.

    `steps`: the most of a sequence (65,536); fewer make narrower sums. `path`: "event" goes over spikes that
    are there, "dense" over all inputs, "auto" chooses for each layer by `samples`, inputs as the model takes
    them, or by `densities`, shares of non-zero inputs by the name of the operation. `limits`: what the
    bundle may ask for, or those of `Limits()`.
    """
    stem = name if name is not None else "network" if isinstance(model, Model) else name_of(Path(model).stem)
    source = generate(model, stem, Choices(section, weights, steps, path, samples, densities, limits))
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise PTQ4SNNError(f"{short(out)} is a file: name a folder for the C sources")
    folder.mkdir(parents=True, exist_ok=True)
    targets = {folder / file: content for file, content in source.files.items()}
    for target in targets:
        check_target(target)
    write_together(targets)
    return source


@dataclass(frozen=True)
class Choices:
    """What a user says of the sources: see `c`."""

    section: str | None = None
    weights: str = "c"
    steps: int | None = None
    path: str = "event"
    samples: Any = None
    densities: Mapping[str, float] | None = None
    limits: Limits | None = None


def generate(model: str | Path | Model, name: str, choices: Choices | None = None) -> CSource:
    """The files of `c`, not written."""
    chosen = choices or Choices()
    section, weights, path = chosen.section, chosen.weights, chosen.path
    identifier(name)
    checked_section(section)
    _one_of("weights", weights, FORMS)
    _one_of("path", path, PATHS)
    loaded = model if isinstance(model, Model) else load_model_file(model, chosen.limits or Limits())
    loaded = _for_steps(loaded, chosen.steps)
    _limit(loaded)
    found = dict(chosen.densities) if chosen.densities is not None else _densities(loaded, chosen.samples)
    if path == "auto" and not found:
        raise PTQ4SNNError('path "auto" chooses by what was measured: give samples or densities')
    written = write_source(loaded, name, _paths(loaded, path, found), section, weights == "c", found)
    files = {f"{name}.h": _text(header_lines(written)), f"{name}.c": _text(written.lines)}
    if weights != "c":
        files[f"{name}.{weights}"] = weight_file(written.ctx, weights)
    return CSource(name, files, written.figures, dict(written.ctx.paths))


def _one_of(what: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise PTQ4SNNError(f"{what} is {short(repr(value))}: choose one of {', '.join(allowed)}")


def _for_steps(model: Model, steps: int | None) -> Model:
    """With bounds for sequences of so many steps."""
    if steps is None:
        steps = min(model.bounds.steps, MAX_STEPS)
    if not isinstance(steps, int) or isinstance(steps, bool) or not 1 <= steps <= model.bounds.steps:
        raise PTQ4SNNError(
            f"steps is {short(repr(steps))}: give a whole number from 1 to {model.bounds.steps:,}"
        )
    bounds = prove_for(model.program, model.projections, model.neurons, model.mirrors, steps)
    return replace(model, bounds=bounds)


def _limit(model: Model) -> None:
    size = sum(p.weight.size * p.bits // 8 for p in model.projections.values())
    tables = sum(op.index.count for op in model.program.operations if hasattr(op, "index"))
    if size + tables > MAX_BYTES:
        raise PTQ4SNNError(
            f"the network has {size + tables:,} bytes of weights and tables: "
            f"C is written of up to {MAX_BYTES:,}"
        )


def _densities(model: Model, samples: Any) -> dict[str, float]:
    """Shares of non-zero inputs, measured."""
    if samples is None:
        return {}
    rt = Runtime(model, "numpy")
    rt.profile = True
    rt(samples)
    found = rt.statistics().operations
    return {o.name: o.density for o in found if o.density is not None}


def _paths(model: Model, path: str, densities: Mapping[str, float]) -> dict[str, str]:
    """The loop of every projection: events where inputs are spikes or small counts, unless told otherwise."""
    out = {}
    for op in model.program.operations:
        if not isinstance(op, Project):
            continue
        low, high = model.bounds.values[op.inputs[0]]
        sparse = low >= 0 and high <= 15
        if path == "auto":
            density = densities.get(op.name)
            if density is not None and (not isinstance(density, (int, float)) or not 0 <= density <= 1):
                raise DataError(
                    f"the density of '{op.name}' is {short(repr(density))}: give a number from 0 to 1"
                )
            sparse = sparse if density is None else density < DENSE
        out[op.name] = "event" if sparse and path != "dense" else "dense"
    return out


def _text(lines: list[str]) -> bytes:
    return (re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n").encode("ascii")
