"""Parts of the exported C on their own: weights in planes, their files, and floats without floats."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from export.cases import random_case
from export.harness import SANITIZED, STRICT, run
from hypothesis import given
from hypothesis import strategies as st
from runtime.programs import random_model

from ptq4snn.export.c99.export import Choices, generate
from ptq4snn.export.c99.files import _intel_hex
from ptq4snn.export.c99.helpers import Helpers
from ptq4snn.export.c99.weights import PLANES, _planes, padded
from ptq4snn.network.program import TimeSum
from ptq4snn.runtime.parameters import Model


@given(st.integers(2, 8), st.integers(1, 70), st.integers(0, 2**32 - 1))
def test_planes_hold_every_field(bits: int, count: int, seed: int) -> None:
    fields = padded(count, bits)
    rows = np.random.default_rng(seed).integers(0, 2**bits, (3, fields)).astype(np.uint32)
    words = _planes(rows, bits)
    assert words.shape == (3, fields * bits // 32)  # not one bit more
    for i in range(fields):
        lane, byte, below, begin, found = i // 4, i % 4, 0, 0, np.zeros(3, np.uint32)
        for plane in PLANES[bits]:
            held = 8 // plane
            word = words[:, begin + lane // held]
            part = (word >> np.uint32(8 * byte + plane * (lane % held))) & np.uint32(2**plane - 1)
            found |= part << np.uint32(below)
            below, begin = below + plane, begin + fields * plane // 32
        assert np.array_equal(found, rows[:, i])


MAIN = """
#include <stdint.h>
#include <stdio.h>
%s
int main(void)
{
  int64_t x[4];
  while (fread(x, 8, 4, stdin) == 4) {
    const int64_t y = h_steps(x[0], x[1], (uint32_t)x[2], (uint32_t)x[3]);
    fwrite(&y, 8, 1, stdout);
  }
  return 0;
}
"""


def test_another_number_of_steps_rounds_as_doubles_do(tmp_path: Path) -> None:
    """rint(x (T / T') + b): quotient, product and sum of float64, without one."""
    if shutil.which("gcc") is None:
        pytest.skip("there is no gcc here")
    helpers = Helpers("h")
    helpers.use("steps")
    (tmp_path / "main.c").write_text(MAIN % "\n".join(helpers.lines(["h_steps"])))
    run(
        ["gcc", *STRICT, "-O1", "-fsanitize=undefined", "-fno-sanitize-recover=all", "main.c", "-o", "main"],
        tmp_path,
    )
    rng, count = np.random.default_rng(5), 20_000
    x = rng.integers(-(2**52), 2**52, count) >> rng.integers(0, 52, count)
    bias = rng.integers(-(2**31), 2**31, count) >> rng.integers(0, 32, count)
    T = rng.integers(1, 2**16, count) >> rng.integers(0, 16, count)
    steps = rng.integers(1, 2**32, count) >> rng.integers(0, 32, count)
    T, steps = np.maximum(T, 1), np.maximum(steps, 1)
    steps[::3] = T[::3] * 2  # halves
    y = x * (T / steps) + bias
    fits = np.abs(y) < 2**52  # as the bounds prove
    given_, wanted = np.stack([x, bias, T, steps], 1)[fits], np.rint(y[fits]).astype(np.int64)
    done = subprocess.run([tmp_path / "main"], input=given_.tobytes(), capture_output=True, check=True)
    found = np.frombuffer(done.stdout, np.int64)
    assert len(found) > 10_000 and np.array_equal(found, wanted)


def test_weights_beside_the_source(tmp_path: Path) -> None:
    """The same words in all forms; the source then names them from outside."""
    model = random_model(5)
    files = {form: generate(model, "net", Choices(weights=form)).files for form in ("c", "bin", "mem", "hex")}
    raw = files["bin"]["net.bin"]
    assert len(raw) == 4 * files["c"]["net.c"].decode().split("weights of", 1)[1].split("static const int")[
        0
    ].count("0x")
    lines = files["mem"]["net.mem"].decode().splitlines()
    words = [int(x, 16) for x in lines if x[0] not in "/@"]
    assert np.array_equal(np.array(words, "<u4"), np.frombuffer(raw, "<u4"))
    assert files["hex"]["net.hex"] == _intel_hex(raw)
    assert b"extern const uint32_t net_weights[];" in files["bin"]["net.c"]
    assert files["bin"]["net.c"] == files["mem"]["net.c"]


def test_intel_hex() -> None:
    text = _intel_hex(bytes(range(16)) * 4097).decode().splitlines()
    assert text[0] == ":020000040000FA" and text[1] == ":10000000000102030405060708090A0B0C0D0E0F78"
    assert text[4097] == ":020000040001F9" and text[-1] == ":00000001FF"
    assert all(sum(bytes.fromhex(line[1:])) % 256 == 0 for line in text)


def test_a_section_of_the_linker(tmp_path: Path) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("there is no gcc here")
    source = random_case(0, section=".flash2").source
    for file, content in source.files.items():
        (tmp_path / file).write_bytes(content)
    run(["gcc", *STRICT, "-c", "m0.c"], tmp_path)
    assert ".flash2" in run(["objdump", "-h", "m0.o"], tmp_path)


COUNTS = """
#include "net.h"
int main(void)
{
  static net_state s;
  static net_arena a;
  static net_output out[4];
  static uint8_t levels[4 * NET_LEVELS];
  net_reset(&s);
  for (int t = 0; t < 3; t++) {
    if (net_step(&s, &a, levels, out) != (t == 2)) { return 1; }
  }
  if (net_run(&s, &a, levels, 3, out) != 1 || net_run(&s, &a, levels, 0, out) != 1) { return 2; }
  return net_run(&s, &a, levels, 2, out);
}
"""


def summing() -> Model:
    """A network with a sum over time."""
    models = (random_model(seed, operations=2, work=500) for seed in range(50))
    return next(m for m in models if any(isinstance(op, TimeSum) for op in m.program.operations))


def test_a_sequence_ends_where_it_was_said_to(tmp_path: Path) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("there is no gcc here")
    for file, content in generate(summing(), "net", Choices(steps=2)).files.items():
        (tmp_path / file).write_bytes(content)
    (tmp_path / "main.c").write_text(COUNTS)
    run(["gcc", *STRICT, *SANITIZED, "main.c", "net.c", "-o", "main"], tmp_path)
    run(["./main"], tmp_path)


def test_a_shorter_sequence_has_narrower_sums() -> None:
    model = summing()
    long, short = (generate(model, "net", Choices(steps=n)).figures for n in (65_536, 1))
    assert short.state < long.state and len(short.wide) <= len(long.wide)
