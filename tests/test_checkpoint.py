"""Checkpoints: wrappers and prefixes are undone, misfits are named, code in pickles never runs."""

from __future__ import annotations

import argparse
import os
import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from ptq4snn.checkpoint import load_checkpoint
from ptq4snn.errors import CheckpointError


def net(seed: int) -> nn.Sequential:
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
    "wrap",
    [
        lambda s: s,
        lambda s: {"state_dict": s, "epoch": 3},
        lambda s: {"model": s, "optimizer": {"state": {}}},
        lambda s: {"state_dict": {"model": s}},
        lambda s: {"module." + k: v for k, v in s.items()},
        lambda s: {"model": {"module._orig_mod." + k: v for k, v in s.items()}},
        lambda s: {k: v for k, v in s.items() if "num_batches" not in k},
    ],
)
def test_loads_what_training_scripts_save(tmp_path: Path, wrap: Any) -> None:
    source, target = net(1), net(2)
    torch.save(wrap(source.state_dict()), tmp_path / "c.pt")
    assert not same(source, target)
    load_checkpoint(target, tmp_path / "c.pt")
    assert same(source, target)


def test_loads_safetensors_and_strings(tmp_path: Path) -> None:
    source, target = net(1), net(2)
    save_file(dict(source.state_dict()), tmp_path / "c.safetensors")
    load_checkpoint(target, str(tmp_path / "c.safetensors"))
    assert same(source, target)


def test_mismatches_are_listed(tmp_path: Path) -> None:
    state: dict[str, Tensor] = dict(net(1).state_dict())
    del state["0.weight"], state["0.bias"]
    state |= {f"extra{i}": torch.zeros(1) for i in range(5)}
    state["3.weight"] = torch.zeros(100, 4)
    torch.save(state, tmp_path / "c.pt")
    message = refusal(net(2), tmp_path / "c.pt")
    assert "does not fit Sequential" in message
    assert "missing 0.weight, 0.bias;" in message
    assert "unexpected extra0, extra1, extra2 and 2 more;" in message
    assert "wrong shape 3.weight (100, 4) instead of (10, 4);" in message


def test_one_module_prefix_is_no_wrapper(tmp_path: Path) -> None:
    state = {("module." + k if k == "0.weight" else k): v for k, v in net(1).state_dict().items()}
    torch.save(state, tmp_path / "c.pt")
    message = refusal(net(2), tmp_path / "c.pt")
    assert "missing 0.weight" in message and "unexpected module.0.weight" in message


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_not_finite_names_the_tensor(tmp_path: Path, value: float) -> None:
    state = dict(net(1).state_dict())
    state["1.running_var"][2] = value
    torch.save(state, tmp_path / "c.pt")
    assert "1.running_var holds NaN or inf" in refusal(net(2), tmp_path / "c.pt")


class Malicious:
    """Touches a file when unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.file),)


@pytest.mark.parametrize("how", ["pickle", "zip", "legacy"])
def test_malicious_pickle_is_not_executed(tmp_path: Path, how: str) -> None:
    proof, file = tmp_path / "proof", tmp_path / "c.pt"
    content = {"0.weight": torch.zeros(1), "x": Malicious(proof)}
    if how == "pickle":
        file.write_bytes(pickle.dumps(Malicious(proof)))
    else:
        torch.save(content, file, _use_new_zipfile_serialization=how == "zip")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        message = refusal(net(2), file)
    assert "holds Python objects besides tensors" in message and "state_dict()" in message
    assert not proof.exists()
    with file.open("rb") as f:  # the file is dangerous indeed: the test could fail
        if how == "pickle":
            pickle.load(f)
            assert proof.exists()


def test_objects_beside_tensors_are_refused(tmp_path: Path) -> None:
    torch.save({"model": net(1).state_dict(), "args": argparse.Namespace(lr=1)}, tmp_path / "c.pt")
    assert "holds Python objects" in refusal(net(2), tmp_path / "c.pt")
    torch.save(net(1), tmp_path / "m.pt")
    assert "holds Python objects" in refusal(net(2), tmp_path / "m.pt")


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
@pytest.mark.parametrize("damage", ["truncated", "garbage", "empty", "zeros"])
def test_damaged_files(tmp_path: Path, suffix: str, damage: str) -> None:
    file = tmp_path / f"c{suffix}"
    if suffix == ".pt":
        torch.save(net(1).state_dict(), file)
    else:
        save_file(dict(net(1).state_dict()), file)
    whole = file.read_bytes()
    bad = {
        "truncated": whole[: len(whole) // 2],
        "garbage": b"hello world, this is not a checkpoint",
        "empty": b"",
        "zeros": bytes(200),
    }
    file.write_bytes(bad[damage])
    assert "is truncated or not a checkpoint" in refusal(net(2), file)


def test_missing_file_and_no_tensors(tmp_path: Path) -> None:
    assert "there is no checkpoint file" in refusal(net(2), tmp_path / "no.pt")
    assert "there is no checkpoint file" in refusal(net(2), tmp_path)
    for content in ({"epoch": 3}, [torch.zeros(2)], torch.zeros(2)):
        torch.save(content, tmp_path / "c.pt")
        assert "holds no tensors by name" in refusal(net(2), tmp_path / "c.pt")
