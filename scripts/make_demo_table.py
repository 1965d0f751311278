"""The tables of docs/results.md that `make demo` prints: python scripts/make_demo_table.py [--write]

The rows go to benchmarks/demo.json, and from there into the page (--write does only that).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from ptq4snn.cli.demo import lines, opening
from ptq4snn.cli.demo_rows import BRIEF, NETWORKS, SETTINGS, Study
from ptq4snn.files import write_whole
from ptq4snn.progress import for_terminal

ROOT = Path(__file__).parents[1]
PAGE, RESULTS = ROOT / "docs" / "results.md", ROOT / "benchmarks" / "demo.json"
BEGIN, END = "<!-- demo -->\n", "<!-- end of demo -->"


def measure() -> list[dict[str, Any]]:
    """Of every network what stands above its table, and the rows."""
    studies = [Study(network, BRIEF, for_terminal()) for network in NETWORKS]
    return [{"opening": opening(study), "rows": list(study.rows(SETTINGS))} for study in studies]


def written(results: list[dict[str, Any]]) -> str:
    """The page with the tables that the results give."""
    text = "\n"
    for network in results:
        for line in (*network["opening"], *lines(network["rows"]), ""):
            text += f"    {line}".rstrip() + "\n"
    before, rest = PAGE.read_text("utf-8").split(BEGIN)
    return before + BEGIN + text + END + rest.split(END)[1]


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--write", action="store_true", help="only write the page")
    if not p.parse_args().write:
        write_whole(RESULTS, json.dumps(measure(), indent=1) + "\n")
    write_whole(PAGE, written(json.loads(RESULTS.read_text("utf-8"))))


if __name__ == "__main__":
    main()
