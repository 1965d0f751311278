"""Bundles: what is written is read, the same content gives the same bytes, every damage is refused."""

from __future__ import annotations

import ast
import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import load_file

from ptq4snn.bundle import format as bundle_format
from ptq4snn.bundle.format import FORMAT_VERSION, IntegerArray, read_bundle, write_bundle
from ptq4snn.errors import BundleError
from ptq4snn.files import write_whole

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "format.md"
PLAN: dict[str, Any] = {
    "neurons": [{"k": [-3, 0], "theta": 1.0}],
    "model": 'naïve "☃" \\ 😀',
    "none": None,
    "x": True,
}


def sample() -> tuple[dict[str, IntegerArray], dict[str, np.ndarray]]:
    random = np.random.default_rng(0)
    integers = {
        f"w{bits}": IntegerArray(random.integers(-(1 << (bits - 1)), 1 << (bits - 1), (3, 5)), bits)
        for bits in (2, 3, 4, 8, 16, 32)
    }
    integers |= {"empty": IntegerArray(np.zeros((0, 4), int), 4), "scalar": IntegerArray(np.array(-5), 5)}
    floats: dict[str, np.ndarray] = {
        "s": random.random(3).astype(np.float32),
        "unit": random.random((2, 1)),
        "naïve": np.array(np.nan),
        "none": np.zeros((2, 0), np.float32),
    }
    return integers, floats


def write_sample(path: Path) -> Path:
    write_bundle(path, PLAN, *sample())
    return path


def code_block(language: str) -> str:
    blocks = re.findall(rf"```{language}\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 1
    return str(blocks[0])


def test_what_is_written_is_read(tmp_path: Path) -> None:
    bundle = read_bundle(str(write_sample(tmp_path / "model.ptq")))
    integers, floats = sample()
    assert bundle.plan == PLAN
    assert bundle.integers.keys() == integers.keys()
    for name, array in integers.items():
        assert bundle.integers[name].bits == array.bits
        np.testing.assert_array_equal(bundle.integers[name].values, array.values, strict=False)
        assert bundle.integers[name].values.shape == array.values.shape
    assert bundle.floats.keys() == floats.keys()
    for name, values in floats.items():
        np.testing.assert_array_equal(bundle.floats[name], values, strict=True)


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).filter(
    lambda n: n != "__metadata__"
)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | FINITE | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(st.text(), VALUES, max_size=4), st.dictionaries(NAMES, st.binary(max_size=9), max_size=4)
)
def test_any_plan_and_any_names_survive(
    tmp_path_factory: pytest.TempPathFactory, plan: dict[str, Any], content: dict[str, bytes]
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.ptq"
    write_bundle(
        path, plan, {name: IntegerArray(np.frombuffer(c, np.int8), 8) for name, c in content.items()}, {}
    )
    bundle = read_bundle(path)
    assert bundle.plan == plan
    assert {name: array.values.tobytes() for name, array in bundle.integers.items()} == content
    assert load_file(path).keys() == content.keys()


def test_safetensors_reads_it_and_four_bits_are_four_bits(tmp_path: Path) -> None:
    path = tmp_path / "model.ptq"
    write_bundle(path, {}, {"w": IntegerArray(np.zeros((100, 100), np.int8), 4)}, {})
    assert path.stat().st_size < 5000 + 512
    with safe_open(path, framework="np") as file:
        assert file.metadata()["format"] == "ptq4snn"
        assert file.metadata()["version"] == FORMAT_VERSION
        assert file.get_tensor("w").nbytes == 5000


def test_the_same_content_gives_the_same_bytes_in_any_order_and_process(tmp_path: Path) -> None:
    here = write_sample(tmp_path / "a").read_bytes()
    plan, integers, floats = (dict(reversed(m.items())) for m in cast("Any", (PLAN, *sample())))
    write_bundle(tmp_path / "b", MappingProxyType(plan), integers, floats)
    assert (tmp_path / "b").read_bytes() == here
    code = (
        "import sys; sys.path[:0] = sys.argv[2:]; import test_format; test_format.write_sample(sys.argv[1])"
    )
    for seed in ("1", "2"):
        paths = [str(tmp_path / seed), str(ROOT / "src"), str(Path(__file__).parent)]
        subprocess.run(
            [sys.executable, "-c", code, *paths], check=True, env={**os.environ, "PYTHONHASHSEED": seed}
        )
        assert (tmp_path / seed).read_bytes() == here


def test_types_and_byte_orders_that_mean_the_same_give_the_same_bytes(tmp_path: Path) -> None:
    for name, order in (("a", "<"), ("b", ">")):
        w = IntegerArray(np.array([1, -2], f"{order}i4"), np.int64(16))  # type: ignore[arg-type]
        write_bundle(tmp_path / name, {"t": (1, 2)}, {"w": w}, {"s": np.array([0.5], f"{order}f8")})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    bundle = read_bundle(tmp_path / "b")
    assert (bundle.plan, bundle.floats["s"].dtype) == ({"t": [1, 2]}, np.dtype(np.float64))


def test_the_document_lists_the_bytes_of_the_tiny_bundle(tmp_path: Path) -> None:
    path = tmp_path / "model.ptq"
    w = IntegerArray(np.array([-8, 7, 0, -1, 3]), 4)
    write_bundle(path, {"note": "tiny"}, {"w": w}, {"s": np.array([0.5], np.float32)})
    assert path.read_bytes() == b"".join(map(ast.literal_eval, code_block("text").splitlines()))
    text = DOCUMENT.read_text(encoding="utf-8")
    assert "[-8, 7, 0, -1, 3]`: 20 bits, 3 bytes, `78 F0 03`" in text
    assert "[-4, 3, 0, -1, 2]`: 15 bits, 2 bytes, `1C 2E`" in text
    assert f"these {path.stat().st_size} bytes" in text


def test_the_reader_in_the_document_reads_a_bundle_alone(tmp_path: Path) -> None:
    path = write_sample(tmp_path / "model.ptq")
    script = f"""import sys
sys.modules["torch"] = sys.modules["ptq4snn"] = None
{code_block("python")}
plan, integers, floats = read(sys.argv[1])
np.savez(sys.argv[2], plan=json.dumps(plan), **{{"i" + k: v for k, v in integers.items()}},
         **{{"f" + k: v for k, v in floats.items()}})
"""
    subprocess.run([sys.executable, "-c", script, str(path), str(tmp_path / "out.npz")], check=True)
    read = np.load(tmp_path / "out.npz")
    integers, floats = sample()
    assert json.loads(str(read["plan"])) == PLAN
    assert set(read.files) == {"plan", *("i" + n for n in integers), *("f" + n for n in floats)}
    for name, array in integers.items():
        np.testing.assert_array_equal(read["i" + name], array.values, strict=True)
    for name, values in floats.items():
        np.testing.assert_array_equal(read["f" + name], values, strict=True)


def test_the_reader_in_the_document_refuses_altered_bundles(tmp_path: Path) -> None:
    namespace: dict[str, Any] = {}
    exec(code_block("python"), namespace)
    path = write_sample(tmp_path / "model.ptq")
    path.write_bytes(path.read_bytes()[:-1] + b"\x55")
    with pytest.raises(ValueError, match="altered"):
        namespace["read"](path)


def test_reading_does_not_import_torch(tmp_path: Path) -> None:
    code = "import sys; sys.modules['torch'] = None; sys.path.insert(0, sys.argv[2])\n"
    code += "from ptq4snn.bundle.format import read_bundle; print(len(read_bundle(sys.argv[1]).integers))"
    path = write_sample(tmp_path / "model.ptq")
    done = subprocess.run(
        [sys.executable, "-c", code, str(path), str(ROOT / "src")], check=True, capture_output=True
    )
    assert int(done.stdout) == len(sample()[0])


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), KeyboardInterrupt(), MemoryError()]
)
@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("before", [None, b"the file before"])
def test_a_failure_while_writing_leaves_everything_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, step: str, before: bytes | None
) -> None:
    path = tmp_path / "model.ptq"
    if before is not None:
        path.write_bytes(before)
    seen: list[str] = []

    def fail(*_: object) -> None:
        seen.extend(p.name for p in tmp_path.iterdir())
        raise error

    monkeypatch.setattr(*{"fsync": (os, "fsync"), "replace": (Path, "replace")}[step], fail)
    with pytest.raises(BundleError if isinstance(error, OSError) else type(error)) as caught:
        write_sample(path)
    assert any(name.endswith(".tmp") for name in seen)  # the failure came after the temporary file existed
    assert [p.name for p in tmp_path.iterdir()] == ([] if before is None else ["model.ptq"])
    assert before is None or path.read_bytes() == before
    assert isinstance(caught.value, type(error)) or "model.ptq: No space left on device;" in str(caught.value)


def test_a_failure_in_the_middle_of_the_data_leaves_nothing(tmp_path: Path) -> None:
    def parts() -> Any:
        yield b"begin"
        assert len(list(tmp_path.iterdir())) == 1
        raise OSError(5, "Input/output error")

    with pytest.raises(OSError, match="Input/output"):
        write_whole(tmp_path / "model.ptq", parts(), sync=True)
    assert list(tmp_path.iterdir()) == []


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "folder", tmp_path / "missing" / "model.ptq"):
        with pytest.raises(BundleError, match=re.escape(str(path))):
            write_sample(path)
    assert list(tmp_path.iterdir()) == [tmp_path / "folder"]


@pytest.mark.skipif(os.name != "posix", reason="permissions and links of POSIX")
def test_a_bundle_has_ordinary_permissions_and_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"")
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real" / "model.ptq")
    write_sample(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    mode = (tmp_path / "real" / "model.ptq").stat().st_mode
    assert stat.S_IMODE(mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)


def test_the_header_has_the_limit_of_safetensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle_format, "MAX_HEADER_BYTES", 1000)
    write_bundle(tmp_path / "model.ptq", {"a": "x" * 700}, {}, {})
    with pytest.raises(BundleError, match="exceed 1000 bytes; move numbers into arrays"):
        write_bundle(tmp_path / "large.ptq", {"a": "x" * 1000}, {}, {})


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.0.0", reason="numpy has 32 dimensions")
def test_more_than_32_dimensions_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="'w': a shape of 33 dimensions"):
        write_bundle(tmp_path / "model.ptq", {}, {}, {"w": np.ones([1] * 33)})


DEEP: list[Any] = []
VERY_DEEP: list[Any] = []
for i in range(100_000):
    VERY_DEEP, DEEP = [VERY_DEEP], [DEEP] if i < 200 else DEEP
CIRCLE: list[Any] = []
CIRCLE += [CIRCLE, CIRCLE]
ONE = np.ones(2, np.int8)


@pytest.mark.parametrize(
    ("plan", "integers", "floats", "match"),
    [
        ({"a": float("nan")}, {}, {}, "not JSON"),
        ({"a": [-float("inf")]}, {}, {}, "not JSON"),
        ({"a": ONE}, {}, {}, "not JSON"),
        ({"a": CIRCLE}, {}, {}, "not JSON .Circular"),
        ({"a": VERY_DEEP}, {}, {}, "not JSON"),
        ({"a": DEEP}, {}, {}, "deeper than 100"),
        ({1: "a"}, {}, {}, "key that is not a string"),
        ({"a": [{1: "a"}]}, {}, {}, "key that is not a string"),
        ({}, {"w": IntegerArray(ONE * 8, 4)}, {}, "'w': value 8 at flat index 0"),
        ({}, {"w": IntegerArray(ONE, 9)}, {}, "'w': 9 bits"),
        ({}, {"w": IntegerArray(ONE * 0.5, 4)}, {}, "'w': values of type float64"),
        ({}, {"w": IntegerArray(ONE, 4)}, {"w": ONE * 0.5}, "both an integer and a float"),
        ({}, {}, {"s": ONE}, "'s': its type is int8"),
        ({}, {}, {"s": np.ones(2, np.float16)}, "'s': its type is float16"),
        ({}, {}, {"": ONE * 0.5}, "cannot be a name"),
        ({}, {}, {"__metadata__": ONE * 0.5}, "cannot be a name"),
        ({}, {}, {3: ONE * 0.5}, "cannot be a name"),
        ({}, {}, {"\ud800": ONE * 0.5}, "surrogates not allowed"),
    ],
)
def test_content_that_cannot_be_written(
    tmp_path: Path, plan: Any, integers: Any, floats: Any, match: str
) -> None:
    path = tmp_path / "model.ptq"
    with pytest.raises(BundleError, match=match) as caught:
        write_bundle(path, plan, integers, floats)
    assert str(caught.value).startswith(f"{path}: ")
    assert list(tmp_path.iterdir()) == []
