"""docs/licences.md: the licences of all packages that ptq4snn may bring along, by what they are for.

python scripts/make_licences.py             writes the tables between the markers
python scripts/make_licences.py --check     only says whether they are those of the installed packages
"""

from __future__ import annotations

import sys
from pathlib import Path

from package_facts import EXTRAS, Package, needed_by_extra

PAGE = Path(__file__).resolve().parents[1] / "docs" / "licences.md"
BEGIN, END = "<!-- licences -->", "<!-- end of licences -->"
FOR = {
    "": "Required: to run a bundle",
    "torch": "`[torch]`: to quantize, evaluate and train",
    "cli": "`[cli]`: colours and bars on a terminal",
    "report": "`[report]`: the page of a report",
    "images": "`[images]`: JPEG and PNG data sets",
    "figures": "`[figures]`: figures as files",
    "nir": "`[nir]`: networks as NIR files",
    "onnx": "`[onnx]`: to write ONNX models",
    "ray": "`[ray]`: to compare methods on a cluster",
}


def tables(found: dict[str, dict[str, Package]]) -> str:
    """One table for each extra; versions are in constraints.txt."""
    parts = []
    for extra in ("", *EXTRAS):
        rows = [f"| {p.name} | {p.licence} | {' '.join(p.needs)} |" for p in found[extra].values()]
        parts.append(
            "\n".join([f"## {FOR[extra]}\n", "| package | licence | needs |", "|---|---|---|", *rows])
        )
    return "\n\n".join(parts)


def renewed(page: str, content: str) -> str:
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n{content}\n{END}{rest.partition(END)[2]}"


def main() -> int:
    page = PAGE.read_text(encoding="utf-8")
    wanted = renewed(page, tables(needed_by_extra()))
    if "--check" in sys.argv:
        print("the page is up to date" if page == wanted else f"{PAGE} is not of the installed packages")
        return 0 if page == wanted else 1
    PAGE.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
