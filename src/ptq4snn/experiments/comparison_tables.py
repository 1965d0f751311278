"""A comparison as aligned text, as LaTeX and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any, cast

from ptq4snn.experiments.comparison import Comparison, summary
from ptq4snn.report.comparison_text import comparison_grid, comparison_table
from ptq4snn.report.latex import latex_table
from ptq4snn.schema.comparison_types import Run

__all__ = ["latex", "raw_csv", "text_table"]


def text_table(comparison: Comparison, paper: Sequence[str] | None = None) -> list[str]:
    """One line a method; `paper` are the cells of a column with the paper's own figures."""
    return comparison_table(comparison.to_dict(), paper)


def latex(comparison: Comparison) -> str:
    """The same table as LaTeX."""
    return latex_table(comparison_grid(comparison.to_dict()))


def record(run: Run) -> dict[str, Any]:
    """A run as one flat line of figures."""
    s = cast(dict[str, Any], summary(run))
    flat: dict[str, Any] = {
        "method": run["label"], "spec": run["spec"], "seed": run["seed"], "metric": run["metric"],
        "score": run["score"], "samples": run["samples"],
    }  # fmt: skip
    flat |= {n: run["scores"].get(n) for n in ("accuracy", "accuracy_top5", "mIoU", "aAcc", "mAcc")}
    names = (
        "average_bits", "average_bits_all", "saturation", "flip_rate", "agreement", "kl", "emd", "beta",
        "percentile", "state_energy",
    )  # fmt: skip
    flat |= {n: s.get(n) for n in names}
    parts = (("silent_channels", "after"), ("weight_bytes", "quantized"), ("state_bytes", "packed"))
    flat |= {f"{name}_{part}": s.get(name, {}).get(part) for name, part in parts}
    flat |= {f"seconds_{n}": seconds for n, seconds in run["seconds"].items()}
    return flat | {"date": run["date"], "version": run["version"]}


def raw_csv(comparison: Comparison) -> str:
    """One line a run."""
    lines = [record(r) for r in comparison.runs]
    out = io.StringIO()
    writer = csv.DictWriter(out, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return out.getvalue()
