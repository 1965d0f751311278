"""`ptq4snn bench`: speed, memory and roofline of a bundle on this machine. No torch is imported."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from ptq4snn.cli.bundle_data import read_array
from ptq4snn.cli.limits import limits_of
from ptq4snn.extras import is_there
from ptq4snn.report.units import percent, significant, size, smaller
from ptq4snn.runtime import load
from ptq4snn.runtime.measure import (
    FloatBytes,
    Speed,
    float_bytes,
    measure_speed,
    profiled,
    random_input,
    with_batch,
    working_set,
)
from ptq4snn.runtime.roofline import Peaks, measure_peaks, rate_of
from ptq4snn.runtime.statistics import Statistics

__all__ = ["run"]

Row = Sequence[str]


def run(args: argparse.Namespace) -> None:
    rt = load(args.bundle, kernels=args.kernels, limits=limits_of(args))
    program = rt.model.program
    x = random_input(rt.model, max(args.batch)) if args.input is None else read_array(args.input)
    speeds = []
    for batch in args.batch:
        part = with_batch(x, program.input.batch_axis, batch)
        for threads in args.threads:
            rt.threads = threads
            steps = args.steps or steps_of(part, program)
            work = partial(rt, part, steps=args.steps)
            speeds.append(measure_speed(work, batch, threads, steps, args.seconds))
    rt.threads = 1
    statistics = profiled(rt, part, args.steps)
    peaks = measure_peaks(statistics.kernels)
    float32 = float_bytes(rt.model, statistics.samples, statistics.steps)
    if args.json:
        print(json.dumps(facts(args, speeds, statistics, float32, peaks), indent=2))
        return
    origin = "random samples: those of your own data fire otherwise" if args.input is None else args.input
    print(f"{args.bundle}: {statistics.kernels} kernels, T = {statistics.steps}, {origin}")
    show(
        "speed",
        ("samples a call", "threads", "samples/s", "ms a sample", "p50 ms", "p90 ms"),
        rows_of(speeds),
    )
    show("memory", ("", "here", "float32", "smaller"), memory_rows(statistics, float32))
    print(
        f"peak of one thread ({peaks.kernels}): {giga(peaks.adds)} byte additions/s, "
        f"{giga(peaks.macs)} multiply-adds/s, {giga(peaks.memory)}B/s read"
    )
    show(
        "layers",
        ("operation", "kind", "ms", "time", "density", "path", "op/s", "of peak"),
        layers(statistics, peaks),
    )


def steps_of(x: Any, program: Any) -> int:
    axis = program.input.time_axis
    return int(program.steps if axis is None else x.shape[axis])


def rows_of(speeds: Iterable[Speed]) -> list[Row]:
    return [
        (
            str(s.batch),
            str(s.threads),
            significant(s.samples_a_second),
            significant(s.milliseconds_a_sample),
            significant(s.p50),
            significant(s.p90),
        )
        for s in speeds
    ]


def memory_rows(statistics: Statistics, float32: FloatBytes) -> list[Row]:
    pairs = (
        ("parameters", statistics.weights_bytes, float32.parameters),
        ("state of a sample", statistics.state_bytes, float32.state),
        (f"all, {statistics.samples} at a time", working_set(statistics), float32.working_set),
    )
    return [(what, size(a), size(b), smaller(b, a) or "") for what, a, b in pairs]


def layers(statistics: Statistics, peaks: Peaks) -> list[Row]:
    total = sum(op.milliseconds for op in statistics.operations) or 1.0
    rows: list[Row] = []
    for op in statistics.operations:
        rate = rate_of(op, peaks)
        rows.append(
            (
                op.name,
                op.kind,
                significant(op.milliseconds),
                percent(op.milliseconds / total, 2),
                "" if op.density is None else percent(op.density, 2),
                op.path,
                "" if rate is None else giga(rate.operations),
                "" if rate is None else percent(rate.share, 2),
            )
        )
    return rows


def giga(rate: float) -> str:
    return f"{significant(rate / 1e9)} G"


def facts(
    args: argparse.Namespace, speeds: list[Speed], statistics: Statistics, float32: FloatBytes, peaks: Peaks
) -> dict[str, Any]:
    operations = []
    for op in statistics.operations:
        rate = rate_of(op, peaks)
        known = (None, None) if rate is None else (rate.operations, rate.share)
        operations.append(asdict(op) | {"rate": known[0], "share_of_peak": known[1]})
    return {
        "bundle": args.bundle,
        "input": args.input,
        "kernels": statistics.kernels,
        "speed": [asdict(s) | {"samples_per_second": s.samples_a_second} for s in speeds],
        "memory": {
            "samples": statistics.samples,
            "parameters": {"bytes": statistics.weights_bytes, "float32": float32.parameters},
            "state": {"bytes": statistics.state_bytes, "float32": float32.state},
            "working_set": {"bytes": working_set(statistics), "float32": float32.working_set},
        },
        "peaks": asdict(peaks),
        "operations": operations,
    }


def show(title: str, head: Row, rows: Sequence[Row]) -> None:
    """One table: with lines on a terminal, else plain text. Columns of words are on the left."""
    left = [(i == 0 and not rows[0][0].isdigit()) or head[i] in ("kind", "path") for i in range(len(head))]
    if sys.stdout.isatty() and is_there("rich"):
        from rich.console import Console
        from rich.table import Table

        table = Table(title=title, title_justify="left")
        for i, text in enumerate(head):
            table.add_column(text, justify="left" if left[i] else "right", no_wrap=True)
        for row in rows:
            table.add_row(*row)
        Console().print(table)
        return
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    print(f"\n{title}")
    for row in (head, *rows):
        cells = (
            t.ljust(w) if at_left else t.rjust(w) for t, w, at_left in zip(row, widths, left, strict=True)
        )
        print("  ".join(cells).rstrip())
