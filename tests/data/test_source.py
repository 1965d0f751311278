"""Where samples come from: every kind of --data, its batches, and its refusals."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from ptq4snn.data.cifar import normalize
from ptq4snn.data.sample import default_sample
from ptq4snn.data.source import Split, open_data
from ptq4snn.errors import DataError, PTQ4SNNError

X = np.arange(7 * 2 * 3, dtype=np.float32).reshape(7, 2, 3)
Y = np.arange(7)


def join(batches: Iterable[object], axis: int = 0) -> Tensor:
    return torch.cat([b[0] if isinstance(b, tuple) else b for b in batches], axis)  # type: ignore[misc]


def test_default_calibration_is_the_sample_normalised() -> None:
    batches = open_data("default", "calibration", batch_size=500)
    parts = list(batches)
    assert [len(p) for p in parts] == [500, 500, 24]
    assert torch.equal(join(parts), normalize(default_sample()[0]))
    assert torch.equal(join(batches), join(parts)), "the second pass must see the same"


def test_default_test_has_labels() -> None:
    parts = list(open_data("default", "test", batch_size=1000))
    assert torch.equal(torch.cat([y for _, y in parts]), default_sample()[2])
    assert torch.equal(join(parts), normalize(default_sample()[1]))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("kind", ["npy", "npz", "safetensors"])
def test_files(tmp_path: Path, kind: str, axis: int) -> None:
    x = np.moveaxis(X, 0, axis).copy()
    file = tmp_path / f"d.{kind}"
    if kind == "npy":
        np.save(file, x)
    elif kind == "npz":
        np.savez(file, x=x, y=Y)
    else:
        save_file({"x": torch.from_numpy(x), "y": torch.from_numpy(Y)}, file)
    batches = open_data(str(file), "test", batch_size=3, batch_axis=axis)
    parts = list(batches)
    assert len(batches) == len(parts) == 3  # type: ignore[arg-type]
    joined = join(parts, axis)
    assert joined.dtype == torch.float32 and np.array_equal(joined.numpy(), x)
    if kind == "npy":
        assert not any(isinstance(p, tuple) for p in parts)
    else:
        assert torch.cat([p[1] for p in parts]).tolist() == Y.tolist()


def test_npy_is_mapped_not_read(tmp_path: Path) -> None:
    """A sparse file far larger than memory opens, and its last batch can be read."""
    file = tmp_path / "huge.npy"
    count = 2**42 // 1024  # 4 TiB of uint8 samples
    with file.open("wb") as f:
        header = {"descr": "|u1", "fortran_order": False, "shape": (count, 1024)}
        np.lib.format.write_array_header_1_0(f, header)
        try:
            f.truncate(f.tell() + count * 1024)
        except OSError:
            pytest.skip("the file system has no sparse files of this size")
    batches = open_data(str(file), "calibration", batch_size=8)
    first = next(iter(batches))
    assert isinstance(first, Tensor) and first.shape == (8, 1024)
    assert batches.x(count - 8, count).shape == (8, 1024)  # type: ignore[attr-defined]


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float64, np.float16, ">f4"])
def test_numbers_become_float32(tmp_path: Path, dtype: object) -> None:
    np.save(tmp_path / "d.npy", X.astype(dtype))  # type: ignore[call-overload]
    joined = join(open_data(str(tmp_path / "d.npy"), "calibration"))
    assert joined.dtype == torch.float32 and np.array_equal(joined.numpy(), X)


def cifar_folder(root: Path) -> tuple[Path, np.ndarray]:
    """Five train files of 4 records and one test file of 3, pixel values and labels counting up."""
    folder = root / "cifar-10-batches-bin"
    folder.mkdir()
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 256, (23, 3073), np.uint8)
    rows[:, 0] = np.arange(23) % 10
    for i in range(5):
        rows[4 * i : 4 * i + 4].tofile(folder / f"data_batch_{i + 1}.bin")
    rows[20:].tofile(folder / "test_batch.bin")
    return folder, rows


@pytest.mark.parametrize(("split", "part"), [("calibration", slice(0, 20)), ("test", slice(20, 23))])
def test_cifar_folder_across_file_borders(tmp_path: Path, split: Split, part: slice) -> None:
    folder, rows = cifar_folder(tmp_path)
    for spec in (tmp_path, folder):
        parts = list(open_data(str(spec), split, batch_size=3))
        expected = normalize(torch.from_numpy(rows[part, 1:].reshape(-1, 3, 32, 32)))
        assert torch.equal(join(parts), expected)
        assert torch.cat([p[1] for p in parts]).tolist() == rows[part, 0].tolist()


def test_cifar_folder_refusals(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no cifar-10-batches-bin"):
        open_data(str(tmp_path), "test")
    folder, _ = cifar_folder(tmp_path)
    (folder / "data_batch_2.bin").write_bytes(b"x" * 3000)
    with pytest.raises(DataError, match=r"data_batch_2\.bin is truncated"):
        open_data(str(tmp_path), "calibration")
    (folder / "data_batch_2.bin").unlink()
    with pytest.raises(DataError, match=r"no data file .*data_batch_2\.bin"):
        open_data(str(tmp_path), "calibration")


def write(file: Path, how: str) -> None:
    if how == "truncated":
        np.save(file, X)
        file.write_bytes(file.read_bytes()[:-20])
    elif how == "objects":
        np.save(file, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    elif how == "strings":
        np.save(file, np.array(["a", "b"]))
    elif how == "garbage":
        file.write_bytes(b"this is not an array")
    elif how == "no x":
        np.savez(file, images=X)
    elif how == "labels":
        np.savez(file, x=X, y=Y[:3])
    elif how == "empty":
        np.save(file, X[:0])


@pytest.mark.parametrize(
    ("name", "how", "message"),
    [
        ("d.npy", "truncated", "is truncated or not a .npy file"),
        ("d.npy", "objects", "is truncated or not a .npy file of numbers"),
        ("d.npy", "strings", "store numbers"),
        ("d.npy", "garbage", "is truncated or not a .npy file"),
        ("d.npz", "garbage", "is truncated or not a .npz file"),
        ("d.safetensors", "garbage", "is truncated or not a .safetensors file"),
        ("d.npz", "no x", "holds images but no x"),
        ("d.npz", "labels", "y has shape [3] for 7 samples"),
        ("d.npy", "empty", "holds no samples"),
        ("d.npy", "missing", "there is no data file"),
        ("d.npz", "missing", "there is no data file"),
        ("d.safetensors", "missing", "there is no data file"),
        ("d.csv", "garbage", "has the ending '.csv'"),
        ("nothing", "missing", "there is no data "),
    ],
)
def test_bad_files_are_one_sentence(tmp_path: Path, name: str, how: str, message: str) -> None:
    file = tmp_path / name
    write(file, how)
    with pytest.raises(DataError) as e:
        open_data(str(file), "calibration")
    assert message in str(e.value) and str(file) in str(e.value) and "\n" not in str(e.value)


def test_batch_axis_must_exist(tmp_path: Path) -> None:
    np.save(tmp_path / "d.npy", X)
    with pytest.raises(DataError, match=r"x has shape \[7, 2, 3\] and no batch axis 3"):
        open_data(str(tmp_path / "d.npy"), "test", batch_axis=3)


@pytest.fixture
def factories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_data_factories.py").write_text(
        "import torch\n"
        "def split(s):\n"
        "    return [(torch.zeros(2, 3), torch.tensor([0, 1]))] if s == 'test' else [torch.ones(2, 3)]\n"
        "def tensor(): return torch.arange(10.0).view(5, 2)\n"
        "def wrong(): return 3\n"
        "def fails(): raise ValueError('no\\nluck')\n"
        "value = 3\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in ("", ".")])
    monkeypatch.delitem(sys.modules, "my_data_factories", raising=False)


def test_factories(factories: None) -> None:
    assert torch.equal(join(open_data("my_data_factories:split", "calibration")), torch.ones(2, 3))
    assert torch.equal(join(open_data("my_data_factories:split", "test")), torch.zeros(2, 3))
    parts = list(open_data("my_data_factories:tensor", "test", batch_size=2))
    assert [len(p) for p in parts] == [2, 2, 1]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("my_data_factories:wrong", "returned a int"),
        ("my_data_factories:fails", "my_data_factories:fails raised ValueError: no luck"),
        ("my_data_factories:value", "is a int, not a function"),
        ("my_data_factories:absent", "my_data_factories has no 'absent'"),
        ("no_such_module_:f", "cannot import no_such_module_"),
        ("my_data_factories:", "is not of the form package.module:factory"),
    ],
)
def test_bad_factories_are_one_sentence(factories: None, spec: str, message: str) -> None:
    with pytest.raises(PTQ4SNNError) as e:
        open_data(spec, "test")
    assert message in str(e.value) and "\n" not in str(e.value)
