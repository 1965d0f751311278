"""What was aimed at and what each processor reached: a table that is written from its parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["STRONGEST", "goals", "over_strongest"]

STRONGEST = ("eager", "compiled", "onnx float")
SYNTHETIC = ("sew-resnet18", "sdt-2-256")  # with random weights
MAIN, SPARSE = "sew-resnet18, 15 %", "sew-resnet18, 5 %"
SLOWEST = 2.0  # times the strongest float that no trained network and no narrow layer may stay below
BATCHES = (1, 16)
Cpu = dict[str, Any]


def over_strongest(r: dict[str, Any]) -> float | None:
    """How many times the fastest of the float contenders the fastest kernels are."""
    c = r["contenders"]
    floats = [c[n]["speedup"] for n in STRONGEST if n in c]
    return best(r) / max(floats) if floats else None


def best(r: dict[str, Any]) -> float:
    """Of the kernels, over the first contender."""
    return float(max(row["speedup"] for n, row in r["contenders"].items() if n.startswith("runtime")))


def of_batches(cpu: Cpu, case: str, measure: Callable[[dict[str, Any]], float | None]) -> list[float | None]:
    parts = [cpu["parts"].get(f"speed/{case}/{b}") for b in BATCHES]
    return [None if p is None else measure(p) for p in parts]


def judged(values: list[float | None], goal: float) -> str:
    """Figures of BATCHES, and which of them reach the goal."""
    known = [v for v in values if v is not None]
    if not known:
        return ""
    text = " and ".join("not measured" if v is None else f"{v:.1f}x" for v in values)
    good = [f"batch {b}" for b, v in zip(BATCHES, values, strict=True) if v is not None and v >= goal]
    if not good:
        return f"{text}: missed"
    return f"{text}: reached" + ("" if len(good) == len(known) else f" at {good[0]} only")


def least(cpu: Cpu, kind: str) -> str:
    """The slowest of a kind over the strongest float, and how many were measured."""
    parts = [r for name, r in cpu["parts"].items() if name.split("/")[0] == kind]
    parts = [r for r in parts if kind != "speed" or not r["case"].startswith(SYNTHETIC)]
    ratios = [(over_strongest(r), f"{r['case']}, batch {r['batch']}") for r in parts]
    found = [(ratio, where) for ratio, where in ratios if ratio is not None]
    if not found:
        return ""
    low, where = min(found)
    missed = sum(ratio < SLOWEST for ratio, _ in found)
    end = f"missed by {missed} of {len(found)}" if missed else f"reached by all {len(found)}"
    return f"{low:.1f}x ({where}): {end}"


def scaled(cpu: Cpu, rows: tuple[str, ...], goal: float, inverse: bool = False) -> str:
    """Of the scaling: times of one image a call, or how many times faster (`inverse`)."""
    found = cpu["parts"].get(f"scaling/{MAIN}")
    if found is None or any(row not in found["rows"] for row in rows):
        return ""
    ratios = [found["rows"][row]["to_batch_1"] for row in rows]
    if not inverse:
        words = [f"{v:.2f}x" for v in ratios]
        return (
            f"{words[0]}, {words[1]} with expanded weights: {'reached' if min(ratios) <= goal else 'missed'}"
        )
    one = [1.0, found["rows"]["batch 16"]["to_batch_1"]]
    return judged([a / b for a, b in zip(one, ratios, strict=True)], goal)


def small(cpu: Cpu, goal: float) -> str:
    found = {k.split("/")[1]: r for k, r in cpu["parts"].items() if k.startswith("small/")}
    if not found:
        return ""
    words = ", ".join(f"{best(r):.0f}x {name}" for name, r in found.items())
    return f"{words}: {'reached' if all(best(r) >= goal for r in found.values()) else 'missed'}"


def column(cpu: Cpu) -> dict[str, str]:
    held = bool(cpu.get("held"))
    over, floats, sparse = (20.0, 12.0, 30.0) if held else (15.0, 10.0, 25.0)
    two = ("batch 1, 2 threads", "batch 16, 2 threads")
    dense = of_batches(cpu, MAIN, best)
    return {
        f"SEW-ResNet18 at 15 %, batch 1 and 16, over SpikingJelly: {over:.0f}x": judged(dense, over),
        f"... over the strongest float: {floats:.0f}x": judged(of_batches(cpu, MAIN, over_strongest), floats),
        f"at 5 %, over SpikingJelly: {sparse:.0f}x": judged(of_batches(cpu, SPARSE, best), sparse),
        f"trained networks, over the strongest float: {SLOWEST:.0f}x": least(cpu, "speed"),
        f"8 to 48 channels, over the strongest float: {SLOWEST:.0f}x": least(cpu, "widths"),
        "a step at batch 1 over its share of a whole call: at most 1.3x": scaled(
            cpu, ("streaming, batch 1", "expanded weights, streaming, batch 1"), 1.3
        ),
        "small networks, over snnTorch: 20x": small(cpu, 20.0),
        "two threads over one, batch 1 and 16: 1.8x": scaled(cpu, two, 1.8, inverse=True),
    }  # fmt: skip


def goals(cpus: list[Cpu], name: Callable[[Cpu], str]) -> str:
    """One table of the processors with goals of AVX-512, and one of those held to AVX2."""
    tables = []
    for held in (False, True):
        some = [(name(c), column(c)) for c in cpus if bool(c.get("held")) is held]
        if not some:
            continue
        lines = ["| processor | " + " | ".join(some[0][1]) + " |", "|---|" + "---|" * len(some[0][1])]
        lines += [f"| {title} | " + " | ".join(cells.values()) + " |" for title, cells in some]
        tables.append("\n".join(lines))
    return "\n\n".join(tables)
