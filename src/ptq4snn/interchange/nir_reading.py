"""`ptq4snn.from_nir`: a NIR file, or a graph of the package nir, as a model that can be quantized."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from ptq4snn.errors import CheckpointError, PTQ4SNNError, UnsupportedModel, first_line
from ptq4snn.extras import needed_by
from ptq4snn.frameworks.adapter import Reset
from ptq4snn.interchange.nir_network import Graph, NirNetwork
from ptq4snn.interchange.nir_nodes import READOUTS, Settings, is_neuron, module_of, reals
from ptq4snn.interchange.nir_order import Edge, order_of

__all__ = ["from_nir"]

RESETS: dict[str | None, Reset | None] = {None: None, "subtract": "soft", "zero": "hard"}
RULES = ("euler", "rockpool")
OUTPUTS = ("sum", "mean", "last", "none")
MOST_BYTES = 2**32  # of all arrays of a file
READ_ALL = """
import sys, h5py
with h5py.File(sys.argv[1], "r") as file:
    names = []
    file.visit(names.append)
    for x in map(file.get, names):
        if isinstance(x, h5py.Dataset):
            x[()]
"""
MOST_STEPS = 4096  # of a delay: each of them is a value that is kept
SCALED = ("Affine", "Linear", "Conv1d", "Conv2d")


def from_nir(
    source: str | Path | Any, *, dt: float | None = None, reset: str | None = None, readout: str = "sum",
    rule: str = "euler",
) -> nn.Module:  # fmt: skip
    """The network of a NIR file; samples are [B, T, ...].

    dt: length of a step, in the unit of the file's time constants; needed where there are any.
    reset: "subtract" or "zero": how the network was trained, which a NIR file does not say.
    readout: "sum" or "mean" of the output node over the steps, "last", or "none": every step [B, T, ...].
    rule: "euler", as most frameworks read NIR's equations, or "rockpool" for files that Rockpool wrote, whose
        neurons decay exponentially, fire at the threshold too, and subtract it.
    """
    if rule not in RULES:
        raise UnsupportedModel(f"rule is {rule!r}: give one of {', '.join(RULES)}")
    reset = "subtract" if rule == "rockpool" and reset is None else reset
    if reset not in RESETS:
        raise UnsupportedModel(f'reset is {reset!r}: give "subtract" or "zero"')
    if readout not in OUTPUTS:
        raise UnsupportedModel(f"readout is {readout!r}: give one of {', '.join(OUTPUTS)}")
    found = _read(source) if isinstance(source, (str, Path)) else source
    with _about("the NIR graph"):
        return NirNetwork(_graph(found, Settings(dt, RESETS[reset], rule, whole=True)), readout).eval()


def _graph(source: Any, settings: Settings) -> Graph:
    nodes, edges = _without_scales(*_flattened(source))
    neurons = frozenset(n for n, node in nodes.items() if is_neuron(node))
    order, back = order_of(nodes, edges, neurons)
    late = {n: _steps(n, node, settings.dt) for n, node in nodes.items() if type(node).__name__ == "Delay"}
    settings = replace(settings, whole=not back and not any(late.values()))
    modules = {n: nn.Identity() if n in late else _module(n, node, settings) for n, node in nodes.items()}
    return Graph(
        modules,
        {n: tuple(a for a, b in edges if b == n) for n in nodes},
        tuple(order),
        _only(nodes, "Input"),
        _only(nodes, "Output"),
        neurons,
        frozenset(n for n in neurons if type(nodes[n]).__name__ in READOUTS),
        back,
        {a: tuple(int(i) for i in nodes[a].output_type["output"]) for a, _ in back},
        late,
    )


def _module(name: str, node: Any, settings: Settings) -> nn.Module:
    with _about(f"the node '{name}' of the NIR graph, a {type(node).__name__},"):
        return module_of(name, node, settings)


@contextmanager
def _about(what: str) -> Iterator[None]:
    """A stranger's graph may have anything in place of a number, and shapes that do not fit."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as why:
        raise UnsupportedModel(
            f"{what} has parameters that are no numbers or do not fit each other: {first_line(why)[:300]}"
        ) from why


def _read(path: str | Path) -> Any:
    with needed_by("a NIR file"):
        import nir
    if not Path(path).is_file():
        raise CheckpointError(f"there is no file {path}")
    try:
        _refuse_large(path)
        _refuse_deadly(path)
        return nir.read(path, type_check=False)
    except PTQ4SNNError:
        raise
    except Exception as why:  # a stranger's file may break h5py and nir in any way
        raise CheckpointError(f"{path} cannot be read as a NIR graph: {first_line(why)}") from why


def _refuse_large(path: str | Path) -> None:
    """Before its numbers are read: HDF5 gives an array any shape without writing a number of it."""
    import h5py

    sizes: list[int] = []
    with h5py.File(path, "r") as file:
        file.visititems(lambda _n, x: sizes.append(x.nbytes) if isinstance(x, h5py.Dataset) else None)
    if sum(sizes) > MOST_BYTES:
        raise CheckpointError(
            f"{path} holds {sum(sizes):,} bytes of numbers: a graph may have {MOST_BYTES:,}"
        )


def _refuse_deadly(path: str | Path) -> None:
    """HDF5's library ends the process on some damaged files: another process reads it first."""
    if not sys.executable:
        return
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-c", READ_ALL, str(path)]
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    if done.returncode < 0:  # by a signal; what it says otherwise is said again, here
        raise CheckpointError(f"{path} is damaged: HDF5 cannot read it; get it again")


def _key(name: str) -> str:
    """A name that torch takes for a module, and that keeps what was meant."""
    return re.sub(r"\W", "_", name) or "_"


def _flattened(graph: Any, home: str = "") -> tuple[dict[str, Any], list[Edge]]:
    """Nodes and edges with those of inner graphs among them; an inner graph's input and output are nodes."""
    nodes: dict[str, Any] = {}
    edges: list[Edge] = []
    ends: dict[str, tuple[str, str]] = {}  # of an inner graph: where it is entered and left
    for name, node in graph.nodes.items():
        key = _key(f"{home}{name}")
        if key in nodes:
            raise UnsupportedModel(f"two nodes of the NIR graph are named '{key}'; give them other names")
        if hasattr(node, "nodes"):
            inner, more = _flattened(node, f"{home}{name}_")
            nodes |= inner
            edges += more
            ends[name] = tuple(  # type: ignore[assignment]
                _one(inner, kind, f"{key}_") for kind in ("Input", "Output")
            )
        else:
            nodes[key] = node
            ends[name] = key, key
    for a, b in graph.edges:
        if a not in ends or b not in ends:
            raise UnsupportedModel(f"an edge of the NIR graph, {a} to {b}, names a node that is not there")
        edges.append((ends[a][1], ends[b][0]))
    return nodes, edges


def _one(nodes: dict[str, Any], kind: str, home: str) -> str:
    own = [n for n, node in nodes.items() if type(node).__name__ == kind and n.startswith(home)]
    if not own:
        raise UnsupportedModel(f"a graph inside the NIR graph has no {kind.lower()}")
    return own[0]


def _only(nodes: dict[str, Any], kind: str) -> str:
    # an inner graph's ends have longer names
    found = sorted(
        (n for n, node in nodes.items() if type(node).__name__ == kind), key=lambda n: n.count("_")
    )
    if not found:
        raise UnsupportedModel(f"the NIR graph has no {kind.lower()} node")
    return found[0]


def _steps(name: str, node: Any, dt: float | None) -> int:
    """A delay as a number of steps, the same for all."""
    delay = np.unique(reals(node.delay))
    if len(delay) > 1:
        raise UnsupportedModel(f"the delays of '{name}' differ; a program has one for a whole value")
    if delay[0] == 0:
        return 0
    steps = delay[0] / dt if dt else 0.5
    if abs(steps - round(steps)) > 1e-6 * max(1.0, steps) or steps < 0:
        raise UnsupportedModel(
            f"the delay of '{name}', {delay[0]:g}, is no whole number of steps dt: give dt"
        )
    if steps > MOST_STEPS:
        raise UnsupportedModel(f"the delay of '{name}' is {steps:.0f} steps: at most {MOST_STEPS}")
    return round(steps)


def _without_scales(nodes: dict[str, Any], edges: list[Edge]) -> tuple[dict[str, Any], list[Edge]]:
    """Scales behind a projection that nothing else reads go into its weights."""
    nodes = dict(nodes)
    for name, node in list(nodes.items()):
        if type(node).__name__ != "Scale":
            continue
        before = [a for a, b in edges if b == name]
        alone = len(before) == 1 and sum(a == before[0] for a, _ in edges) == 1
        if not alone or type(nodes[before[0]]).__name__ not in SCALED:
            continue
        scaled = _scaled(nodes[before[0]], reals(node.scale))
        if scaled is not None:
            nodes[before[0]] = scaled
            del nodes[name]
            edges = [(before[0] if a == name else a, b) for a, b in edges if b != name]
    return nodes, edges


def _scaled(node: Any, scale: Any) -> Any:
    """A projection times a scale of each output channel; None where the scale differs inside of one."""
    channels = node.weight.shape[0]
    rows = np.broadcast_to(scale, (channels, *scale.shape[1:])) if scale.ndim else np.full(channels, scale)
    rows = rows.reshape(channels, -1)
    if not (rows == rows[:, :1]).all():
        return None
    by = rows[:, 0]
    made = copy(node)
    made.weight = node.weight * by.reshape(-1, *[1] * (node.weight.ndim - 1))
    if getattr(node, "bias", None) is not None:
        made.bias = node.bias * by
    return made
