"""The checker of native plans and the kernels behind it under libFuzzer, with sanitizers:

    python tests/fuzz/native_fuzzer.py --seconds 600 [--keep FOLDER] [--out PROGRAM]

Needs clang with its run-time libraries (Debian: clang-14 and libclang-rt-14-dev).
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from fuzz.reached import unpack
from runtime.native_tools import kept_values
from runtime.programs import random_model

from ptq4snn.runtime.native import available, build
from ptq4snn.runtime.native.planner import plan_model

__all__ = ["build_fuzzer", "find_clang", "fuzz", "write_seeds"]

HARNESS = Path(__file__).parent / "fuzz_plan.cpp"
CORPUS = Path(__file__).parent / "corpus" / "plans"
SANITIZE = (
    "-O1", "-g1", "-fno-omit-frame-pointer", "-fsanitize=fuzzer,address,undefined",
    "-fno-sanitize-recover=undefined",
)  # fmt: skip
SECONDS, MEGABYTES, LONGEST = 30, 2048, 2**17  # of a case; of the process; bytes of a plan
SEEDS, SMALL = range(40), 2**14  # random programs, and bytes of those that are taken


def find_clang() -> str | None:
    """The newest clang++ that has libFuzzer."""
    names = ["clang++", *(f"clang++-{n}" for n in range(22, 11, -1))]
    for name in filter(shutil.which, names):
        probe = 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }'
        with tempfile.TemporaryDirectory() as folder:
            command = [name, "-fsanitize=fuzzer,address", "-x", "c++", "-", "-o", f"{folder}/probe"]
            if (
                subprocess.run(command, input=probe, text=True, capture_output=True, check=False).returncode
                == 0
            ):
                return name
    return None


def build_fuzzer(clang: str, out: Path) -> None:
    """Compile and link; levels as far as this machine runs them, the plainest and the best."""
    levels = tuple(dict.fromkeys(("scalar", *available()[-1:])))
    common = [
        clang,
        *build.FLAGS,
        "-Wno-unknown-pragmas",
        *SANITIZE,
        f"-I{build.SOURCES}",
        '-DPTQ_HASH="fuzz"',
    ]
    with tempfile.TemporaryDirectory() as folder:
        wanted: list[tuple[Path, str, tuple[str, ...]]] = [(build.SOURCES / s, "", ()) for s in build.ONCE]
        wanted += [(build.SOURCES / s, x, build.level_flags(x)) for s in build.PER_LEVEL for x in levels]
        have = tuple(f"-DPTQ_HAVE_{x.upper()}" for x in levels)
        wanted += [(build.SOURCES / s, "", have) for s in build.DISPATCH]
        objects = []
        for source, level, flags in [*wanted, (HARNESS, "", ())]:
            objects.append(f"{folder}/{source.stem}_{level}.o")
            subprocess.run([*common, *flags, "-c", str(source), "-o", objects[-1]], check=True)
        subprocess.run([*common, *objects, "-o", str(out)], check=True)


def write_seeds(folder: Path) -> None:
    """Plans of random programs, in ways to run them; and those that earlier runs kept."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, content in enumerate(unpack("plan")):
        (folder / f"reached-{number}").write_bytes(content)
    for seed in SEEDS:
        model = random_model(seed, 4)
        block = plan_model(model, kept_values(model)).block.tobytes()
        if len(block) <= SMALL:
            (folder / f"plan-{seed}").write_bytes(bytes([32 + seed % 16 + 64 * (seed % 3 == 0)]) + block)


def fuzz(program: Path, folders: list[Path], seconds: int) -> subprocess.CompletedProcess[str]:
    """What is new goes into the first of the folders."""
    limits = (f"-timeout={SECONDS}", f"-rss_limit_mb={MEGABYTES}", f"-max_total_time={seconds}")
    options = (f"-max_len={LONGEST}", "-len_control=0", f"-artifact_prefix={folders[0].parent}/plan-")
    command = [str(program), *limits, *options, "-print_final_stats=1", *map(str, folders)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--keep", type=Path, help="folder of the plans that reached something new")
    parser.add_argument("--out", type=Path, help="the fuzzer, made where it is not there")
    args = parser.parse_args()
    clang = find_clang()
    if clang is None:
        print("there is no clang++ with libFuzzer", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as name:
        program, kept = args.out or Path(name) / "fuzz_plan", args.keep or Path(name) / "kept"
        kept.mkdir(parents=True, exist_ok=True)
        if not program.exists():
            build_fuzzer(clang, program)
        write_seeds(Path(name) / "seeds")
        done = fuzz(program, [kept, CORPUS, Path(name) / "seeds"], args.seconds)
    print(done.stderr[-4000:])
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
