"""The tables of docs/results.md and README.md that benchmarks/methods.py measures, from what it stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ptq4snn.files import write_whole

__all__ = ["PAGE", "README", "write_pages", "written"]

PAGE = Path(__file__).parents[1] / "docs" / "results.md"
README = Path(__file__).parents[1] / "README.md"
BEGIN, END = "<!-- {} -->", "<!-- end of {} -->"
PREFIXES = {"equal": "", "equal, nearest": "nearest: ", "equal, BRECQ": "BRECQ: "}  # of rows, by their table
COUPLINGS = ("reuse", "FlowQ", "layer-wise", "bridge", "bridge + MPBA", "default")
BRIEF = ("4", "2")  # bits of README
NOT_BRIEF = ("vgg8-32-cifar10", "metaspikeformer-32-cifar10")  # one screen has no room for all
WIDTHS = ("4", "3", "2.5", "2")
HARD = (  # networks whose states are forgotten at every spike
    "default", "sew-resnet10-48-cifar100", "sdt-2-128-cifar10", "vgg8-32-cifar10",
)  # fmt: skip

Results = dict[str, Any]  # what is known of every model, by its name


def written(page: Path, results: dict[str, Results]) -> str:
    """The page with the tables that the results give."""
    if page == README:
        tables = {"equal": scores(results["equal"])}
    else:
        tables = {mark: side_by_side(results["equal"], prefix) for mark, prefix in PREFIXES.items()}
        tables["equal, mean"] = means({name: results["equal"][name] for name in HARD})
        tables |= {"ablation": transposed(results["ablation"]), "narrow": by_model(results["narrow"])}
        tables["distilled"] = distilled(results)
        if "reconstruction" in results:
            tables["reconstruction"] = transposed(results["reconstruction"], "W3/M32")
    text = page.read_text("utf-8")
    for mark, table in tables.items():
        before, rest = text.split(BEGIN.format(mark))
        text = f"{before}{BEGIN.format(mark)}\n{table}\n{END.format(mark)}{rest.split(END.format(mark))[1]}"
    return text


def write_pages(results: dict[str, Results]) -> None:
    for page in (PAGE, README):
        write_whole(page, written(page, results))


def grid(head: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(cells) + " |" for cells in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def labels(results: Results) -> list[str]:
    """Of all rows, in their order."""
    return list(dict.fromkeys(row["method"] for r in results.values() for row in r["rows"]))


def rows_of(r: Any) -> dict[str, Any]:
    return {row["method"]: row for row in r["rows"]}


def titles(results: Results, found: list[str]) -> list[str]:
    """Of the networks, over their rows `found`."""
    return [f"`{name}`, {r['samples']:,} samples, seeds {seeds(r, found)}" for name, r in results.items()]


def seeds(r: Any, found: list[str]) -> str:
    """Those that the rows `found` were measured with."""
    known = rows_of(r)
    return " ".join(map(str, next(known[n]["seeds"] for n in found if n in known and n != "float")))


def spread(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    return f"{row['score']:.2f}" + ("" if row["spread"] is None else f" ± {row['spread']:.2f}")


def cell(row: dict[str, Any] | None) -> str:
    """Mean score and spread over the seeds; change from M32 with its interval, or else from float."""
    if row is None:
        return ""
    text = f"**{row['score']:.2f}**" + ("" if row["spread"] is None else f" ± {row['spread']:.2f}")
    if row["change_from_baseline"] is None:
        return text if row["method"] == "float" else f"{text}; float {row['change_from_float']:+.2f}"
    text += f"; {row['change_from_baseline']:+.2f}"
    if row["interval_95"] is not None:
        text += " [{:+.2f}, {:+.2f}]".format(*row["interval_95"])
    return text


def side_by_side(results: Results, prefix: str) -> str:
    """A line a method, a column a model, of the rows on one rounding of the weights."""
    others = [p for p in PREFIXES.values() if p and p != prefix]
    found = [n for n in labels(results) if n.startswith(prefix) and not n.startswith(tuple(others))]
    found = ["float", *(n for n in found if n != "float" and (prefix or ": " not in n))]
    here = {name: r for name, r in results.items() if set(found[1:]) & set(rows_of(r))}
    rows = [[n.removeprefix(prefix), *(cell(rows_of(r).get(n)) for r in here.values())] for n in found]
    return grid(["method", *titles(here, found)], rows)


def means(results: Results) -> str:
    """A line a coupling, a column a rounding and a width: mean change from M32 over the networks that all
    cells of a rounding are known of."""
    head, rows = ["states"], [[method] for method in COUPLINGS]
    for mark, prefix in PREFIXES.items():
        here = with_rows(results, prefix)
        if len(here) < 2:
            continue
        rounding = "GPTQ" if mark == "equal" else mark.removeprefix("equal, ")
        head += [f"{rounding}, {bits} bits" for bits in WIDTHS]
        head[-len(WIDTHS)] += f" ({len(here)} networks)"
        for row, method in zip(rows, COUPLINGS, strict=True):
            row += [mean_change(here, f"{prefix}{method} W4/M{bits}") for bits in WIDTHS]
    return grid(head, rows)


def with_rows(results: Results, prefix: str) -> list[dict[str, Any]]:
    """Rows of the networks that were measured on a rounding of the weights."""
    return [found for found in map(rows_of, results.values()) if f"{prefix}W4/M32" in found]


def mean_change(networks: list[dict[str, Any]], label: str) -> str:
    changes = [w[label]["change_from_baseline"] for w in networks if label in w]
    return f"{sum(changes) / len(changes):+.2f}" if changes else ""


def scores(results: Results) -> str:
    """A line a network and a width of the states, a column a coupling, mean scores and their spread; behind
    the networks with hard resets the mean change from 32-bit states of them all."""
    rows = []
    hard = with_rows({name: results[name] for name in HARD}, "")
    for name, r in ((n, r) for n, r in results.items() if n not in NOT_BRIEF):
        if name not in HARD and hard:
            rows += [[f"mean change of {len(hard)} like these", f"{bits} bits", "", "", *(
                mean_change(hard, f"{method} W4/M{bits}") for method in COUPLINGS
            )] for bits in BRIEF]  # fmt: skip
            hard = []
        known = rows_of(r)
        for bits in BRIEF:
            wanted = ["float", "W4/M32", *(f"{method} W4/M{bits}" for method in COUPLINGS)]
            if any(label in known for label in wanted[2:]):
                rows.append([f"`{name}`", f"{bits} bits", *(spread(known.get(n)) for n in wanted)])
    return grid(["network", "states", "float", "W4/M32", *COUPLINGS], rows)


def by_model(results: Results) -> str:
    """A line a model, a column a method: mean score, spread over seeds, changes from float and from M32."""
    columns = [n for n in labels(results) if n != "float"]
    rows = []
    for name, r in results.items():
        known = rows_of(r)
        cells = [
            f"`{name}`<br>{r['samples']:,} samples, seeds {seeds(r, columns)}",
            f"{known['float']['score']:.2f}",
        ]
        for row in (known.get(n) for n in columns):
            change = "" if row is None else f"<br>float {row['change_from_float']:+.2f}"
            cells.append("" if row is None else f"**{row['score']:.2f}**{spread(row)[5:]}{change}")
        rows.append(cells)
    return grid(["model", "float", *columns], rows)


def transposed(results: Results, corner: str = "states") -> str:
    """A line a method, a column a model: score, and KL to the float model on held-out samples."""
    rows = []
    for label in (n for n in labels(results) if n != "float"):
        found = [rows_of(r).get(label) for r in results.values()]
        rows.append([label, *("" if w is None else f"{w['score']:.2f} (KL {w['kl']:.4f})" for w in found)])
    return grid(
        [
            corner,
            *(
                f"{t}, float {_float(r)}"
                for t, r in zip(titles(results, labels(results)), results.values(), strict=True)
            ),
        ],
        rows,
    )


def _float(r: Any) -> str:
    return f"{rows_of(r)['float']['score']:.2f}"


def distilled(results: dict[str, Results]) -> str:
    """A line a network and widths: the default and the same with distillation, on the seeds of the latter."""
    head = ["network", "seeds", "widths", "float", "default", "distilled", "float to distilled"]
    rows = []
    for name, r in results["distilled"].items():
        plain = results["narrow"][name]
        before = rows_of(plain)
        for label, row in rows_of(r).items():
            if label == "float":
                continue
            same = [before[label]["each"][before[label]["seeds"].index(seed)] for seed in row["seeds"]]
            change = f"{row['change_from_float']:+.2f}"
            before_it = f"{sum(same) / len(same):.2f}"
            rows.append([f"`{name}`", seeds(r, [label]), label, _float(r), before_it, spread(row), change])
    return grid(head, rows)
