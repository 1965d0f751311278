"""The source package and the wheel of this checkout, the same bytes wherever and whenever they are built:

    python scripts/build_release.py --out dist      both; or --only sdist, --only wheel
    python scripts/build_release.py --twice         builds both twice, elsewhere and otherwise, and compares

What setuptools builds is written anew: members in the order of their names, of one time (SOURCE_DATE_EPOCH,
else that of the last commit), of nobody, with plain permissions. The bytes still hang on the versions of the
compiler, of setuptools and of zlib.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "src")
LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.egg-info", "_kernels.*", ".ptq4snn-*")
KINDS = ("sdist", "wheel")
BUILD = "import sys; import setuptools.build_meta as b; getattr(b, 'build_' + sys.argv[1])(sys.argv[2])"
FIRST = 315_532_800  # 1980: a zip knows no earlier time


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--twice", action="store_true", help="compare two builds, and keep neither")
    args = parser.parse_args()
    kinds = KINDS if args.only is None else (args.only,)
    if args.twice:
        return compared(kinds)
    args.out.mkdir(parents=True, exist_ok=True)
    for file in build(args.out, kinds):
        print(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file}")
    return 0


def epoch() -> int:
    """Seconds; what the environment says, else the last commit."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given is None:
        command = ["git", "log", "-1", "--format=%ct"]
        given = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    return max(FIRST, int(given or FIRST))


def build(out: Path, kinds: tuple[str, ...], home: Path | None = None) -> list[Path]:
    """Built in a copy of the sources, in `home` or a folder of its own; what was written."""
    made = []
    with tempfile.TemporaryDirectory(dir=home) as name:
        tree, raw = Path(name) / "tree", Path(name) / "raw"
        tree.mkdir()
        raw.mkdir()
        for source in SOURCES:
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, tree / source, ignore=LEFT_OUT)
            else:
                shutil.copy(ROOT / source, tree / source)
        environment = os.environ | {"SOURCE_DATE_EPOCH": str(epoch())}
        for kind in kinds:
            subprocess.run(
                [sys.executable, "-c", BUILD, kind, str(raw)], cwd=tree, env=environment, check=True,
                stdout=subprocess.DEVNULL,
            )  # fmt: skip
        for file in sorted(raw.iterdir()):
            made.append(out / file.name)
            again = plain_tar if file.name.endswith(".tar.gz") else plain_zip
            made[-1].write_bytes(again(file.read_bytes(), epoch()))
    return made


def plain_tar(data: bytes, when: int) -> bytes:
    """The same files, folders left out: whoever unpacks makes them."""
    inner = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(data)) as old,
        tarfile.open(fileobj=inner, mode="w", format=tarfile.USTAR_FORMAT) as new,
    ):
        for member in sorted((m for m in old.getmembers() if m.isfile()), key=lambda m: m.name):
            plain = tarfile.TarInfo(member.name)
            plain.size, plain.mtime, plain.mode = member.size, when, 0o644
            new.addfile(plain, old.extractfile(member))
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", filename="", mtime=when, compresslevel=9) as file:
        file.write(inner.getvalue())
    return out.getvalue()


def plain_zip(data: bytes, when: int) -> bytes:
    """The same files, what describes the wheel last, as its standard wants it."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for name in sorted(old.namelist(), key=lambda n: (".dist-info/" in n, n.endswith("/RECORD"), n)):
            plain = zipfile.ZipInfo(name, time.gmtime(when)[:6])
            library = name.endswith((".so", ".dylib", ".dll"))
            plain.external_attr = (0o100755 if library else 0o100644) << 16
            plain.create_system, plain.compress_type = 3, zipfile.ZIP_DEFLATED
            new.writestr(plain, old.read(name), compresslevel=9)
    return out.getvalue()


def compared(kinds: tuple[str, ...]) -> int:
    """Two builds: another folder, another umask, later, with other locale and time zone."""
    found = []
    with tempfile.TemporaryDirectory() as a, tempfile.TemporaryDirectory(prefix="a longer name ") as b:
        for place, umask, zone in ((a, 0o022, "UTC"), (b, 0o077, "Asia/Tokyo")):
            before = os.umask(umask)
            os.environ["TZ"] = zone
            try:
                out = Path(place) / "out"
                out.mkdir()
                found.append({f.name: f.read_bytes() for f in build(out, kinds, Path(place))})
            finally:
                os.umask(before)
    same = found[0] == found[1]
    for name, data in found[0].items():
        alike = found[1].get(name) == data
        print(f"{name}: {len(data):,} bytes, {'the same twice' if alike else 'NOT the same twice'}")
    return 0 if same and found[0] else 1


if __name__ == "__main__":
    sys.exit(main())
