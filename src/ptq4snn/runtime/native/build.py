"""Builds the kernels: csrc/ to one shared library, for every instruction set level, with any C++17 compiler.

    python -m ptq4snn.runtime.native.build              in place, unless it is there and of these sources
    python -m ptq4snn.runtime.native.build --force --sanitize --out FILE
    python -m ptq4snn.runtime.native.build --compiler aarch64-linux-gnu-g++ --runner --out FILE

Only the standard library is used: `setup.py` runs this file before anything is installed.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "LIBRARY", "SOURCES", "BuildError", "Options", "build", "find_compiler", "level_flags", "main",
    "source_hash",
]  # fmt: skip

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "csrc"
LIBRARY = HERE / ("_kernels.dylib" if sys.platform == "darwin" else "_kernels.so")

FLAGS = (
    "-std=c++17", "-ffp-contract=off", "-fno-strict-aliasing", "-fwrapv", "-fPIC",
    "-fvisibility=hidden", "-pthread", "-Wall", "-Wextra", "-Wno-psabi",
)  # fmt: skip
SANITIZE = (
    "-O1", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined",
    "-fno-omit-frame-pointer",
)  # fmt: skip
# Instruction set levels, the plainest first, and what each needs, as -m... and __builtin_cpu_supports name it
LEVELS: dict[str, tuple[str, ...]] = {
    "scalar": (),
    "avx2": ("avx2", "fma", "bmi2", "popcnt"),
    "avx512bw": ("avx512f", "avx512bw", "avx512vl", "avx512dq", "fma", "bmi2", "popcnt"),
    "avx512vnni": ("avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512vnni", "fma", "bmi2", "popcnt"),
    "avx512": (
        "avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512vbmi", "avx512vbmi2", "avx512vnni",
        "fma", "bmi2", "popcnt",
    ),
}  # fmt: skip
PER_LEVEL = ("hot/kernels.cpp", "ops.cpp")
ONCE = (
    "api.cpp", "check.cpp", "engine.cpp", "plan.cpp", "sharing.cpp", "tables.cpp", "tap_runs.cpp",
    "threads.cpp", "weights.cpp", "hot/pack.cpp",
)  # fmt: skip
DISPATCH = ("levels.cpp", "hot/dispatch.cpp")  # they must know which levels there are
RUNNER = "runner.cpp"
# nothing of when, where and from which build: the same sources give the same bytes
SHARED = ["-shared"] if sys.platform == "darwin" else ["-shared", "-Wl,--no-undefined", "-Wl,--build-id=none"]
SECONDS = 600  # no compiler takes so long


class BuildError(Exception):
    """The compiler is missing or refuses."""


@dataclass(frozen=True)
class Options:
    """`runner`: a program that runs plans from files in place of a library."""

    compiler: tuple[str, ...]
    sanitize: bool = False
    runner: bool = False
    levels: tuple[str, ...] = tuple(LEVELS)

    @property
    def flags(self) -> tuple[str, ...]:
        """A program that only checks is not worth a long compilation."""
        return SANITIZE if self.sanitize else ("-O2",) if self.runner else ("-O3",)


def level_flags(level: str) -> tuple[str, ...]:
    """Of the compiler, for the sources that are compiled once for each level."""
    return (*(f"-m{feature}" for feature in LEVELS[level]), f"-DPTQ_ISA={level}", f'-DPTQ_NAME="{level}"')


def source_hash() -> str:
    """Of every source file: a library of other sources is not used."""
    digest = hashlib.sha256()
    for path in sorted(p for p in SOURCES.rglob("*") if p.suffix in (".h", ".cpp")):
        digest.update(path.relative_to(SOURCES).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def find_compiler() -> tuple[str, ...]:
    """$CXX, g++, clang++ or c++."""
    given = os.environ.get("CXX")
    for command in [given] if given else ["g++", "clang++", "c++"]:
        words = tuple(shlex.split(command or ""))
        if words and shutil.which(words[0]):
            return words
    raise BuildError("there is no C++ compiler (g++, clang++, or the one named by CXX)")


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as why:
        raise BuildError(f"{command[0]} cannot be run: {why}") from why
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line] or [
            f"exit status {done.returncode}"
        ]
        raise BuildError(f"{Path(command[0]).name}: {lines[0]}")


def _made(command: Sequence[str], out: Path) -> Path:
    _run(command)
    return out


def _machine(compiler: tuple[str, ...]) -> str:
    """What the compiler builds for: a cross compiler has another machine than this one."""
    try:
        done = subprocess.run(
            [*compiler, "-dumpmachine"], capture_output=True, text=True, timeout=60, check=False
        )
        return done.stdout.strip() or platform.machine()
    except (OSError, subprocess.TimeoutExpired) as why:
        raise BuildError(f"{compiler[0]} cannot be run: {why}") from why


@dataclass(frozen=True)
class _Work:
    """One build in a folder of its own."""

    options: Options
    folder: Path
    hash: str
    pool: ThreadPoolExecutor

    def compile(self, source: str, level: str = "", *extra: str) -> Future[Path]:
        out = self.folder / f"{Path(source).stem}_{level}.o"
        if level:
            extra = (*level_flags(level), *extra)
        where = (f"-ffile-prefix-map={SOURCES}=csrc", f"-ffile-prefix-map={self.folder}=.")
        extra = (*self.options.flags, *where, f'-DPTQ_HASH="{self.hash}"', *extra)
        command = [*self.options.compiler, *FLAGS, *extra, "-c", str(SOURCES / source), "-o", str(out)]
        return self.pool.submit(_made, command, out)

    def levels(self) -> list[str]:
        x86 = _machine(self.options.compiler).startswith(("x86_64", "amd64"))
        return [level for level in self.options.levels if level == "scalar" or x86]

    def link(self, objects: list[Path], out: Path) -> None:
        kind = [] if self.options.runner else SHARED
        command = [*self.options.compiler, *kind, *self.options.flags, "-pthread"]
        _run([*command, *map(str, objects), "-o", str(out)])


def build(out: Path, options: Options) -> list[str]:
    """Compile and link to `out`, all at once; names of the levels in it.

    A level that the compiler does not know is left out.
    """
    with (
        tempfile.TemporaryDirectory(prefix=".ptq4snn-", dir=out.parent) as name,
        ThreadPoolExecutor(os.cpu_count() or 1) as pool,
    ):
        work = _Work(options, Path(name), source_hash(), pool)
        tried = {level: [work.compile(s, level) for s in PER_LEVEL] for level in work.levels()}
        ones = [work.compile(s) for s in (*ONCE, *([RUNNER] if options.runner else []))]
        there = [x for x, jobs in tried.items() if x == "scalar" or not any(j.exception() for j in jobs)]
        have = [f"-DPTQ_HAVE_{level.upper()}" for level in there]
        ones += [work.compile(s, "", *have) for s in DISPATCH]
        objects = [job.result() for job in (*ones, *(j for level in there for j in tried[level]))]
        draft = Path(name) / out.name
        work.link(objects, draft)
        if source_hash() != work.hash:
            raise BuildError("the sources changed while they were compiled")
        draft.replace(out)
    return there


def is_fresh(library: Path) -> bool:
    """Whether a library carries the hash of these sources; nothing of it is run."""
    return library.is_file() and source_hash().encode() in library.read_bytes()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m ptq4snn.runtime.native.build", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--out", type=Path, default=LIBRARY, help="library or program to write")
    parser.add_argument("--compiler", help="command of the compiler, perhaps a cross compiler")
    parser.add_argument("--levels", nargs="+", choices=list(LEVELS), default=list(LEVELS))
    parser.add_argument("--sanitize", action="store_true", help="address and undefined-behaviour sanitizers")
    parser.add_argument("--runner", action="store_true", help="a program that runs plans from files")
    parser.add_argument("--flags", choices=list(LEVELS), help="only print the compiler's flags of a level")
    parser.add_argument("--force", action="store_true", help="build even where a fresh library is there")
    args = parser.parse_args(arguments)
    if args.flags:
        sys.stdout.write(" ".join(level_flags(args.flags)) + "\n")
        return 0
    if not args.force and is_fresh(args.out):
        return 0
    try:
        compiler = tuple(shlex.split(args.compiler)) if args.compiler else find_compiler()
        levels = build(args.out, Options(compiler, args.sanitize, args.runner, tuple(args.levels)))
    except BuildError as why:
        sys.stderr.write(f"the kernels were not built: {why}; NumPy is used in their place\n")
        return 1
    sys.stderr.write(f"built {args.out.name} with {', '.join(levels)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
