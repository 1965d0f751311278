"""Files of all kinds: wrapped, saved on a GPU, with options beside the weights, damaged, malicious."""

from __future__ import annotations

import argparse
import builtins
import os
import pickle
import warnings
import zipfile
from pathlib import Path, PureWindowsPath
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from ptq4snn.checkpoint.reading import STAND_INS, StandIn, read
from ptq4snn.errors import CheckpointError

STATE = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.tensor([7])}


def refusal(file: Path) -> str:
    with warnings.catch_warnings(), pytest.raises(CheckpointError) as e:
        warnings.simplefilter("error")
        read(file)
    assert "\n" not in str(e.value) and str(file) in str(e.value)
    return str(e.value)


def is_state(found: dict[str, torch.Tensor]) -> bool:
    return found.keys() == STATE.keys() and all(torch.equal(found[k], STATE[k]) for k in STATE)


@pytest.mark.parametrize(
    ("wrapped", "average"),
    [
        (STATE, None),
        ({"state_dict": STATE, "epoch": 3}, None),
        ({"model": STATE, "optimizer": {"state": {0: {"step": torch.zeros(1)}}}}, None),
        ({"model_state_dict": STATE, "loss": 1.5}, None),
        ({"net": STATE}, None),
        ({"state_dict": {"model": STATE}}, None),
        ({"state_dict_ema": {"a": torch.zeros(1)}, "state_dict": STATE}, "state_dict_ema"),
        ({"model": STATE, "model_ema": {"a": torch.zeros(1)}}, "model_ema"),
        ({"state_dict_ema": STATE}, None),  # there is nothing else
    ],
)
def test_wrappers_are_undone(tmp_path: Path, wrapped: Any, average: str | None) -> None:
    torch.save(wrapped, tmp_path / "c.pth")
    content = read(tmp_path / "c.pth")
    assert is_state(content.state) and content.average == average


def test_safetensors(tmp_path: Path) -> None:
    save_file(STATE, tmp_path / "c.safetensors")
    assert is_state(read(tmp_path / "c.safetensors").state)


def say_gpu(file: Path) -> None:
    """Change the place of every tensor in a file from cpu to cuda:0, as if it were saved on a GPU."""
    here, there = b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:0"  # pickled texts with their lengths
    if not zipfile.is_zipfile(file):
        file.write_bytes(file.read_bytes().replace(here, there))
        return
    with zipfile.ZipFile(file) as old:
        parts = {i.filename: old.read(i) for i in old.infolist()}
    with zipfile.ZipFile(file, "w") as new:
        for name, part in parts.items():
            new.writestr(name, part.replace(here, there) if name.endswith("data.pkl") else part)


@pytest.mark.parametrize("zipped", [True, False])
def test_files_saved_on_a_gpu(tmp_path: Path, zipped: bool) -> None:
    file = tmp_path / "c.pth"
    torch.save({"model": STATE}, file, _use_new_zipfile_serialization=zipped)
    say_gpu(file)
    if not torch.cuda.is_available():  # the file does ask for one
        with pytest.raises(RuntimeError, match="CUDA"):
            torch.load(file, weights_only=True)
    content = read(file)
    assert is_state(content.state) and all(t.device.type == "cpu" for t in content.state.values())


OPTIONS = argparse.Namespace(
    lr=0.1,
    data=Path("/data/imagenet"),
    other=PureWindowsPath("c:/data"),
    nested=argparse.Namespace(names=["a"], best=np.float64(63.2)),
)


@pytest.mark.parametrize("zipped", [True, False])
def test_options_beside_the_weights_are_skipped(tmp_path: Path, zipped: bool) -> None:
    content = {"model": STATE, "args": OPTIONS, "best": np.float32(63.2), "scores": np.arange(3.0)}
    torch.save(content, tmp_path / "c.pth", _use_new_zipfile_serialization=zipped)
    with pytest.raises(pickle.UnpicklingError):  # torch itself refuses the file
        torch.load(tmp_path / "c.pth", weights_only=True)
    before = set(torch.serialization.get_safe_globals())
    assert is_state(read(tmp_path / "c.pth").state)
    assert set(torch.serialization.get_safe_globals()) == before  # and does so again


@pytest.mark.parametrize("path", STAND_INS)
def test_stand_ins_do_nothing_whatever_they_are_given(tmp_path: Path, path: str) -> None:
    """The object in the file calls the class, sets its state and its attributes: nothing of it arrives."""
    module, name = path.rsplit(".", 1)
    call = f"c{module}\n{name}\n(Vx\ntR}}(Vproof\nVx\nub."  # GLOBAL, arguments, REDUCE, state, BUILD
    found = load_weights_only(call.encode())
    assert isinstance(found, StandIn) and vars(found) == {}


def load_weights_only(data: bytes) -> Any:
    import io

    from torch._weights_only_unpickler import load

    from ptq4snn.checkpoint.reading import stand_ins

    binary = data.replace(b"Vx\n", b"X\x01\x00\x00\x00x").replace(b"Vproof\n", b"X\x05\x00\x00\x00proof")
    with stand_ins():
        return load(io.BytesIO(b"\x80\x02" + binary))


class Calls:
    """Calls a function when unpickled."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self.function, self.arguments


@pytest.mark.parametrize("how", ["pickle", "zip", "legacy"])
@pytest.mark.parametrize("inside", ["beside", "in the options"])
def test_malicious_pickle_is_not_executed(tmp_path: Path, how: str, inside: str) -> None:
    proof, file = tmp_path / "proof", tmp_path / "c.pt"
    bad = Calls(os.mkdir, str(proof))
    content: Any = {"a": torch.zeros(1), "x": bad if inside == "beside" else argparse.Namespace(x=bad)}
    if how == "pickle":
        file.write_bytes(pickle.dumps(bad))
    else:
        torch.save(content, file, _use_new_zipfile_serialization=how == "zip")
    message = refusal(file)
    assert "holds Python objects besides tensors" in message and "state_dict()" in message
    assert not proof.exists()
    if how == "pickle":  # the file is dangerous indeed: the test could fail
        pickle.loads(file.read_bytes())
        assert proof.exists()


@pytest.mark.parametrize(
    "bad",
    [
        Calls(os.system, "true"),
        Calls(builtins.eval, "1"),
        Calls(builtins.getattr, OPTIONS, "lr"),
        Calls(builtins.open, "proof", "w"),
        Calls(torch.load, "c.pt"),
        torch.nn.Linear(1, 1),
    ],
)
def test_functions_and_modules_are_refused(tmp_path: Path, bad: Any) -> None:
    torch.save({"model": STATE, "x": bad}, tmp_path / "c.pt")
    assert "holds Python objects" in refusal(tmp_path / "c.pt")


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
@pytest.mark.parametrize("damage", ["truncated", "garbage", "empty", "zeros"])
def test_damaged_files(tmp_path: Path, suffix: str, damage: str) -> None:
    file = tmp_path / f"c{suffix}"
    if suffix == ".pt":
        torch.save(STATE, file)
    else:
        save_file(STATE, file)
    whole = file.read_bytes()
    bad = {
        "truncated": whole[: len(whole) // 2],
        "garbage": b"hello world, this is not a checkpoint",
        "empty": b"",
        "zeros": bytes(200),
    }
    file.write_bytes(bad[damage])
    assert "is truncated or not a checkpoint" in refusal(file)


def test_missing_file_and_no_tensors(tmp_path: Path) -> None:
    assert "there is no checkpoint file" in refusal(tmp_path / "no.pt")
    assert "there is no checkpoint file" in refusal(tmp_path)
    sparse = torch.eye(2).to_sparse()
    for content in ({"epoch": 3}, [torch.zeros(2)], torch.zeros(2), OPTIONS, {"a": sparse}):
        torch.save(content, tmp_path / "c.pt")
        assert "holds no tensors by name" in refusal(tmp_path / "c.pt")
