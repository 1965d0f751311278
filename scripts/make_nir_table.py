"""Write the table of docs/deploy.md that says what other frameworks make of exported NIR files.

    python scripts/make_nir_table.py

PTQ4SNN_NIRTORCH, PTQ4SNN_NORSE, PTQ4SNN_SINABS and PTQ4SNN_SPIKINGJELLY_200 name their folders. The networks
and the readers are those of tests/export/nir_readers.py; a test compares.
"""

from __future__ import annotations

import re
import sys
import tempfile
import warnings
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "deploy.md"
BEGIN, END = "<!-- nir readers -->", "<!-- end of nir readers -->"


def main() -> None:
    sys.path.insert(0, str(ROOT / "tests"))
    from export.nir_readers import READERS, asked, networks, write_files

    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_files(folder)
        found = {reader: asked(reader, folder) for reader in READERS}
    lines = ["| network | " + " | ".join(READERS) + " |", "|---|" + "---|" * len(READERS)]
    for network in networks():
        cells = []
        for reader, outcomes in found.items():
            if outcomes is None:
                raise SystemExit(f"{reader} or nirtorch is not there: `make test` installs them")
            cells.append(outcomes[network])
        lines.append(f"| {network} | " + " | ".join(cells) + " |")
    text = PAGE.read_text(encoding="utf-8")
    marked = "\n".join([BEGIN, *lines, END])
    PAGE.write_text(re.sub(f"{BEGIN}.*?{END}", lambda _: marked, text, flags=re.S), encoding="utf-8")


if __name__ == "__main__":
    main()
