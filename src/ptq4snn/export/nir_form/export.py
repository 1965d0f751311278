"""`ptq4snn.export.nir`: a bundle for every reader of NIR, and back.

The graph has the dequantized weights and thresholds. Its states are real numbers there: no reader of NIR
rounds them. Each node's metadata (`q.*`) say the integers; that of the graph holds the bundle itself, from
which `bundle_of` writes it again, byte for byte.
"""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from ptq4snn.drafts import draft_folder
from ptq4snn.errors import BundleError, PTQ4SNNError
from ptq4snn.export.nir_form.uniform import make_uniform
from ptq4snn.export.nir_form.walk import Walk, walk
from ptq4snn.extras import needed_by
from ptq4snn.files import check_target, write_whole
from ptq4snn.network.plan import Plan
from ptq4snn.runtime.demand import Limits
from ptq4snn.runtime.loading import read_contents
from ptq4snn.runtime.parameters import Model

with needed_by("ptq4snn.export.nir"):
    import nir as library

__all__ = ["bundle_of", "nir", "nir_graph", "nodes_of"]

DT = 1e-4  # of the NIR paper's networks
BUNDLE = "q.bundle"


def nir(source: str | Path, out: str | Path, *, dt: float = DT, limits: Limits | None = None) -> None:
    """Write a bundle as a NIR file; `dt` is the length of a step, in seconds. `limits`: what the bundle may
    ask for, or those of `Limits()`."""
    place = check_target(Path(out))
    file = BytesIO()  # HDF5 ends the process where a disk is full
    library.write(file, nir_graph(source, dt, limits))
    write_whole(place, file.getvalue())


def nir_graph(source: str | Path, dt: float = DT, limits: Limits | None = None) -> Any:
    """The graph of the package nir."""
    if not dt > 0:
        raise PTQ4SNNError(f"dt is {dt!r}: give the length of a step, such as 1e-4")
    found = read_contents(source, limits or Limits())
    if found.model is None:
        raise BundleError(f"{source} has no integer program, so that there is nothing to write")
    w = nodes_of(found.plan, found.model, dt)
    meta = {
        BUNDLE: np.frombuffer(Path(source).read_bytes(), dtype=np.uint8), "q.dt": np.array([dt]),
        "q.steps": np.array([w.model.program.steps]),
    }  # fmt: skip
    return library.NIRGraph(w.nodes, w.edges, metadata=meta, type_check=False)


def nodes_of(plan: Plan, model: Model, dt: float = DT) -> Walk:
    """Nodes and edges of a program; what NIR cannot say is refused with its place."""
    w = Walk(model, plan, library, dt)
    walk(w)
    if len(model.program.outputs) != 1:
        raise PTQ4SNNError("the model has several outputs, and a NIR graph has one: return the spikes alone")
    if ends := model.program.outputs[0].then:
        raise PTQ4SNNError(f"the model ends with a {ends[0][0]}, which NIR has not: return what it reads")
    last = w.made[model.program.outputs[0].value]
    w.nodes["output"] = library.Output(np.array(last.shape))
    w.edges += [(s, "output") for s in last.sources]
    make_uniform(w)
    return w


def bundle_of(source: str | Path, out: str | Path, *, limits: Limits | None = None) -> None:
    """The bundle that a NIR file was written from, byte for byte."""
    place = check_target(Path(out))
    try:
        graph = library.read(source, type_check=False)
        content = bytes(np.asarray(graph.metadata[BUNDLE], dtype=np.uint8))
    except Exception as why:  # a stranger's file may break h5py and nir in any way
        raise BundleError(f"{source} holds no bundle; write it with ptq4snn export --to nir") from why
    with draft_folder(place.parent) as folder:
        (folder / "bundle.ptq").write_bytes(content)
        # a stranger's bytes are checked like any bundle
        read_contents(folder / "bundle.ptq", limits or Limits())
    write_whole(place, content)
