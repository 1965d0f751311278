"""Put a checkpoint's weights into a model, or say why they do not fit. Never runs code of the file."""

from __future__ import annotations

import pickle
import pickletools
import warnings
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from ptq4snn.errors import CheckpointError

__all__ = ["load_checkpoint"]

WRAPPERS = ("state_dict", "model", "model_state_dict")
PREFIXES = ("module.", "_orig_mod.")  # DataParallel, torch.compile
COUNTER = "num_batches_tracked"  # of BatchNorm, unused in inference: older checkpoints lack it
SHOWN = 3


def load_checkpoint(model: nn.Module, path: str | Path) -> None:
    """Load `path` (safetensors, or torch.save of tensors only) into `model`, whole or not at all."""
    path = Path(path)
    state = without_prefix(unwrap(read(path), path))
    check_fit(model, state, path)
    for name, tensor in state.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise CheckpointError(f"{path}: {name} holds NaN or inf; train or export the model again")
    model.load_state_dict(state, strict=False)  # only counters can still be missing


def read(path: Path) -> Any:
    """The file's content, tensors on the CPU; pickled objects other than tensors are refused unexecuted."""
    if not path.is_file():
        raise CheckpointError(f"there is no checkpoint file {path}")
    try:
        with warnings.catch_warnings():
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


def unwrap(content: Any, path: Path) -> dict[str, Tensor]:
    """The state_dict inside training checkpoints such as {'model': ..., 'epoch': ...}."""
    while isinstance(content, Mapping):
        inner = next((content[k] for k in WRAPPERS if isinstance(content.get(k), Mapping)), None)
        if inner is None:
            break
        content = inner
    if isinstance(content, Mapping):
        tensors = {str(k): v for k, v in content.items() if isinstance(v, Tensor)}
        if tensors:
            return tensors
    raise CheckpointError(f"{path} holds no tensors by name: save model.state_dict()")


def without_prefix(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Names without what wrappers put before every one of them."""
    while prefix := next((p for p in PREFIXES if all(k.startswith(p) for k in state)), ""):
        state = {k.removeprefix(prefix): v for k, v in state.items()}
    return state


def check_fit(model: nn.Module, state: Mapping[str, Tensor], path: Path) -> None:
    """Raise if names or shapes differ from the model's."""
    own = {k: v for k, v in model.state_dict().items() if isinstance(v, Tensor)}
    parts = [
        listing("missing", (k for k in own if k not in state and not k.endswith(COUNTER))),
        listing("unexpected", (k for k in state if k not in own)),
        listing(
            "wrong shape",
            (
                f"{k} {tuple(state[k].shape)} instead of {tuple(v.shape)}"
                for k, v in own.items()
                if k in state and state[k].shape != v.shape
            ),
        ),
    ]
    if any(parts):
        raise CheckpointError(
            f"{path} does not fit {type(model).__name__}: {'; '.join(filter(None, parts))}; "
            "give the model that this checkpoint was trained with"
        )


def listing(title: str, items: Iterable[str]) -> str:
    """`title a, b, c and 7 more`, or nothing."""
    every = list(items)
    if not every:
        return ""
    more = f" and {len(every) - SHOWN} more" if len(every) > SHOWN else ""
    return f"{title} {', '.join(every[:SHOWN])}{more}"
