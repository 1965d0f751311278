"""The table of docs/reliability.md from the logs of by_coverage.py and native_fuzzer.py, NAME.log each:

python tests/fuzz/write_table.py FOLDER
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


def main() -> None:
    rows = sorted((row(log) for log in Path(sys.argv[1]).glob("*.log")), reverse=True)
    head = [
        "| reader | cases | seconds | edges reached | files kept | largest memory, MiB |",
        "|---|" + "---:|" * 5,
    ]
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    words = "The last run, with all faults that were found before mended; it found none:"
    content = "\n".join([BEGIN, words, "", *head, *(line for _, line in rows), END])
    PAGE.write_text(before + content + rest.partition(END)[2], encoding="utf-8")


if __name__ == "__main__":
    main()
