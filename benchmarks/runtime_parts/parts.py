"""What is measured of a case: speed, layers, scaling, streaming, memory. Each part is a plain dictionary."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ptq4snn.runtime import Runtime, State, load
from ptq4snn.runtime.measure import float_bytes, interleave, profiled
from ptq4snn.runtime.roofline import measure_peaks, rate_of
from runtime_parts import memory
from runtime_parts.cases import MAIN, Ready, narrow_stem, ready, synthetic
from runtime_parts.contenders import contenders
from runtime_parts.machine import instructions
from runtime_parts.networks import firing_rates
from runtime_parts.timing import summary

BASE = "spikingjelly"


def speed(r: Ready, batch: int, rounds: int, skip: frozenset[str]) -> dict[str, Any]:
    """All contenders in one interleaved run."""
    x = r.x[:batch].contiguous()
    c = contenders(r, x, skip)
    times = interleave({name: partial(run, x) for name, run in c.runs.items()}, rounds)
    base = BASE if BASE in times else "eager"
    rates = {
        kind: {name: float(rate.mean()) for name, rate in firing_rates(model, x).items()}
        for kind, model in (("float", r.model), ("quantized", r.quantized))
    }
    return {
        "case": r.case.name,
        "batch": batch,
        "samples": r.samples,
        "target": r.case.target,
        "rate": {k: sum(v.values()) / len(v) for k, v in rates.items()},
        "rates": rates,
        "base": base,
        "rounds": rounds,
        "compile_seconds": c.compile_seconds,
        "checks": c.checks,
        "contenders": summary(times, batch, base),
        "of_peak": of_peak(r, x.numpy()),
    }


def of_peak(r: Ready, x: Any) -> float:
    """The time that all projections would take at the machine's peaks, of the time of all operations."""
    told = profiled(load(r.bundle, kernels=instructions()), x, None, 9)
    peaks = measure_peaks(told.kernels)
    rates = [(op.milliseconds, rate_of(op, peaks)) for op in told.operations]
    return sum(ms * rate.share for ms, rate in rates if rate) / sum(ms for ms, _ in rates)


def layers(r: Ready, batch: int, calls: int = 25) -> dict[str, Any]:
    """The least time of every operation, and its share of the machine's peak."""
    told = profiled(load(r.bundle, kernels=instructions()), r.x[:batch].numpy(), None, calls)
    peaks = measure_peaks(told.kernels)
    rows = []
    for op in told.operations:
        rate = rate_of(op, peaks)
        rows.append(asdict(op) | {"rate": rate and rate.operations, "share": rate and rate.share})
    return {"case": r.case.name, "batch": batch, "peaks": asdict(peaks), "operations": rows}


def scaling(folder: Path, rounds: int) -> dict[str, Any]:
    """The runtime alone on the main shape: threads, batch, T, and one step a call."""
    main = ready(next(c for c in synthetic() if c.name == MAIN), folder, {})
    x, kernels = main.x.numpy(), instructions()
    one, two = (load(main.bundle, kernels, threads=n) for n in (1, 2))
    more, more_two = (load(main.bundle, kernels, threads=n, expanded=True) for n in (1, 2))
    packed, expanded = (load(main.bundle, kernels, expanded=e) for e in (False, True))

    def steps(stream: Runtime) -> None:
        stream.reset()
        for _ in range(stream.model.program.steps):
            stream.step(x[:1])

    runs: dict[str, tuple[Callable[[], object], int]] = {
        "batch 1": (partial(one, x[:1]), 1),
        "batch 4": (partial(one, x[:4]), 4),
        "batch 16": (partial(one, x[:16]), 16),
        "batch 1, 2 threads": (partial(two, x[:1]), 1),
        "batch 16, 2 threads": (partial(two, x[:16]), 16),
        "T 1": (partial(one, x[:1], steps=1), 1),
        "T 2": (partial(one, x[:1], steps=2), 1),
        "T 8": (partial(one, x[:1], steps=8), 1),
        "streaming, batch 1": (partial(steps, packed), 1),
        "expanded weights, batch 1": (partial(more, x[:1]), 1),
        "expanded weights, batch 1, 2 threads": (partial(more_two, x[:1]), 1),
        "expanded weights, streaming, batch 1": (partial(steps, expanded), 1),
    }
    return against_one(runs, rounds)


def against_one(runs: dict[str, tuple[Callable[[], object], int]], rounds: int) -> dict[str, Any]:
    """Milliseconds an image, and how many times those of one image a call, inside a round."""
    times = interleave({name: work for name, (work, _) in runs.items()}, rounds)
    rows = {}
    for name, t in times.items():
        ratios = [a / runs[name][1] / b for a, b in zip(t, times["batch 1"], strict=True)]
        ms = 1e3 * statistics.median(t) / runs[name][1]
        rows[name] = {"ms_per_image": ms, "to_batch_1": statistics.median(ratios)}
    return {"case": MAIN, "rounds": rounds, "rows": rows}


def memory_of(r: Ready, folder: Path, batch: int, kinds: Sequence[str]) -> dict[str, Any]:
    """Parameters and states from the buffers; the working set from the process."""
    rt = load(r.bundle)
    x = r.x[:batch].numpy()
    rt(x)
    told = rt.statistics()
    float32 = float_bytes(rt.model, batch, told.steps)
    out: dict[str, Any] = {
        "case": r.case.name,
        "batch": batch,
        "parameters": {"float32": float32.parameters, "packed": told.weights_bytes},
        "state": {"float32": float32.state, "packed": State.new(rt.model, 1).nbytes},
        "buffers": told.weights_bytes + told.arena_bytes,
    }
    if r.case.name == MAIN:
        stem = ready(narrow_stem(), folder, {})
        out["state"]["packed, stem 4"] = State.new(load(stem.bundle).model, 1).nbytes
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "x.npy"
        np.save(file, x)
        found = {"runtime": memory.measured("runtime", str(r.bundle), str(file))}
        for kind in kinds:
            found[kind] = memory.measured(kind, r.case.name, str(folder), str(file))
    return out | {"process": found}
