"""Everything that runs a case, checked before it is timed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from ptq4snn.discovery.surgery import copy_model
from ptq4snn.runtime import load
from runtime_parts.cases import Ready
from runtime_parts.floats import compiled, inference, lean, onnxruntime_runs, spikingjelly
from runtime_parts.machine import levels

Run = Callable[[Tensor], Any]
FLOAT64 = 1e-9  # allowed difference of logits between float contenders, relative, in float64
CHUNK = 8  # samples that are compared at a time
CHANGED = 1e-3  # a sample's float32 logits differ more: a spike flipped by rounding


@dataclass
class Contenders:
    runs: dict[str, Run] = field(default_factory=dict)
    compile_seconds: float | None = None
    checks: dict[str, Any] = field(default_factory=dict)


def contenders(r: Ready, x: Tensor, skip: frozenset[str] = frozenset()) -> Contenders:
    """Those that are there for a batch x; each is checked on it."""
    c = Contenders()
    folded = lean(r.model, x)
    peer = spikingjelly(r.model)
    if peer is not None:
        c.runs["spikingjelly"] = peer
    c.runs["eager"] = inference(r.model)
    if "compiled" not in skip:
        c.runs["compiled"], c.compile_seconds = compiled(folded, x)
    if "onnx" not in skip:
        c.runs |= onnxruntime_runs(folded, x, r.x)
    c.runs["simulation"] = inference(r.quantized)
    c.checks["float64"] = check_float64(r, x[:2])
    c.checks |= check_float32(c.runs, x)
    for level in levels():
        c.runs[f"runtime {level}"] = runtime(r, level)
    c.checks["runtime"] = check_runtime(r, c.runs)
    return c


def runtime(r: Ready, level: str, threads: int = 1) -> Run:
    rt = load(r.bundle, kernels=level, threads=threads)
    return lambda x: rt(x.numpy())


def check_float64(r: Ready, x: Tensor) -> float:
    """Largest relative difference of logits of the float contenders, in float64; too large a one raises."""
    model, x = copy_model(r.model).double(), x.double()
    runs = [inference(model), inference(lean(model, x)), spikingjelly(model)]
    outputs = [run(x) for run in runs if run is not None]
    worst = max(float((o - outputs[0]).abs().max() / outputs[0].abs().max()) for o in outputs)
    if worst > FLOAT64:
        raise RuntimeError(f"{r.case.name}: the float contenders differ by {worst:g} in float64")
    return worst


def check_float32(runs: dict[str, Run], x: Tensor) -> dict[str, Any]:
    """Share of samples whose logits changed: by a spike that rounding flipped, or, of int8, by anything."""
    want = runs["eager"](x)
    scale = want.abs().max()
    found: dict[str, Any] = {}
    for name in ("spikingjelly", "compiled", "onnx float", "onnx int8"):
        if name in runs:
            difference = (runs[name](x) - want).abs().flatten(1).amax(1) / scale
            found[name] = {
                "samples changed": float((difference > CHANGED).float().mean()),
                "median difference": float(difference.median()),
            }
    return found


def check_runtime(r: Ready, runs: dict[str, Run]) -> str:
    """Every kernel gives the simulation's logits bit for bit, or this raises."""
    kernels = {name: run for name, run in runs.items() if name.startswith("runtime ")}
    for i, x in enumerate(r.x.split(CHUNK)):
        want = runs["simulation"](x).numpy()
        for name, run in kernels.items():
            if name == "runtime numpy" and i > 0:
                continue  # it is slow, and tests compare it with the others
            if not np.array_equal(np.asarray(run(x)), want):
                raise RuntimeError(f"{r.case.name}: {name} differs from the simulation")
    return f"bit for bit on {len(r.x)} samples"
