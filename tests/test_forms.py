"""What samples may be given as: the same batches come out, or one sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import ptq4snn
from ptq4snn.calibration.calibration_set import batches_of, micro_batches
from ptq4snn.errors import CheckpointError, DataError

X = torch.arange(12.0).view(6, 2)
Y = torch.arange(6) % 3


class Numbered:
    """Neither a data set of torch's nor an iterable."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, i: int) -> Any:
        if i >= 6:
            raise IndexError
        return {"pixel_values": X[i].numpy(), "label": int(Y[i])}


class Named(Dataset[Any]):
    def __len__(self) -> int:
        return 6

    def __getitem__(self, i: int) -> Any:
        return X[i], f"label {i}"  # nobody reads it


FORMS: dict[str, Callable[[], Any]] = {
    "tensor": lambda: X,
    "array": lambda: X.numpy(),
    "sparse": lambda: X.to_sparse(),
    "compressed": lambda: X.to_sparse_csr(),
    "pair": lambda: (X, Y),
    "list of two": lambda: [X.numpy(), Y.numpy()],
    "TensorDataset": lambda: TensorDataset(X, Y),
    "TensorDataset without labels": lambda: TensorDataset(X),
    "numbered": Numbered,
    "labels of any kind": Named,
    "DataLoader": lambda: DataLoader(TensorDataset(X, Y), 4),
    "batches": lambda: [X[:4], X[4:]],
    "pairs": lambda: [(X[:4], Y[:4]), (X[4:], Y[4:])],
    "sparse batches": lambda: [X[:4].to_sparse(), X[4:]],
    "one array in mappings": lambda: [{"whatever": X[:4], "id": "a"}, {"whatever": X[4:], "id": "b"}],
    "several in mappings": lambda: [{"mask": X, "image": X, "label": Y}],
    "quantized": lambda: torch.quantize_per_tensor(X, 1.0, 0, torch.qint8),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("form", FORMS)
def test_all_forms_give_the_same_samples(form: str) -> None:
    found = torch.cat(list(batches_of(FORMS[form]())))
    assert torch.equal(found, X) and found.layout == torch.strided


def test_two_batches_are_not_a_pair() -> None:
    ints = torch.arange(12).view(6, 2)
    assert torch.equal(torch.cat(list(batches_of([ints, ints]))), torch.cat([ints, ints]))
    assert len(list(batches_of([torch.arange(6), torch.arange(6)]))) == 2


def test_samples_are_stacked_on_the_batch_axis() -> None:
    frames = torch.rand(5, 3, 4)  # five samples [T, C]
    found = list(micro_batches(TensorDataset(frames, torch.arange(5)), 8, batch_axis=1))
    assert torch.equal(found[0], frames.movedim(0, 1))


BAD: dict[str, tuple[Any, str]] = {
    "several names": ([{"a": X, "b": X}], "a batch holds 'a', 'b': name its samples x"),
    "meta": (X.to("meta"), "meta hold no numbers"),
    "meta batches": ([X.to("meta")], "meta hold no numbers"),
    "complex": (X.to(torch.complex64), "give real numbers"),
    "text": ("file.npz", "got str"),
    "mapping": ({"a": X, "b": X}, "name its samples x"),
    "several inputs": ([((X, X), Y)], "a batch holds 2 inputs"),
    "shapes": ([(X, Y), (X[:, None], Y)], "different shapes"),
}


@pytest.mark.parametrize("what", BAD)
def test_what_cannot_be_used_is_named(what: str) -> None:
    samples, message = BAD[what]
    with pytest.raises(DataError) as e:
        list(micro_batches(samples, 4))
    assert message in str(e.value) and len(str(e.value)) < 200


def test_samples_of_different_lengths_in_a_data_set_have_batches_of_their_own() -> None:
    class Ragged(Named):
        def __getitem__(self, i: int) -> Any:
            return torch.zeros(1 + i % 2)

    found = [tuple(x.shape) for x in batches_of(Ragged())]
    assert {shape[1] for shape in found} == {1, 2} and sum(n for n, _ in found) == len(Ragged())


def test_evaluate_takes_the_same_forms() -> None:
    model = nn.Linear(2, 3)
    with torch.no_grad():
        model.weight.zero_()
        model.bias.copy_(torch.tensor([1.0, 0.0, 0.0]))
    labelled: list[Any] = [
        (X, Y), TensorDataset(X, Y), Numbered(), [{"x": X, "labels": Y}], DataLoader(TensorDataset(X, Y), 4),
        [(X.to_sparse(), Y)],
    ]  # fmt: skip
    for form in labelled:
        assert ptq4snn.evaluate(model, form)["accuracy"] == pytest.approx(100 / 3)
    assert ptq4snn.evaluate(model, X.numpy())["accuracy"] is None
    with pytest.raises(DataError, match="meta"):
        ptq4snn.evaluate(model, X.to("meta"))


def test_quantize_takes_a_data_set(
    small_model: Callable[..., nn.Module], images: Callable[..., Tensor]
) -> None:
    x = images(20)
    changes: dict[str, Any] = {"calibration": 20, "holdout": 8, "rounding": "nearest"}
    a = ptq4snn.quantize(small_model(), x, "W4M4", **changes)
    b = ptq4snn.quantize(small_model(), TensorDataset(x, torch.zeros(20)), "w4m4", **changes)
    assert a.plan.to_dict() == b.plan.to_dict()
    assert torch.equal(a(x[:2]), b(x[:2]))


def test_one_sample_without_a_batch_axis_is_told(small_model: Callable[..., nn.Module]) -> None:
    for x in (torch.rand(3, 32, 32), torch.rand(3, 32, 32).numpy(), [torch.rand(3, 32, 32)]):
        with pytest.raises(DataError, match=r"no batch axis.*x\.unsqueeze\(0\)"):
            ptq4snn.quantize(small_model(), x)


def test_a_model_on_meta_is_told(
    small_model: Callable[..., nn.Module], images: Callable[..., Tensor]
) -> None:
    with pytest.raises(CheckpointError, match="on the device meta and holds no numbers"):
        ptq4snn.quantize(small_model().to("meta"), images(4))


def test_negative_variances_are_told(
    small_model: Callable[..., nn.Module], images: Callable[..., Tensor]
) -> None:
    model = small_model()
    norm = next(m for m in model.modules() if isinstance(m, nn.BatchNorm2d))
    assert norm.running_var is not None
    norm.running_var.neg_()
    with pytest.raises(CheckpointError, match="holds negative variances"):
        ptq4snn.quantize(model, images(4))


def test_arrays_are_not_copied_to_be_split() -> None:
    x = np.zeros((600, 2), dtype=np.float32)
    parts = list(batches_of(x))
    assert [len(p) for p in parts] == [256, 256, 88]
    assert parts[1].data_ptr() == x[256:].ctypes.data
