"""The plan's layout, enumerations and levels come from one table; no source lists them again."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from runtime.programs import random_model

from ptq4snn.runtime.native import build, header, layout, planner

NAMES = {"Header": layout.HEADER, "ValueField": layout.VALUE_FIELDS, "OpField": layout.OP_FIELDS}


def enumerators(name: str) -> list[str]:
    """Of an enumeration of the committed header."""
    text = re.sub(r"//.*", "", header.HEADER_FILE.read_text())
    found = re.search(rf"enum {name} : int32_t {{(.*?)}};", text, re.DOTALL)
    assert found, name
    return [member.strip() for member in found[1].split(",") if member.strip()]


def test_the_committed_header_is_what_the_table_says() -> None:
    again = "layout.h is of another table: run python -m ptq4snn.runtime.native.header"
    assert header.HEADER_FILE.read_text() == header.header(), again


def test_another_table_is_another_header(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "OP_FIELDS", (*layout.OP_FIELDS[1:], layout.OP_FIELDS[0]))
    assert header.HEADER_FILE.read_text() != header.header()
    monkeypatch.undo()
    monkeypatch.setitem(build.LEVELS, "avx2", ("avx2",))
    assert header.HEADER_FILE.read_text() != header.header()


@pytest.mark.parametrize("name", NAMES)
def test_fields_stand_in_the_order_in_which_they_are_written(name: str) -> None:
    *fields, count = [member[1:] for member in enumerators(name)]
    assert count == "Fields"
    assert [field.lower() for field in fields] == [field.replace("_", "") for field in NAMES[name]]


@pytest.mark.parametrize("members", [layout.Kind, layout.Format])
def test_members_have_their_numbers(members: type[layout.Kind] | type[layout.Format]) -> None:
    pairs = [member.removeprefix("k").split(" = ") for member in enumerators(members.__name__)]
    numbers = {name.lower(): int(number) for name, number in pairs if name != "Kinds"}
    assert numbers == {m.name.replace("_", "").lower(): m.value for m in members}


def test_a_block_is_read_back_by_the_header() -> None:
    """Sizes of the tables and the kinds that stand in them, found by the names of the header alone."""
    plan = planner.plan_model(random_model(3, 8), [])
    numbers = plan.block[: plan.block.nbytes // 8 * 8].view("<i8")
    head = dict(zip(enumerators("Header"), numbers.tolist(), strict=False))
    assert head["hMagic"] == layout.MAGIC and head["hSize"] == plan.block.nbytes
    assert head["hOps"] == len(plan.operations)
    at = len(enumerators("Header")) - 1
    for count, table in (("hValues", "ValueField"), ("hArrays", "ArrayField")):
        at += head[count] * (len(enumerators(table)) - 1)
    width = len(enumerators("OpField")) - 1
    kinds = numbers[at : at + width * head["hOps"]].reshape(-1, width)[
        :, enumerators("OpField").index("oKind")
    ]
    assert [layout.Kind(int(k)).name.lower() for k in kinds] == [kind for _, kind in plan.operations]
    assert np.all(kinds < len(layout.Kind))


def test_no_source_lists_what_the_table_lists() -> None:
    """Neither the levels nor the enumerations are written a second time."""
    shared = ("Format", "Kind", "How", "Header", "ValueField", "ArrayField", "ArrayType", "OpField")
    for path in sorted(p for p in build.SOURCES.rglob("*") if p.suffix in (".h", ".cpp")):
        if path == header.HEADER_FILE:
            continue
        text = path.read_text()
        assert not re.search(rf"enum (class )?({'|'.join(shared)})\b", text), path.name
        assert "__builtin_cpu_supports" not in text and "PTQ_HAVE_" not in text, path.name


def test_the_flags_of_a_level_are_those_that_are_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert build.main(["--flags", "avx2", "--out", str(Path("nowhere") / "at.all")]) == 0
    flags = capsys.readouterr().out.split()
    asked = re.search(r"#define PTQ_LEVEL_AVX2\(f\) (.*?)\n#else", header.HEADER_FILE.read_text(), re.DOTALL)
    assert asked
    features = re.findall(r'supports\("(\w+)"\)', asked[1])
    assert features and [f for f in flags if f.startswith("-m")] == [f"-m{feature}" for feature in features]
