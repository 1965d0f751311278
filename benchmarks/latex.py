"""The tables of a Markdown page as LaTeX, in their order; every figure is the page's.

    python benchmarks/latex.py docs/results.md tables.tex

Tables of bars, and those that commands print: a line of dashes below the titles, cells two spaces apart. A
table's caption is the heading it stands under. Needs \\usepackage{booktabs}.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

from ptq4snn.files import write_whole
from ptq4snn.report.latex import latex_table
from ptq4snn.report.text import Grid

RULE = re.compile(r"\|[ :|-]+\|$")
DASHES = re.compile(r" {4}-{9,}$")
CELL = re.compile(r"\S+(?: \S+)*")  # of a printed table
MARKS = re.compile(r"\*\*|`|<br>|(?<!\!)\[([^\]]*)\]\([^)]*\)")  # of a link the words stay


def tables(page: str) -> Iterator[tuple[str, Grid]]:
    """Heading and cells of every table of a page; bars in a block of code are none."""
    heading, fenced = "", False
    for block in page.split("\n\n"):
        lines = block.splitlines()
        for place, line in enumerate(lines):
            fenced ^= line.startswith("```")
            if line.startswith("#") and not fenced:
                heading = plain(line.lstrip("# "))
            if RULE.match(line) and not fenced:
                yield heading, grid([cells(s) for s in takewhile(lambda s: s[:1] == "|", lines[place - 1 :])])
            if DASHES.match(line):
                yield heading, printed(lines[place - 1], lines[place + 1 :])


def printed(titles: str, rows: list[str]) -> Grid:
    """A table of text: a cell begins or ends where its title does, words begin, figures end."""
    columns = [(t.start(), t.end(), t[0]) for t in CELL.finditer(titles)]
    made = []
    for row in rows:
        found = {t.end(): t[0] for t in CELL.finditer(row)} | {-t.start(): t[0] for t in CELL.finditer(row)}
        made.append([found.get(end, found.get(-begin, "")) for begin, end, _ in columns])
    return grid([[t for *_, t in columns], [], *made])


def cells(line: str) -> list[str]:
    """Of one line; an escaped bar is none."""
    return [plain(c.replace(r"\|", "|").strip()) for c in re.split(r"(?<!\\)\|", line.strip())[1:-1]]


def plain(text: str) -> str:
    return MARKS.sub(lambda m: m[1] if m[1] is not None else " " if m[0] == "<br>" else "", text)


def grid(found: list[list[str]]) -> Grid:
    """Without the rule below the titles. Columns of words, which come first, are those of letters."""
    titles, _, *rows = found
    words = [sum(r[i][:1].isalpha() for r in rows) > len(rows) / 2 for i in range(len(titles))]
    left = words.index(False) if False in words else len(words)
    return Grid.of(titles, rows, max(1, left))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("page")
    parser.add_argument("out")
    args = parser.parse_args()
    made = [latex_table(cells, heading) for heading, cells in tables(Path(args.page).read_text("utf-8"))]
    write_whole(Path(args.out), "\n".join(made))
    print(f"wrote {len(made)} tables to {args.out}")


if __name__ == "__main__":
    main()
