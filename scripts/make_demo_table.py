"""Write the table of docs/results.md that `make demo` prints: python scripts/make_demo_table.py"""

from __future__ import annotations

from pathlib import Path

from ptq4snn.cli.demo import lines
from ptq4snn.cli.demo_rows import rows
from ptq4snn.files import write_whole
from ptq4snn.progress import for_terminal

PAGE = Path(__file__).parents[1] / "docs" / "results.md"
BEGIN, END = "<!-- demo -->\n", "<!-- end of demo -->"


def main() -> None:
    found = []
    for line in lines(rows(for_terminal())):
        print(line, flush=True)
        found.append(f"    {line}\n")
    text = PAGE.read_text("utf-8")
    table = "\n" + "".join(found) + "\n"
    write_whole(PAGE, text.split(BEGIN)[0] + BEGIN + table + END + text.split(END)[1])


if __name__ == "__main__":
    main()
