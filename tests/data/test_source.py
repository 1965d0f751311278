"""Where samples come from: every kind of --data, its batches, and its refusals."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from oracles.image_layouts import write_camvid, write_cifar, write_imagenet, write_voc
from safetensors.numpy import save_file as save_arrays
from safetensors.torch import save_file
from torch import Tensor

from ptq4snn.data.cifar import normalize
from ptq4snn.data.sample import default_sample
from ptq4snn.data.samples import Preprocessing, SampleBatches
from ptq4snn.data.source import DATA, Batching, Split, open_data, open_labelled, open_samples
from ptq4snn.errors import DataError, PTQ4SNNError

X = np.arange(7 * 2 * 3, dtype=np.float32).reshape(7, 2, 3)
Y = np.arange(7)


def join(batches: Iterable[object], axis: int = 0) -> Tensor:
    return torch.cat([b[0] if isinstance(b, tuple) else b for b in batches], axis)  # type: ignore[misc]


@pytest.fixture(scope="module")
def embedded() -> tuple[Tensor, Tensor, Tensor]:
    return default_sample()  # takes a while to unpack


def test_default_calibration_is_the_sample_normalised(embedded: tuple[Tensor, Tensor, Tensor]) -> None:
    batches = open_data("default", "calibration", Batching(size=500))
    parts = list(batches)
    assert [len(p) for p in parts] == [500, 500, 24]
    assert torch.equal(join(parts), normalize(embedded[0]))
    assert torch.equal(join(batches), join(parts)), "the second pass must see the same"


def test_default_test_has_labels(embedded: tuple[Tensor, Tensor, Tensor]) -> None:
    parts = list(open_data("default", "test", Batching(size=1000)))
    assert torch.equal(torch.cat([y for _, y in parts]), embedded[2])
    assert torch.equal(join(parts), normalize(embedded[1]))


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
    batches = open_data(str(file), "test", Batching(size=3, axis=axis))
    parts = list(batches)
    assert len(batches) == len(parts) == 3  # type: ignore[arg-type]
    joined = join(parts, axis)
    assert joined.dtype == torch.float32 and np.array_equal(joined.numpy(), x)
    if kind == "npy":
        assert not any(isinstance(p, tuple) for p in parts)
    else:
        assert torch.cat([p[1] for p in parts]).tolist() == Y.tolist()


@pytest.mark.parametrize("kind", ["npz", "safetensors"])
def test_label_maps(tmp_path: Path, kind: str) -> None:
    maps = np.random.default_rng(0).integers(0, 255, (7, 2, 3), np.uint8)
    file = tmp_path / f"d.{kind}"
    if kind == "npz":
        np.savez(file, x=X, y=maps)
    else:
        save_file({"x": torch.from_numpy(X), "y": torch.from_numpy(maps)}, file)
    parts = list(open_data(str(file), "test", Batching(size=3)))
    y = torch.cat([p[1] for p in parts])
    assert y.dtype == torch.int64 and np.array_equal(y, maps)


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
    batches = open_data(str(file), "calibration", Batching(size=8))
    first = next(iter(batches))
    assert isinstance(first, Tensor) and first.shape == (8, 1024)
    assert len(batches) == count // 8  # type: ignore[arg-type]
    assert batches.samples[range(count - 8, count)].shape == (8, 1024)  # type: ignore[attr-defined]


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float64, np.float16, ">f4"])
def test_numbers_become_float32(tmp_path: Path, dtype: object) -> None:
    np.save(tmp_path / "d.npy", X.astype(dtype))  # type: ignore[call-overload]
    joined = join(open_data(str(tmp_path / "d.npy"), "calibration"))
    assert joined.dtype == torch.float32 and np.array_equal(joined.numpy(), X)


@pytest.mark.parametrize(("split", "part"), [("calibration", slice(0, 20)), ("test", slice(20, 23))])
def test_cifar_folder_across_file_borders(tmp_path: Path, split: Split, part: slice) -> None:
    folder, images, labels = write_cifar(tmp_path, "cifar10", "binary")
    for spec in (tmp_path, folder, f"cifar10:{tmp_path}"):
        parts = list(open_data(str(spec), split, Batching(size=3)))
        expected = normalize(torch.from_numpy(images[part].reshape(-1, 3, 32, 32)))
        assert torch.equal(join(parts), expected)
        assert torch.cat([p[1] for p in parts]).tolist() == labels[part].tolist()


def test_cifar_folder_refusals(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no cifar-10-batches-bin"):
        open_data(str(tmp_path), "test", name="cifar10")
    folder, _, _ = write_cifar(tmp_path, "cifar10", "binary")
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
        np.savez(file, images=X, more=X)
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
        ("d.npz", "no x", "holds images, more but no x"),
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
        open_data(str(tmp_path / "d.npy"), "test", Batching(axis=3))


@pytest.fixture
def factories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_data_factories.py").write_text(
        "import torch\n"
        "def split(s):\n"
        "    return [(torch.zeros(2, 3), torch.tensor([0, 1]))] if s == 'test' else [torch.ones(2, 3)]\n"
        "def tensor(): return torch.arange(10.0).view(5, 2)\n"
        "def pair(): return torch.arange(10.0).view(5, 2), torch.arange(5)\n"
        "def data_set(s): return torch.utils.data.TensorDataset(*pair())\n"
        "class Own:\n"
        "    def __len__(self): return 5\n"
        "    def __getitem__(self, i): return {'image': torch.arange(2.0) + 2 * i, 'name': str(i)}\n"
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
    parts = list(open_data("my_data_factories:tensor", "test", Batching(size=2)))
    assert [len(p) for p in parts] == [2, 2, 1]


@pytest.mark.parametrize("name", ["pair", "data_set", "Own"])
def test_factories_of_samples(factories: None, name: str) -> None:
    """(x, y), a data set of torch's, and an object with a length and numbers, of mappings."""
    found: list[Any] = list(open_data(f"my_data_factories:{name}", "test", Batching(size=2, count=3)))
    xs = [b if isinstance(b, Tensor) else b[0] for b in found]
    assert torch.equal(torch.cat(xs), torch.arange(6.0).view(3, 2)) and [len(x) for x in xs] == [2, 1]
    if name != "Own":
        assert torch.cat([y for _, y in found]).tolist() == [0, 1, 2]
    turned: list[Any] = list(open_data(f"my_data_factories:{name}", "test", Batching(axis=1)))
    if name != "pair":  # whose own axes are the user's: x [5, 2] has no 5 samples on axis 1
        assert (turned[0] if name == "Own" else turned[0][0]).shape == (2, 5)


@pytest.mark.parametrize("kind", ["npz", "safetensors"])
def test_the_only_array_of_a_file_is_x(tmp_path: Path, kind: str) -> None:
    for names in (["frames"], ["frames", "y"], ["x", "extra", "y"]):
        arrays: dict[str, Any] = {n: Y if n == "y" else X if n in ("frames", "x") else X[:1] for n in names}
        file = tmp_path / f"d.{kind}"
        np.savez(file, **arrays) if kind == "npz" else save_arrays(arrays, file)
        batch: Any = next(iter(open_data(str(file), "test")))
        assert isinstance(batch, tuple) == ("y" in names)
        assert torch.equal(batch[0] if "y" in names else batch, torch.as_tensor(X).float())


@pytest.mark.parametrize(
    "spec", ["x" * 5000, "x" * 5000 + ".npy", "m:" + "f" * 9000, "cifar10:" + "x" * 5000]
)
def test_names_that_are_too_long_are_one_short_sentence(spec: str) -> None:
    with pytest.raises(PTQ4SNNError) as e:
        open_data(spec, "test")
    assert len(str(e.value)) < 500 and "\n" not in str(e.value)


HEADERS = [
    b"{'descr': '<f4', 'fortran_order': False, #shape': (3, 2)}",
    b"{'descr': '<f4', 'nortran_order':(False, 'shape': (3, 2)}",
    b"{'descr': '<f4', 'shape': " + b"(" * 5000 + b"3" + b")" * 5000 + b"}",
    b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000, 3), }",
    b"{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 3), }",
    b"{'descr': '|O', 'fortran_order': False, 'shape': (3,), }",
]


@pytest.mark.parametrize("header", HEADERS, ids=range(len(HEADERS)))
@pytest.mark.parametrize("kind", ["npy", "npz"])
def test_damaged_headers_are_one_sentence(tmp_path: Path, header: bytes, kind: str) -> None:
    array = b"\x93NUMPY\x02\x00" + len(header).to_bytes(4, "little") + header + bytes(24)
    file = tmp_path / f"d.{kind}"
    if kind == "npy":
        file.write_bytes(array)
    else:
        with zipfile.ZipFile(file, "w") as z:
            z.writestr("x.npy", array)
    with pytest.raises(DataError) as e:
        next(iter(open_data(str(file), "test")))
    assert "\n" not in str(e.value) and len(str(e.value)) < 400


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


WNIDS = ("n01440764", "n02102040", "n15075141")
SMALL = Preprocessing(resize=8, size=8)


def lay_out(root: Path, name: str) -> Path:
    """A tiny data set; returns what the user would name."""
    if name in ("cifar10", "cifar100"):
        write_cifar(root, name, "python")
    elif name == "imagenet":
        write_imagenet(root, WNIDS, 3)
    elif name == "voc2012":
        write_voc(root / "VOCdevkit/VOC2012", {"a": (30, 40), "b": (40, 30)}, "train")
        write_voc(root / "VOCdevkit/VOC2012", {"a": (30, 40), "b": (40, 30)})
    else:
        write_camvid(root / "c.npz")
        return root / "c.npz"
    return root


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "imagenet", "voc2012", "camvid"])
def test_data_sets_by_name_and_by_content(tmp_path: Path, name: str) -> None:
    """NAME:PATH, PATH for a model of that data set, and PATH alone are the same samples."""
    path = lay_out(tmp_path, name)
    small = SMALL if name == "imagenet" else Preprocessing(size=8) if name == "voc2012" else Preprocessing()
    for split in ("train", "calibration", "test", "val"):
        explicit = open_samples(f"{name}:{path}", split, small)
        for other in (open_samples(str(path), split, small, name), open_samples(str(path), split, small)):
            assert type(other) is type(explicit) and len(other) == len(explicit) > 0
            pairs = zip(explicit[[1, 0]], other[[1, 0]], strict=True)
            assert all(torch.equal(a, b) for a, b in pairs)
        batches = open_data(str(path), split, Batching(size=2), preprocessing=small)
        assert isinstance(batches, SampleBatches) and type(batches.samples) is type(explicit)


def test_splits(tmp_path: Path) -> None:
    file = lay_out(tmp_path, "camvid")
    lengths = {
        split: len(open_samples(str(file), split)) for split in ("train", "calibration", "val", "test")
    }
    assert lengths == {"train": 5, "calibration": 5, "val": 2, "test": 3}


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("Train/0/00002.bin", "nmnist"),
        ("airplane/cifar10_airplane_0.aedat", "cifar10-dvs"),
        ("events_np/airplane/cifar10_airplane_0.npz", "cifar10-dvs"),
    ],
)
def test_event_folders_are_recognised(tmp_path: Path, file: str, name: str) -> None:
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_bytes(b"")
    assert [n for n, data in DATA.items() if data.found(tmp_path)] == [name]


def test_an_npz_of_events_is_recognised(tmp_path: Path) -> None:
    names = ("train_x", "train_y", "train_p", "train_t_us")
    arrays: dict[str, Any] = {n: np.zeros(3, np.int32) for n in names}
    np.savez(tmp_path / "n.npz", **arrays)
    assert [n for n, data in DATA.items() if data.found(tmp_path / "n.npz")] == ["nmnist"]


def test_events_simulated_from_cifar10_are_never_guessed(tmp_path: Path) -> None:
    write_cifar(tmp_path, "cifar10", "binary")
    samples = open_samples(f"cifar10-dvs-sim:{tmp_path}", "test", Preprocessing(size=8, steps=2))
    assert samples[[0]][0].shape == (1, 2, 2, 8, 8)
    named = open_samples(str(tmp_path), "test", Preprocessing(size=8, steps=2), "cifar10-dvs-sim")
    assert torch.equal(named[[1]][0], samples[[1]][0])
    assert open_samples(str(tmp_path), "test")[[0]][0].shape == (1, 3, 32, 32)


def test_refusals_name_what_to_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(spec: object, name: str | None = None) -> str:
        for call in (open_data, open_samples):
            with pytest.raises(DataError) as e:
                call(str(spec), "test", name=name)
        assert "\n" not in str(e.value)
        return str(e.value)

    assert f"say which it is, NAME:{tmp_path}" in refused(tmp_path)
    write_cifar(tmp_path, "cifar10", "binary")
    write_cifar(tmp_path, "cifar100", "python")
    assert f"holds cifar10 and cifar100: choose with cifar10:{tmp_path}" in refused(tmp_path)
    assert "there is no data set 'cifar-10': did you mean 'cifar10'?" in refused(f"cifar-10:{tmp_path}")
    assert "there is no data set 'mnist'" in refused(tmp_path, "mnist")
    assert f"there is no data '{tmp_path / 'no'}'" in refused(f"cifar10:{tmp_path / 'no'}")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert len(open_samples("cifar10:~/cifar-10-batches-bin", "test")) == 3


def test_a_model_of_a_data_set_still_takes_arrays(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=X, y=Y)
    assert len(join(open_data(str(tmp_path / "d.npz"), "test", name="camvid"))) == 7


def classes_of(batches: Iterable[object]) -> list[int]:
    return [int(y) for b in batches for y in b[1]]  # type: ignore[index]


def test_calibration_does_not_begin_with_one_class(tmp_path: Path) -> None:
    """Folders are sorted by class: their samples come in a fixed random order, all of them once."""
    write_imagenet(tmp_path, WNIDS, 3)

    def classes(split: Split, **options: int) -> list[int]:
        return classes_of(open_data(str(tmp_path), split, Batching(2, **options), SMALL))

    assert classes("test") == classes("train") == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    mixed = classes("calibration")
    assert sorted(mixed) == classes("train") != mixed and len(set(mixed[:3])) > 1
    assert classes("calibration") == mixed and classes("calibration", count=4) == mixed[:4]
    assert any(classes("calibration", seed=s) != mixed for s in (1, 2, 3))
    assert len(set(classes("test", count=4))) > 1


def test_count_keeps_the_order_of_mixed_files(tmp_path: Path) -> None:
    _, _, labels = write_cifar(tmp_path, "cifar10", "binary")
    np.savez(tmp_path / "d.npz", x=X, y=Y)
    six = Batching(count=6, size=4)
    assert classes_of(open_data(str(tmp_path), "calibration", six)) == labels[:6].tolist()
    assert classes_of(open_data(str(tmp_path / "d.npz"), "test", Batching(count=5, size=4))) == Y[:5].tolist()


def test_images_of_different_size_come_one_by_one(tmp_path: Path) -> None:
    path = lay_out(tmp_path, "voc2012")
    whole = list(open_data(str(path), "test", preprocessing=Preprocessing(resize=20)))
    assert [tuple(x.shape) for x, _ in whole] == [(1, 3, 20, 27), (1, 3, 27, 20)]
    fixed = list(open_data(str(path), "calibration", preprocessing=Preprocessing(resize=20)))
    assert [tuple(x.shape) for x, _ in fixed] == [(2, 3, 20, 20)]


def test_batch_axis_of_a_data_set(tmp_path: Path) -> None:
    write_cifar(tmp_path, "cifar10", "binary")
    events = {"name": "cifar10-dvs-sim", "preprocessing": Preprocessing(size=8, steps=4)}
    usual = list(open_data(str(tmp_path), "test", **events))  # type: ignore[arg-type]
    time_first = list(open_data(str(tmp_path), "test", Batching(axis=1), **events))  # type: ignore[arg-type]
    assert torch.equal(time_first[0][0], usual[0][0].transpose(0, 1)) and usual[0][0].shape[:2] == (3, 4)
    with pytest.raises(DataError, match="has no batch axis 7"):
        list(open_data(str(tmp_path), "test", Batching(axis=7)))


class Own:
    """Samples of the user's own making."""

    classes = 2

    def __len__(self) -> int:
        return 3

    def __getitem__(self, indices: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.tensor(indices).float(), torch.tensor(indices)


@pytest.mark.parametrize(
    "made",
    [(np.arange(3), np.arange(3)), (torch.arange(3.0), torch.arange(3)), Own()],
    ids=["arrays", "tensors", "samples"],
)
def test_labelled_samples_of_a_factory(monkeypatch: pytest.MonkeyPatch, made: object) -> None:
    module = ModuleType("own_labelled")
    module.build = lambda: made  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "own_labelled", module)
    x, y = open_labelled("own_labelled:build", "train")[[2, 0]]
    assert y.tolist() == x.tolist() == [2, 0] and y.dtype == torch.int64


def test_labelled_samples_of_a_file(tmp_path: Path) -> None:
    np.savez(tmp_path / "xy.npz", x=np.ones((4, 2)), y=np.arange(4))
    np.savez(tmp_path / "x.npz", x=np.ones((4, 2)))
    x, y = open_labelled(str(tmp_path / "xy.npz"), "train")[[3, 1]]
    assert x.shape == (2, 2) and y.tolist() == [3, 1]
    with pytest.raises(DataError, match=r"x\.npz holds no labels y"):
        open_labelled(str(tmp_path / "x.npz"), "train")
    with pytest.raises(DataError, match="there is no data 'nowhere'"):
        open_labelled("nowhere", "train")


def test_a_factory_without_labels_cannot_train(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("own_unlabelled")
    module.build = lambda: torch.ones(4, 2)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "own_unlabelled", module)
    with pytest.raises(DataError, match="returned a Tensor: return"):
        open_labelled("own_unlabelled:build", "train")
