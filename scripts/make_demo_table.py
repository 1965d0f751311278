"""Write the tables of docs/results.md that `make demo` prints: python scripts/make_demo_table.py"""

from __future__ import annotations

from pathlib import Path

from ptq4snn.cli.demo import lines, opening
from ptq4snn.cli.demo_rows import BRIEF, NETWORKS, SETTINGS, Study
from ptq4snn.files import write_whole
from ptq4snn.progress import for_terminal

PAGE = Path(__file__).parents[1] / "docs" / "results.md"
BEGIN, END = "<!-- demo -->\n", "<!-- end of demo -->"


def main() -> None:
    found = []
    for network in NETWORKS:
        study = Study(network, BRIEF, for_terminal())
        for part in (opening(study), lines(study.rows(SETTINGS)), [""]):
            for line in part:
                print(line, flush=True)
                found.append(f"    {line}".rstrip() + "\n")
    text = PAGE.read_text("utf-8")
    table = "\n" + "".join(found)
    write_whole(PAGE, text.split(BEGIN)[0] + BEGIN + table + END + text.split(END)[1])


if __name__ == "__main__":
    main()
