"""Put a checkpoint's weights into a model, whole or not at all, and account for every name."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from ptq4snn.checkpoint.fitting import check_fit, listing, own_tensors
from ptq4snn.checkpoint.naming import COUNTER, adapt
from ptq4snn.checkpoint.reading import read
from ptq4snn.errors import CheckpointError
from ptq4snn.files import short

__all__ = ["Loaded", "load_checkpoint"]

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
VARIANCE = "running_var"  # of BatchNorm


@dataclass(frozen=True)
class Loaded:
    """What became of the names of the file and of the model."""

    path: Path
    matched: int  # tensors that were loaded
    renamed: int = 0  # of those, under another name than the file's
    ignored: dict[str, str] = field(default_factory=dict)  # the file's names that were left out, and why
    absent: tuple[str, ...] = ()  # the model's names that the file lacks and that do not matter
    average: str | None = None  # the file's key of averaged weights, which were not used

    def account(self) -> str:
        """One line; empty if the file was taken as it is."""
        unused = [n for n in self.absent if not n.endswith(COUNTER)]
        parts = [f"{self.renamed} renamed from the official names"] if self.renamed else []
        parts += [f"{count} ignored ({reason})" for reason, count in Counter(self.ignored.values()).items()]
        if unused:
            parts.append(f"{listing('not in the file, nor ever used,', unused)}")
        if self.average is not None:
            parts.append(f"averaged weights ({self.average}) not used")
        return f"{self.path}: {self.matched} tensors, {'; '.join(parts)}" if parts else ""


def load_checkpoint(model: nn.Module, path: str | Path, anew: str = "") -> Loaded:
    """Load `path` (safetensors, or torch.save of a state_dict, wrapped or not) into `model`.

    What belongs to the module `anew` stays as it is in the model, such as a head for other classes.
    """
    path = Path(path)
    content = read(path)
    named = adapt(model, content.state)
    state = _without(model, named.state, anew) if anew else named.state
    check_fit(model, state, path)
    check_numbers(model, state, path)
    model.load_state_dict(state, strict=False)  # only what is optional can still be missing
    return Loaded(
        path,
        len(state),
        named.renamed,
        named.ignored,
        tuple(k for k in own_tensors(model) if k not in state),
        content.average,
    )


def _without(model: nn.Module, state: dict[str, Tensor], anew: str) -> dict[str, Tensor]:
    """The file's tensors, those of a module replaced by the model's own."""
    own = {k: v for k, v in own_tensors(model).items() if k.startswith(f"{anew}.")}
    if not own:
        raise CheckpointError(f"the model has no weights in {short(anew)!r} that could start anew")
    return {k: v for k, v in state.items() if not k.startswith(f"{anew}.")} | own


def check_numbers(model: nn.Module, state: dict[str, Tensor], path: Path) -> None:
    """That weights are real numbers, finite in the model's own type, and variances not negative."""
    own = own_tensors(model)
    for name, tensor in state.items():
        if name not in own or not own[name].is_floating_point():
            continue
        if tensor.dtype not in FLOATS:
            kind = str(tensor.dtype).removeprefix("torch.")
            raise CheckpointError(f"{path}: {name} is stored as {kind}: export the weights as float32")
        if not bool(tensor.to(own[name].dtype).isfinite().all()):
            raise CheckpointError(f"{path}: {name} holds NaN or inf; train or export the model again")
        if name.rpartition(".")[2] == VARIANCE and bool((tensor < 0).any()):
            raise CheckpointError(f"{path}: {name} holds negative variances; train or export the model again")
