"""The table of docs/reliability.md from the logs of by_coverage.py and native_fuzzer.py, NAME.log each:

    python tests/fuzz/write_table.py FOLDER

Readers without a log, or with one of fewer cases, keep the row that they have.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reliability.md"
BEGIN, END = "<!-- coverage -->", "<!-- end of coverage -->"
NAMES = {"plan": "native plans", "torch": "`torch.save`", "atis": "N-MNIST's `.bin`", "image": "PNG"}


def row(log: Path) -> tuple[int, str]:
    """Cases, and the line of the table."""
    text = log.read_text(encoding="utf-8", errors="replace")
    found = re.search(r"DONE +cov: (\d+) ft: \d+ corp: (\d+)/", text)
    done = re.search(r"Done (\d+) runs in (\d+) second", text)
    peak = re.search(r"peak_rss_mb: +(\d+)", text)
    if found is None or done is None or peak is None:
        raise SystemExit(f"{log} is not the log of a run that ended well")
    cases, seconds = int(done[1]), int(done[2])
    name = NAMES.get(log.stem, log.stem)
    return cases, f"| {name} | {cases:,} | {seconds} | {int(found[1]):,} | {found[2]} | {peak[1]} |"


def known(page: str) -> dict[str, tuple[int, str]]:
    """Rows of the page by reader."""
    lines = page.partition(BEGIN)[2].partition(END)[0].splitlines()
    cells = {line: line.split(" | ") for line in lines if re.search(r"\d \|$", line)}
    return {c[0].strip("| "): (int(c[1].replace(",", "")), line) for line, c in cells.items()}


def main() -> None:
    page = PAGE.read_text(encoding="utf-8")
    found = known(page)
    for log in Path(sys.argv[1]).glob("*.log"):
        name = NAMES.get(log.stem, log.stem)
        found[name] = max(row(log), found.get(name, (0, "")))
    rows = sorted(found.values(), reverse=True)
    head = [
        "| reader | cases | seconds | edges reached | files kept | largest memory, MiB |",
        "|---|" + "---:|" * 5,
    ]
    before, _, rest = page.partition(BEGIN)
    words = "Of each reader the run of the most cases, with all faults found before mended; none found any:"
    content = "\n".join([BEGIN, words, "", *head, *(line for _, line in rows), END])
    PAGE.write_text(before + content + rest.partition(END)[2], encoding="utf-8")


if __name__ == "__main__":
    main()
