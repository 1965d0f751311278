"""What is in a checkpoint file: tensors by name, out of whatever a training program wrapped them in.

Files of torch.save are pickles. torch's weights-only reader builds tensors, numbers, texts, lists and dicts,
and refuses all other classes and functions by name. Training programs also save their options
(argparse.Namespace), paths and numpy numbers: for those names the reader is given stand-ins that take
anything and do nothing, so that the tensors beside them can be read, and no code of the file, of numpy or of
pathlib runs.
"""

from __future__ import annotations

import pickle
import pickletools
import threading
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from ptq4snn.errors import CheckpointError
from ptq4snn.files import is_file, short

__all__ = ["Content", "read"]

WRAPPERS = ("state_dict", "model", "model_state_dict", "net")
AVERAGES = ("state_dict_ema", "model_ema")  # of timm: running averages of the weights
STAND_INS = (
    "argparse.Namespace",
    *(
        f"{module}.{name}"
        for module in ("pathlib", "pathlib._local")
        for name in ("Path", "PurePath", "PosixPath", "PurePosixPath", "WindowsPath", "PureWindowsPath")
    ),
    *(
        f"{core}.multiarray.{name}"
        for core in ("numpy.core", "numpy._core")
        for name in ("scalar", "_reconstruct")
    ),
    "numpy.dtype",
    "numpy.ndarray",
    "mmengine.logging.history_buffer.HistoryBuffer",
)
ALONE = threading.Lock()  # torch's list of allowed names is one for all threads


class StandIn:
    """Any object of no use here."""

    def __new__(cls, *_: Any, **__: Any) -> StandIn:
        return object.__new__(cls)

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __setstate__(self, state: Any) -> None: ...


def stand_in(path: str) -> type[StandIn]:
    """A stand-in that torch's reader takes for the class or function of that name."""
    module, name = path.rsplit(".", 1)
    return type(name, (StandIn,), {"__module__": module, "__qualname__": name})


@contextmanager
def stand_ins() -> Iterator[None]:
    """Have torch's reader use the stand-ins, here only."""
    ours: list[Any] = [stand_in(path) for path in STAND_INS]
    with ALONE:
        torch.serialization.add_safe_globals(ours)
        try:
            yield
        finally:
            others = [g for g in torch.serialization.get_safe_globals() if g not in ours]
            torch.serialization.clear_safe_globals()
            torch.serialization.add_safe_globals(others)


@dataclass(frozen=True)
class Content:
    """Tensors by name; `average`: the key under which the file has averaged weights too."""

    state: dict[str, Tensor]
    average: str | None = None


def read(path: Path) -> Content:
    """The file's weights, on the CPU."""
    return unwrap(read_file(path), path)


def read_file(path: Path) -> Any:
    """All of the file; pickled objects that could run code are refused unexecuted."""
    if not is_file(path):
        raise CheckpointError(f"there is no checkpoint file {short(path)}")
    try:
        with warnings.catch_warnings(), stand_ins():
            warnings.simplefilter("ignore")  # torch's advice on pickle protocols; refusals are raised anyway
            if path.suffix == ".safetensors":
                return load_file(path)
            return torch.load(path, map_location="cpu", weights_only=True)
    except OSError as e:
        raise CheckpointError(f"cannot read the checkpoint {path}: {e.strerror or e}") from e
    except Exception as e:  # arbitrary bytes make the parsers raise anything, KeyError included
        if isinstance(e, pickle.UnpicklingError) and (zipfile.is_zipfile(path) or is_pickle(path)):
            raise CheckpointError(
                f"{path} holds Python objects besides tensors, and loading them could run code: "
                "save model.state_dict() alone, with torch.save or as safetensors"
            ) from e
        raise CheckpointError(f"{path} is truncated or not a checkpoint: copy or save it again") from e


def is_pickle(path: Path) -> bool:
    """Whether the file starts with a whole pickle; reads its instructions without running them."""
    try:
        with path.open("rb") as file:
            return any(op.name == "STOP" for op, _, _ in pickletools.genops(file))
    except Exception:  # not a pickle
        return False


def unwrap(content: Any, path: Path) -> Content:
    """The state_dict inside training checkpoints such as {'model': ..., 'epoch': ...}."""
    average = None
    seen = set[int]()  # of what is alive inside of the file's content
    while isinstance(content, Mapping):
        if id(content) in seen:
            raise CheckpointError(f"{path} holds itself and no weights: save model.state_dict()")
        seen.add(id(content))
        inner = [k for k in (*WRAPPERS, *AVERAGES) if isinstance(content.get(k), Mapping)]
        if not inner:
            break
        average = average or next((k for k in inner[1:] if k in AVERAGES), None)
        content = content[inner[0]]
    if isinstance(content, Mapping):
        tensors = {str(k): v for k, v in content.items() if isinstance(v, Tensor) and is_dense(v)}
        if tensors:
            return Content(tensors, average)
    raise CheckpointError(f"{path} holds no tensors by name: save model.state_dict()")


def is_dense(tensor: Tensor) -> bool:
    """Whether it holds plain numbers: not sparse, quantized, nested or empty of data."""
    odd = tensor.is_quantized or tensor.is_meta or tensor.is_nested
    return tensor.layout == torch.strided and not odd
