"""LaTeX that compiles: escaped, balanced, and as many cells in every line as there are columns."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptq4snn.report.latex import escaped, latex_table
from ptq4snn.report.text import Grid

ROOT = Path(__file__).parents[2]


def check(text: str, count: int | None = None) -> None:
    """As a compiler would: environments and braces are balanced, cells are as many as the columns."""
    assert re.findall(r"\\begin\{(\w+)\}", text).count("table") == text.count(r"\end{table}")
    tables = re.findall(r"\\begin\{tabular\}\{([lr]+)\}\n(.*?)\\end\{tabular\}", text, re.DOTALL)
    assert tables and (count is None or len(tables) == count)
    bare = re.sub(r"\\(textbackslash|text\w+|[&%$#_{}])", "", text)
    depth = 0
    for c in bare:
        depth += (c == "{") - (c == "}")
        assert depth >= 0
    assert depth == 0 and bare.count("$") % 2 == 0
    assert not re.search(r"[%#_^~]", bare)
    for columns, body in tables:
        rules = [r"\toprule", r"\midrule", r"\bottomrule"]
        assert [line for line in body.splitlines() if line in rules] == rules
        lines = [line for line in body.splitlines() if line not in rules]
        for line in lines:
            assert line.endswith(r" \\") and line[0] not in "[*"  # options of what stands above
            assert len(re.findall(r"(?<!\\)&", line)) == len(columns) - 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [("95 % & a_b", r"95 \% \& a\_b"), ("-1.20", "$-$1.20"), ("+0.10 .. +0.30", "$+$0.10 .. $+$0.30"),
     ("W4/M4 (-0.06)", "W4/M4 ($-$0.06)"), ("best-fast+w4m4", "best-fast+w4m4"),
     ("3 × 4 ± 2", r"3 $\times$ 4 $\pm$ 2"),
     ("a\\b{c}$", r"a\textbackslash{}b\{c\}\$"), ("sdt-2-128", "sdt-2-128")],
)  # fmt: skip
def test_escaping(text: str, expected: str) -> None:
    assert escaped(text) == expected


WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\n\r", exclude_categories=("C", "Z")))


@given(
    st.integers(1, 5).flatmap(lambda n: st.lists(st.lists(WORDS, min_size=n, max_size=n), min_size=1)), WORDS
)
def test_whatever_stands_in_it(rows: list[list[str]], caption: str) -> None:
    check(latex_table(Grid.of(rows[0], rows[1:]), caption), 1)


def test_every_table_of_the_results(tmp_path: Path) -> None:
    out = tmp_path / "tables.tex"
    page = ROOT / "docs" / "results.md"
    subprocess.run([sys.executable, str(ROOT / "benchmarks" / "latex.py"), str(page), str(out)], check=True)
    text = out.read_text("utf-8")
    found = page.read_text("utf-8")
    bars, printed = (
        re.findall(rule, found, re.MULTILINE) for rule in (r"^\|[ :|-]+\|$", r"^    -{9,}\n((?:    .+\n)+)")
    )
    check(text, len(bars) + len(printed))
    rows = " ".join([*re.findall(r"^\|.*", found, re.MULTILINE), *printed])
    figures = re.findall(r"\d+\.\d+", rows)
    assert sorted(re.findall(r"\d+\.\d+", " ".join(re.findall(r".*\\\\$", text, re.MULTILINE)))) == sorted(
        figures
    )


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not here")
def test_latex_takes_it(tmp_path: Path) -> None:
    grid = Grid.of(["method", "accuracy %"], [["a_b & c", "-1.20"], ["x^2 {y} ~ \\z", "+0.3 ± 1"]])
    body = latex_table(grid, "50 % of #1")
    document = (
        "\\documentclass{article}\\usepackage{booktabs}\\begin{document}\n" + body + "\\end{document}\n"
    )
    (tmp_path / "t.tex").write_text(document, "utf-8")
    subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"], cwd=tmp_path, check=True
    )
