"""Tables of docs/runtime.md and README.md, and what is printed while it is measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from ptq4snn.files import write_whole
from ptq4snn.report.units import size
from runtime_parts import goals
from runtime_parts.goals import STRONGEST
from runtime_parts.names import cpu_name

BEGIN, END = "<!-- {} -->", "<!-- end of {} -->"
FLOATS = ("spikingjelly", "snntorch", "eager", "compiled", "onnx float", "onnx int8", "simulation")
MEMORY_LABELS = {"spikingjelly": "SpikingJelly eager", "eager": "torch eager", "compiled": "torch.compile"}


BRIEF = {
    "sew-resnet18, 5 %": "SEW-ResNet18",
    "sew-resnet18, 15 %": "SEW-ResNet18",
    "sdt-2-256, 17 %": "SDT-2-256",
}
README_CASES = ("sew-resnet18, 15 %",)
BATCHES = (1, 16)


def write(path: Path, results: dict[str, Any]) -> None:
    write_whole(path, written(path, results))


def written(path: Path, results: dict[str, Any]) -> str:
    """The page with what the results give between the marks of each table."""
    text = path.read_text("utf-8")
    cpus = list(results["cpus"].values())
    tables = {
        "brief speed": brief(cpus),
        "short": brief_table(cpus, BRIEF, BATCHES),
        "speed": of_each(cpus, "speed", speed_table),
        "small": of_each(cpus, "small", small_table),
        "layers": of_each(cpus, "layers", layer_table),
        "scaling": of_each(cpus, "scaling", scaling_table),
        "widths": of_each(cpus, "widths", speed_table),
        "memory": of_each(cpus, "memory", memory_table),
        "goals": goals.goals(cpus, title),
    }
    for name, table in tables.items():
        begin, end = BEGIN.format(name), END.format(name)
        if begin in text and table:
            text = text.split(begin)[0] + f"{begin}\n{table}\n{end}" + text.split(end)[1]
    return text


def title(cpu: dict[str, Any]) -> str:
    return f"{cpu_name(cpu)}, {cpu['date']}"


def of_each(cpus: list[dict[str, Any]], kind: str, make: Callable[[list[dict[str, Any]]], str]) -> str:
    """The tables of one kind, one below the other, each under its processor."""
    tables = [(cpu, make(of(cpu["parts"], kind))) for cpu in cpus]
    return "\n\n".join(f"**{title(cpu)}**\n\n{table}" for cpu, table in tables if table)


def brief(cpus: list[dict[str, Any]]) -> str:
    """README's: one case at batch 1 on every processor, and the memory of its shape."""
    cpu = next((c for c in cpus if "memory/sew-resnet18, 15 %" in c["parts"]), None)
    shown = brief_table(cpus, README_CASES, (1,))
    if cpu is None or not shown:
        return ""
    m = cpu["parts"]["memory/sew-resnet18, 15 %"]
    p, s, run = m["parameters"], m["state"], m["process"]
    return (
        f"{shown}\n\nAt {m['batch']} samples a call the SEW-ResNet18 shape needs "
        f"{size(run['runtime']['process'])} in all against {size(run['spikingjelly']['process'])}; its\n"
        f"parameters shrink {p['float32'] / p['packed']:.1f}x, its states {s['float32'] / s['packed']:.1f}x "
        f"({s['float32'] / s['packed, stem 4']:.1f}x with a 4-bit stem; {title(cpu)})."
    )


def brief_table(cpus: list[dict[str, Any]], cases: Iterable[str], batches: Sequence[int]) -> str:
    head = ["one thread", "processor", "SpikingJelly eager", "strongest float", "onnxruntime int8", "runtime"]
    rows = [
        brief_row(cpu, case, cpu["parts"][f"speed/{case}/{batch}"])
        for cpu in cpus
        for case in cases
        for batch in batches
        if f"speed/{case}/{batch}" in cpu["parts"]
    ]
    return table([*head, "over SpikingJelly", "over the strongest float"], rows) if rows else ""


def brief_row(cpu: dict[str, Any], case: str, r: dict[str, Any]) -> list[str]:
    c = r["contenders"]
    ours = c[fastest(c)]
    floats = [c[n]["ms_per_image"] for n in STRONGEST if n in c]
    int8 = f"{c['onnx int8']['ms_per_image']:.1f} ms" if "onnx int8" in c else ""
    label = f"{BRIEF[case]}/CIFAR shape, {100 * r['rate']['quantized']:.0f} % firing, batch {r['batch']}"
    base = f"{c['spikingjelly']['ms_per_image']:.1f} ms"
    speed = [f"**{ours['ms_per_image']:.2f} ms**", f"**{ours['speedup']:.1f}x**"]
    return [label, title(cpu), base, f"{min(floats):.1f} ms", int8, *speed, over_strongest(r).strip("*")]


def fastest(contenders: dict[str, Any]) -> str:
    ours = [n for n in contenders if n.startswith("runtime")]
    return max(ours, key=lambda n: float(contenders[n]["speedup"]))


def of(parts: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [r for name, r in parts.items() if name.split("/")[0] == kind]


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def speed_table(found: list[dict[str, Any]]) -> str:
    """A line a case and batch: ms an image of every contender and, below, how many times faster it is."""
    if not found:
        return ""
    kernels = dict.fromkeys(n for r in found for n in r["contenders"] if n.startswith("runtime"))
    names = [n for n in FLOATS if any(n in r["contenders"] for r in found)] + list(kernels)
    rows = []
    for r in found:
        cells = [f"`{r['case']}`<br>batch {r['batch']}", f"{100 * r['rate']['quantized']:.1f} %"]
        for name in names:
            c = r["contenders"].get(name)
            cells.append("" if c is None else f"{c['ms_per_image']:.2f} ms<br>**{c['speedup']:.1f}x**")
        share = f"{100 * r['of_peak']:.0f} %" if "of_peak" in r else ""
        rows.append([*cells, over_strongest(r), share])
    return table(["model", "firing", *names, "over the strongest float", "of the peak"], rows)


def small_table(found: list[dict[str, Any]]) -> str:
    """Microseconds a sample of every contender and, below, how many times faster than snnTorch it is."""
    if not found:
        return ""
    names = list(dict.fromkeys(n for r in found for n in r["contenders"]))
    rows = []
    for r in found:
        cells = [r["case"], f"{100 * r['rate']['quantized']:.1f} %"]
        for name in names:
            c = r["contenders"].get(name)
            cells.append("" if c is None else f"{1e3 * c['ms_per_image']:,.0f} µs<br>**{c['speedup']:.1f}x**")
        rows.append(cells)
    return table(["network", "firing", *names], rows)


def over_strongest(r: dict[str, Any]) -> str:
    """The fastest kernels against the fastest of the float contenders."""
    ratio = goals.over_strongest(r)
    return "" if ratio is None else f"**{ratio:.1f}x**"


def layer_table(found: list[dict[str, Any]]) -> str:
    """Of batch 1: time, density, path and share of the peak."""
    one = next((r for r in found if r["batch"] == 1), None)
    if one is None:
        return ""
    total = sum(op["milliseconds"] for op in one["operations"])
    rows = []
    for op in one["operations"]:
        if op["milliseconds"] < 0.002 * total:
            continue
        rows.append(
            [
                f"`{op['name']}` {op['kind']}",
                f"{op['milliseconds']:.3f}",
                "" if op["density"] is None else f"{100 * op['density']:.1f} %",
                op["path"],
                "" if op["rate"] is None else f"{op['rate'] / 1e9:.0f}",
                "" if op["share"] is None else f"{100 * op['share']:.0f} %",
            ]
        )
    peaks = one["peaks"]
    title = (
        f"Peak of one thread ({peaks['kernels']}): {peaks['adds'] / 1e9:.0f} G byte additions/s, "
        f"{peaks['macs'] / 1e9:.0f} G multiply-adds/s, {peaks['memory'] / 1e9:.1f} GB/s read. "
        f"All operations together {total:.2f} ms.\n\n"
    )
    return title + table(["operation", "ms", "density", "path", "G op/s", "of peak"], rows)


def scaling_table(found: list[dict[str, Any]]) -> str:
    if not found:
        return ""
    rows = [
        [name, f"{r['ms_per_image']:.2f}", f"{r['to_batch_1']:.2f}"] for name, r in found[0]["rows"].items()
    ]
    return table(["setting", "ms an image", "to batch 1"], rows)


def memory_table(found: list[dict[str, Any]]) -> str:
    if not found:
        return ""
    rows = []
    for r in found:
        p, s, run = r["parameters"], r["state"], r["process"]
        ours = run["runtime"]["process"]
        cells = [f"`{r['case']}`", times(p["float32"], p["packed"]), times(s["float32"], s["packed"])]
        cells.append(times(s["float32"], s["packed, stem 4"]) if "packed, stem 4" in s else "")
        cells += [f"{size(r['buffers'])} / {size(ours)}"]
        for kind in MEMORY_LABELS:
            cells.append(times(run[kind]["process"], ours) if kind in run else "")
        rows.append(cells)
    head = ["model", "parameters", "state a sample", "with a 4-bit stem", "working set: buffers / process"]
    return table([*head, *(f"against {label}" for label in MEMORY_LABELS.values())], rows)


def times(before: float, after: float) -> str:
    return f"{size(before)} → {size(after)}<br>**{before / after:.1f}x**"


def tell(name: str, r: dict[str, Any]) -> None:
    """A few lines on what was just measured."""
    for n, c in r.get("contenders", {}).items():
        low, high = c["speedup_spread"]
        print(
            f"  {n:18} {c['ms_per_image']:9.3f} ms an image   {c['speedup']:6.2f}x [{low:.2f}, {high:.2f}]",
            flush=True,
        )
    for n, row in r.get("rows", {}).items():
        print(f"  {n:22} {row['ms_per_image']:9.3f} ms an image   {row['to_batch_1']:6.2f}", flush=True)
    if name.startswith(("speed/", "widths/")):
        rate = r["rate"]
        print(f"  firing: float {rate['float']:.3f}, quantized {rate['quantized']:.3f}; {r['checks']}")
