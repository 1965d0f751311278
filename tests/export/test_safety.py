"""Nothing of a bundle becomes code but numbers; what cannot be written is one sentence."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from runtime.bundles import planned_models, write_model
from runtime.programs import random_model

from ptq4snn.cli.main import main
from ptq4snn.errors import PTQ4SNNError
from ptq4snn.export.c99.export import Choices, generate
from ptq4snn.export.c99.names import comment, identifier, name_of
from ptq4snn.network import program as ops
from ptq4snn.runtime.loading import build

Cli = Callable[..., tuple[int, str, str]]
EVIL = (
    "*/ int main(void) { abort(); } /*", "a\nb", "a\\", "??/\n#error", '"; system("x"); "', "\u202ex", "/*",
    "x" * 500, "%s%n", "#include <x>", "//", "\x00",
)  # fmt: skip


def renamed(model: Any, change: Callable[[str], str]) -> Any:
    """The same model, every name changed."""
    program = model.program
    operations = tuple(replace(op, name=change(op.name)) for op in program.operations)
    outputs = tuple(o if o.name is None else replace(o, name=change(o.name)) for o in program.outputs)
    tables = [{change(k): v for k, v in t.items()} for t in (model.projections, model.neurons, model.mirrors)]
    return build(replace(program, operations=operations, outputs=outputs), *tables)


@pytest.mark.parametrize("text", EVIL)
def test_a_comment_stays_one(text: str) -> None:
    plain = comment(text)
    assert len(plain) <= 60 and plain.isascii() and plain.isprintable()
    assert not re.search(r'[*/\\?"\'#%{};]', plain)


@pytest.mark.parametrize("text", EVIL)
def test_names_of_a_bundle_change_nothing_but_comments(text: str) -> None:
    model = random_model(3, operations=5, work=1500)
    wanted = generate(model, "net").files
    found = generate(renamed(model, lambda name: f"{name}{text}"), "net").files

    def code(content: bytes) -> str:
        return re.sub(r"/\*.*?\*/", "", content.decode("ascii"), flags=re.S)

    assert {file: code(content) for file, content in found.items()} == {
        file: code(content) for file, content in wanted.items()
    }


@pytest.mark.parametrize("name", ["", "9x", "a b", "int", "a-b", "x" * 41, "a;b", "ä", None, 3])
def test_a_name_that_is_none_in_c(name: Any) -> None:
    with pytest.raises(PTQ4SNNError, match="is no name in C"):
        identifier(name)


@pytest.mark.parametrize("stem", ["model", "my model.v2", "9", "", "default", "ä", "int"])
def test_a_file_gives_a_name(stem: str) -> None:
    assert identifier(name_of(stem)) == name_of(stem)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"section": '.x"))) int y'}, "is no section"),
        ({"weights": "exe"}, "weights is 'exe': choose one of c, bin, mem, hex"),
        ({"path": "fast"}, "path is 'fast': choose one of event, dense, auto"),
        ({"path": "auto"}, "give samples or densities"),
        ({"path": "auto", "densities": {"project1": 2}}, "give a number from 0 to 1"),
        ({"steps": 0}, "give a whole number from 1"),
        ({"steps": 2**63}, "give a whole number from 1"),
        ({"steps": True}, "give a whole number from 1"),
    ],
)
def test_an_option_that_cannot_be(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(PTQ4SNNError, match=re.escape(sentence)):
        generate(random_model(0), "net", Choices(**options))


def test_a_network_that_looks_at_the_whole_sequence_is_refused() -> None:
    model = random_model(0, operations=0)
    program = model.program
    spikes = next(op.output for op in program.operations if isinstance(op, ops.Neuron))
    value, v = program.values[spikes], len(program.values)
    more = (ops.TimeSum(v, (spikes,), "sum"), ops.Combine(v + 1, (v, spikes), "both", (1, 1), 0))
    values = (*program.values, replace(value, time=False), value)
    whole = replace(program, values=values, operations=(*program.operations, *more))
    with pytest.raises(PTQ4SNNError, match="looks at the whole sequence at every step"):
        generate(build(whole, model.projections, model.neurons, model.mirrors), "net")


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """Exit code, stdout, stderr of the command line."""

    def run(*argv: str) -> tuple[int, str, str]:
        code = main(list(argv))
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundle") / "tiny net.ptq"
    write_model(planned_models(1)[0], path)
    return path


def test_the_command_writes_and_tells(bundle: Path, cli: Cli, tmp_path: Path) -> None:
    code, text, _ = cli("export", str(bundle), "--to", "c", "--out", str(tmp_path / "new" / "c"))
    assert code == 0
    assert {p.name for p in (tmp_path / "new" / "c").iterdir()} == {"tiny_net.c", "tiny_net.h"}
    header = (tmp_path / "new" / "c" / "tiny_net.h").read_text()
    for line in text.splitlines()[1:]:
        assert line in header
    for word in ("flash", "RAM", "step", "64-bit"):
        assert word in text


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--name", "a b"], "is no name in C"),
        (["--section", "x y"], "is no section of a linker"),
        (["--path", "auto"], "give samples or densities"),
        (["--steps", "99999999999999999999"], "give a whole number from 1"),
    ],
)
def test_the_command_refuses_in_one_sentence(
    bundle: Path, cli: Cli, tmp_path: Path, more: list[str], sentence: str
) -> None:
    code, out, error = cli("export", str(bundle), "--to", "c", "--out", str(tmp_path / "c"), *more)
    assert (code, out) == (2, "") and sentence in error and error.count("\n") == 1
    assert not (tmp_path / "c").exists(), "nothing half-written"


def test_a_file_in_the_way(bundle: Path, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "c").write_text("mine")
    code, _, error = cli("export", str(bundle), "--to", "c", "--out", str(tmp_path / "c"))
    assert code == 2 and "is a file: name a folder" in error
    (tmp_path / "d" / "net.c").mkdir(parents=True)
    code, _, error = cli("export", str(bundle), "--to", "c", "--out", str(tmp_path / "d"), "--name", "net")
    assert code == 2 and "is a folder: name a file" in error
    assert [p.name for p in (tmp_path / "d").iterdir()] == ["net.c"]


def test_the_path_follows_the_densities() -> None:
    model = random_model(1, operations=6)
    names = [op.name for op in model.program.operations if isinstance(op, ops.Project)]
    densities = {name: i % 2 for i, name in enumerate(names)}
    paths = generate(model, "net", Choices(path="auto", densities=densities)).paths
    assert paths == {name: "dense" if d else "event" for name, d in densities.items()}


def test_everything_is_integers_without_allocation() -> None:
    text = generate(random_model(2), "net").files["net.c"].decode()
    body = text[: text.index("#ifdef NET_FLOAT")]
    assert not re.search(
        r"\b(float|double|malloc|calloc|free|printf)\b", re.sub(r"/\*.*?\*/", "", body, flags=re.S)
    )
    assert set(re.findall(r"#include (\S+)", text)) == {'"net.h"', "<string.h>"}
