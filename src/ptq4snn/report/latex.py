"""A table as LaTeX, for papers: booktabs, escaped, first columns to the left and figures to the right."""

from __future__ import annotations

import re

from ptq4snn.report.text import Grid

__all__ = ["escaped", "latex_table"]

SPECIAL = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{",
    "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}",
    ">": r"\textgreater{}", "|": r"\textbar{}", "×": r"$\times$", "±": r"$\pm$", "→": r"$\to$", "−": r"$-$",
    "·": r"$\cdot$", "≥": r"$\geq$", "≤": r"$\leq$", "µ": r"$\mu$", "σ": r"$\sigma$", "β": r"$\beta$",
}  # fmt: skip
SIGNED = re.compile(r"(?<![\w.])[+-](?=[\d.]*\d)")  # a sign, not a hyphen: it is set as one


def escaped(text: str) -> str:
    """The text as LaTeX sets it letter by letter; signs of numbers are those of mathematics."""
    parts = SIGNED.split(text)
    signs = [*SIGNED.findall(text), ""]
    plain = ["".join(SPECIAL.get(c, c) for c in part) for part in parts]
    return "".join(p + (f"${s}$" if s else "") for p, s in zip(plain, signs, strict=True))


def latex_table(grid: Grid, caption: str = "") -> str:
    r"""A `table` to be read by \input; the preamble needs \usepackage{booktabs}."""
    columns = "l" * grid.left + "r" * (len(grid.titles) - grid.left)

    def line(cells: tuple[str, ...]) -> str:
        text = " & ".join(map(escaped, cells)) + r" \\"
        return "{}" + text if text[0] in "[*" else text  # else an option of the line above

    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            *([rf"\caption{{{escaped(caption)}}}"] if caption else []),
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            line(grid.titles),
            r"\midrule",
            *map(line, grid.rows),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )
