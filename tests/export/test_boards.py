"""The same on microcontrollers: Cortex-M0+, M4 and M7, and 32-bit RISC-V, as qemu emulates them."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from export.cases import random_case
from export.harness import build, compare, results

HERE = Path(__file__).parents[2] / "examples" / "microcontroller" / "board"


@dataclass(frozen=True)
class Board:
    compiler: str
    flags: tuple[str, ...]
    start: str
    emulator: tuple[str, ...]
    seeds: range


def cortex(cpu: str, machine: str, seeds: range, *flags: str) -> Board:
    link = (
        "-nostartfiles",
        "-specs=nosys.specs",
        f"-T{HERE / 'mps2.ld'}",
        f"-I{HERE}",
        "-Wl,--no-warn-rwx-segments",
    )
    emulator = (
        "qemu-system-arm",
        "-machine",
        machine,
        "-display",
        "none",
        "-monitor",
        "none",
        "-serial",
        "none",
        "-semihosting-config",
        "enable=on,target=native",
        "-kernel",
    )
    return Board(
        "arm-none-eabi-gcc", (f"-mcpu={cpu}", "-mthumb", "-O2", *flags, *link), "cortex_m.c", emulator, seeds
    )


BOARDS = {
    "cortex-m0plus": cortex("cortex-m0plus", "mps2-an385", range(22, 26)),
    "cortex-m4": cortex("cortex-m4", "mps2-an386", range(26, 30), "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"),
    "cortex-m7": cortex("cortex-m7", "mps2-an500", range(30, 34), "-mfloat-abi=hard", "-mfpu=fpv5-d16"),
    "riscv": Board(
        "riscv64-unknown-elf-gcc",
        (
            "-march=rv32imac", "-mabi=ilp32", "-O2", "-specs=picolibc.specs", "-nostartfiles",
            f"-T{HERE / 'riscv.ld'}", f"-I{HERE}",
        ),
        "riscv.c",
        (
            "qemu-system-riscv32", "-machine", "virt", "-bios", "none", "-display", "none",
            "-monitor", "none", "-serial", "none", "-semihosting-config", "enable=on,target=native",
            "-kernel",
        ),
        range(34, 38),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BOARDS)
def test_random_programs_on(name: str, tmp_path: Path) -> None:
    board = BOARDS[name]
    for tool in (board.compiler, board.emulator[0]):
        if shutil.which(tool) is None:
            pytest.skip(f"there is no {tool} here")
    cases = [random_case(seed) for seed in board.seeds]
    program = build(
        cases, tmp_path, board.compiler, board.flags, [HERE / board.start, HERE / "semihosting.c"]
    )
    compare(cases, results(program, cases, board.emulator))
