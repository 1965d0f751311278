"""Tables of docs/runtime.md and README.md, and what is printed while it is measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ptq4snn.files import write_whole
from ptq4snn.report.units import size

BEGIN, END = "<!-- {} -->", "<!-- end of {} -->"
FLOATS = ("spikingjelly", "eager", "compiled", "onnx float", "onnx int8", "simulation")
MEMORY_LABELS = {"spikingjelly": "SpikingJelly eager", "eager": "torch eager", "compiled": "torch.compile"}


BRIEF = {
    "sew-resnet18, 5 %": "SEW-ResNet18",
    "sew-resnet18, 15 %": "SEW-ResNet18",
    "sdt-2-256, 17 %": "SDT-2-256",
}


def write(path: Path, results: dict[str, Any]) -> None:
    write_whole(path, written(path, results))


def written(path: Path, results: dict[str, Any]) -> str:
    """The page with what the results give between the marks of each table."""
    text = path.read_text("utf-8")
    parts = results["parts"]
    tables = {
        "brief speed": brief(results),
        "speed": speed_table(of(parts, "speed")),
        "layers": layer_table(of(parts, "layers")),
        "scaling": scaling_table(of(parts, "scaling")),
        "memory": memory_table(of(parts, "memory")),
    }
    for name, table in tables.items():
        begin, end = BEGIN.format(name), END.format(name)
        if begin in text and table:
            text = text.split(begin)[0] + f"{begin}\n{table}\n{end}" + text.split(end)[1]
    return text


def brief(results: dict[str, Any]) -> str:
    """README's: three cases at batch 1, and the memory of the first."""
    parts = results["parts"]
    found = {case: parts[f"speed/{case}/1"] for case in BRIEF if f"speed/{case}/1" in parts}
    if len(found) < len(BRIEF):
        return ""
    rows = []
    for case, r in found.items():
        c = r["contenders"]
        kernels = max((n for n in c if n.startswith("runtime")), key=lambda n: c[n]["speedup"])
        floats = [c[n]["ms_per_image"] for n in ("eager", "compiled", "onnx float") if n in c]
        times_of = [c["spikingjelly"]["ms_per_image"], min(floats), c["onnx int8"]["ms_per_image"]]
        label = f"{BRIEF[case]}/CIFAR shape, {100 * r['rate']['quantized']:.0f} % firing"
        ours = [f"**{c[kernels]['ms_per_image']:.2f} ms**", f"**{c[kernels]['speedup']:.1f}x**"]
        rows.append([label, *(f"{t:.1f} ms" for t in times_of), *ours, over_strongest(r).strip("*")])
    head = ["batch 1, one thread", "SpikingJelly eager", "strongest float", "onnxruntime int8", "runtime"]
    shown = table([*head, "over SpikingJelly", "over the strongest float"], rows)
    m = parts["memory/sew-resnet18, 15 %"]
    p, s, run = m["parameters"], m["state"], m["process"]
    return (
        f"{shown}\n\n{results['machine']['processor']}, {kernels.partition(' ')[2] or kernels}, "
        f"{results['date']}. At {m['batch']} samples a call the SEW-ResNet18 shape needs "
        f"{size(run['runtime']['process'])} in all against {size(run['spikingjelly']['process'])}; its\n"
        f"parameters shrink {p['float32'] / p['packed']:.1f}x, its states {s['float32'] / s['packed']:.1f}x "
        f"({s['float32'] / s['packed, stem 4']:.1f}x with a 4-bit stem)."
    )


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
        rows.append([*cells, over_strongest(r)])
    return table(["model", "firing", *names, "over the strongest float"], rows)


def over_strongest(r: dict[str, Any]) -> str:
    """The fastest kernels against the fastest of the float contenders."""
    c = r["contenders"]
    floats = [c[n]["speedup"] for n in ("eager", "compiled", "onnx float") if n in c]
    ours = [row["speedup"] for n, row in c.items() if n.startswith("runtime")]
    return f"**{max(ours) / max(floats):.1f}x**" if floats and ours else ""


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
    if name.startswith("speed/"):
        rate = r["rate"]
        print(f"  firing: float {rate['float']:.3f}, quantized {rate['quantized']:.3f}; {r['checks']}")
