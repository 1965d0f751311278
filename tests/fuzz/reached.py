"""Files that fuzzing by coverage kept, one archive a reader: where it begins, and what the tests read again.

python tests/fuzz/reached.py FOLDER     # of --keep folders, READER/... each, made anew
"""

from __future__ import annotations

import io
import sys
import tarfile
from pathlib import Path

__all__ = ["archive", "pack", "unpack"]

REACHED = Path(__file__).parent / "corpus" / "reached"


def archive(reader: str) -> Path:
    return REACHED / f"{reader}.tar.xz"


def pack(reader: str, folder: Path) -> None:
    """The same bytes whenever the files are the same."""
    REACHED.mkdir(exist_ok=True)
    files = sorted({p.read_bytes() for p in folder.rglob("*") if p.is_file()}, key=lambda b: (len(b), b))
    with tarfile.open(archive(reader), "w:xz", preset=9) as made:
        for number, content in enumerate(files):
            member = tarfile.TarInfo(f"{number:04}")
            member.size = len(content)
            made.addfile(member, io.BytesIO(content))


def unpack(reader: str) -> list[bytes]:
    """All files of a reader; none where nothing was kept."""
    if not archive(reader).exists():
        return []
    with tarfile.open(archive(reader)) as found:
        return [file.read() for member in found if (file := found.extractfile(member)) is not None]


def main() -> None:
    for folder in sorted(p for p in Path(sys.argv[1]).iterdir() if p.is_dir()):
        pack(folder.name, folder)
        print(f"{archive(folder.name)}: {len(unpack(folder.name))} files")


if __name__ == "__main__":
    main()
