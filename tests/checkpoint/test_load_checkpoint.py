"""Into a model: prefixes are undone, misfits are named, the rest is accounted for."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from ptq4snn.checkpoint import load_checkpoint
from ptq4snn.errors import CheckpointError

State = dict[str, Tensor]


def net(seed: int) -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 10))


def same(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(v, b.state_dict()[k]) for k, v in a.state_dict().items())


def refusal(model: nn.Module, file: Path) -> str:
    """The message; the model must be left as it was."""
    before = {k: v.clone() for k, v in model.state_dict().items()}
    with pytest.raises(CheckpointError) as e:
        load_checkpoint(model, file)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert "\n" not in str(e.value) and str(file) in str(e.value)
    return str(e.value)


@pytest.mark.parametrize(
    "rename",
    [
        lambda k: k,
        lambda k: "module." + k,
        lambda k: "module._orig_mod." + k,
        lambda k: "model." + k,
    ],
)
def test_prefixes_are_undone(tmp_path: Path, rename: Callable[[str], str]) -> None:
    source, target = net(1), net(2)
    torch.save({rename(k): v for k, v in source.state_dict().items()}, tmp_path / "c.pt")
    assert not same(source, target)
    loaded = load_checkpoint(target, str(tmp_path / "c.pt"))
    assert same(source, target) and (loaded.matched, loaded.renamed) == (9, 0) and loaded.account() == ""


def test_a_model_with_the_prefix_keeps_it(tmp_path: Path) -> None:
    source, target = nn.Sequential(), nn.Sequential()
    source.add_module("module", net(1))
    target.add_module("module", net(2))
    torch.save(source.state_dict(), tmp_path / "c.pt")
    load_checkpoint(target, tmp_path / "c.pt")
    assert same(source, target)


def test_one_module_prefix_is_no_wrapper(tmp_path: Path) -> None:
    state = {("module." + k if k == "0.weight" else k): v for k, v in net(1).state_dict().items()}
    torch.save(state, tmp_path / "c.pt")
    message = refusal(net(2), tmp_path / "c.pt")
    assert "missing 0.weight" in message and "unexpected module.0.weight" in message


def test_counters_may_be_missing(tmp_path: Path) -> None:
    source, target = net(1), net(2)
    state = {k: v for k, v in source.state_dict().items() if "num_batches" not in k}
    save_file(state, tmp_path / "c.safetensors")
    loaded = load_checkpoint(target, tmp_path / "c.safetensors")
    assert same(source, target) and loaded.absent == ("1.num_batches_tracked",)
    assert loaded.matched == 8 and loaded.account() == ""


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions_are_cast(tmp_path: Path, dtype: torch.dtype) -> None:
    source, target = net(1), net(2)
    torch.save(net(1).to(dtype).state_dict(), tmp_path / "c.pt")
    load_checkpoint(target, tmp_path / "c.pt")
    weight = target.state_dict()["3.weight"]
    assert weight.dtype == torch.float32
    assert torch.equal(weight, source.state_dict()["3.weight"].to(dtype).float())


def test_mismatches_are_listed(tmp_path: Path) -> None:
    state: State = dict(net(1).state_dict())
    del state["0.weight"], state["0.bias"]
    state |= {f"extra{i}": torch.zeros(1) for i in range(5)}
    state["3.weight"] = torch.zeros(100, 4)
    torch.save(state, tmp_path / "c.pt")
    message = refusal(net(2), tmp_path / "c.pt")
    assert "does not fit Sequential" in message
    assert "missing 0.weight, 0.bias;" in message
    assert "unexpected extra0, extra1, extra2 and 2 more;" in message
    assert "wrong shape 3.weight [100, 4] instead of [10, 4];" in message
    assert "give the model that this checkpoint was trained with" in message


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_not_finite_names_the_tensor(tmp_path: Path, value: float) -> None:
    state = dict(net(1).state_dict())
    state["1.running_var"][2] = value
    torch.save(state, tmp_path / "c.pt")
    assert "1.running_var holds NaN or inf" in refusal(net(2), tmp_path / "c.pt")


def test_the_account_says_what_was_left_out(tmp_path: Path) -> None:
    state: State = {**net(1).state_dict(), "0.total_ops": torch.zeros(1), "total_params": torch.zeros(1)}
    torch.save({"state_dict": state, "state_dict_ema": net(3).state_dict()}, tmp_path / "c.pt")
    target = net(2)
    loaded = load_checkpoint(target, tmp_path / "c.pt")
    assert same(net(1), target)
    assert loaded.ignored == dict.fromkeys(("0.total_ops", "total_params"), "a profiler's count")
    assert loaded.account() == (
        f"{tmp_path / 'c.pt'}: 9 tensors, 2 ignored (a profiler's count); "
        "averaged weights (state_dict_ema) not used"
    )


def changed(tensor: str, change: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
    state = small().state_dict()
    return {**state, tensor: change(state[tensor])}


def small() -> nn.Module:
    return net(0)[:2]


BAD_NUMBERS: dict[str, tuple[str, Callable[[Tensor], Tensor], str]] = {
    "int8": ("0.weight", lambda t: (t * 10).to(torch.int8), "0.weight is stored as int8"),
    "bool": ("0.weight", lambda t: t > 0, "0.weight is stored as bool"),
    "complex": ("0.weight", lambda t: t.to(torch.complex64), "0.weight is stored as complex64"),
    "fp8": ("0.weight", lambda t: t.to(torch.float8_e4m3fn), "0.weight is stored as float8_e4m3fn"),
    "overflow": ("0.weight", lambda t: t.double() * 1e300, "0.weight holds NaN or inf"),
    "negative": ("1.running_var", lambda t: -t, "1.running_var holds negative variances"),
}


@pytest.mark.parametrize("what", BAD_NUMBERS)
def test_numbers_that_are_no_weights_are_named(tmp_path: Path, what: str) -> None:
    tensor, change, message = BAD_NUMBERS[what]
    torch.save(changed(tensor, change), tmp_path / "c.pt")
    model = small()
    with pytest.raises(CheckpointError, match=re.escape(message)):
        load_checkpoint(model, tmp_path / "c.pt")
    assert same(model, small())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_floats_are_weights(tmp_path: Path, dtype: torch.dtype) -> None:
    torch.save(changed("0.weight", lambda t: t.to(dtype)), tmp_path / "c.pt")
    assert load_checkpoint(small(), tmp_path / "c.pt").matched == 7


@pytest.mark.parametrize("length", [1, 2, 7])
def test_a_file_that_holds_itself_is_refused(tmp_path: Path, length: int) -> None:
    first: dict[str, Any] = {}
    inner = first
    for _ in range(length - 1):
        inner["state_dict"] = {}
        inner = inner["state_dict"]
    inner["model"] = first
    torch.save(first, tmp_path / "c.pt")
    with pytest.raises(CheckpointError, match="holds itself and no weights"):
        load_checkpoint(small(), tmp_path / "c.pt")


@pytest.mark.parametrize("name", ["x" * 5000 + ".pt", "a\0b"])
def test_names_that_cannot_be(name: str) -> None:
    with pytest.raises(CheckpointError, match="there is no checkpoint file") as e:
        load_checkpoint(small(), name)
    assert len(str(e.value)) < 300
