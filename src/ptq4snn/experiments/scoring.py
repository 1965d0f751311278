"""One evaluation pass that also tells which samples were classified right."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ptq4snn.evaluation.accuracy import TOP
from ptq4snn.evaluation.metrics import evaluate
from ptq4snn.evaluation.readout import Readout, find_readout
from ptq4snn.progress import Progress

__all__ = ["pack", "score", "unpack"]


class Watched:
    """Batches for `evaluate`, cut to `limit` samples; notes for each what the model made of it."""

    def __init__(
        self, model: nn.Module, batches: Any, batch_axis: int, limit: int | None, progress: Progress
    ) -> None:
        self.model, self.batches, self.axis, self.limit, self.progress = (
            model, batches, batch_axis, limit, progress,
        )  # fmt: skip
        self.samples = getattr(batches, "samples", None)  # evaluate asks it for the number of classes
        self.output: Any = None
        self.readout: Readout | None = None
        self.right: list[Tensor] = []

    def __iter__(self) -> Iterator[Any]:
        size = len(self.batches) if isinstance(self.batches, Sized) else None
        for batch in self.progress.track(first(self.batches, self.limit, self.axis), size, "evaluating"):
            yield batch
            self.note(batch)

    def note(self, batch: Any) -> None:
        """The model has run on this batch; `output` is of its last call, the whole batch."""
        if not isinstance(batch, tuple | list) or len(batch) < 2 or torch.as_tensor(batch[1]).dim() != 1:
            return
        output, x, y = self.output, torch.as_tensor(batch[0]), torch.as_tensor(batch[1]).cpu()
        if self.readout is None:
            device = next((t.device for t in [*self.model.parameters(), *self.model.buffers()]), x.device)
            self.readout = find_readout(self.model, x.to(device), self.axis)
        logits = self.readout(output).cpu()  # [B, classes]
        best = logits.topk(min(TOP, logits.shape[1]), 1).indices[:, 0]  # as Accuracy ranks equal logits
        self.right.append(best == y)


def first(batches: Iterable[Any], limit: int | None, batch_axis: int) -> Iterator[Any]:
    """The first `limit` samples of the batches."""
    left = limit
    for batch in batches:
        if left is None:
            yield batch
            continue
        labelled = isinstance(batch, tuple | list)
        x = torch.as_tensor(batch[0] if labelled else batch)
        x = x.narrow(batch_axis, 0, min(left, x.shape[batch_axis]))
        left -= x.shape[batch_axis]
        yield (x, *(part[: x.shape[batch_axis]] for part in batch[1:])) if labelled else x
        if left == 0:
            return


def score(
    model: nn.Module, batches: Any, batch_axis: int, limit: int | None, progress: Progress
) -> dict[str, Any]:
    """The result of `evaluate`, and `right`: a hex string with a bit for each sample (None: no classes)."""
    watched = Watched(model, batches, batch_axis, limit, progress)

    def keep(_module: nn.Module, _args: Any, output: Any) -> None:
        watched.output = output

    handle = model.register_forward_hook(keep)
    try:
        result = evaluate(model, watched, batch_axis)
    finally:
        handle.remove()
    result["right"] = pack(torch.cat(watched.right)) if watched.right else None
    return result


def pack(right: Tensor) -> str:
    """Bools [n] as hex digits, eight to a byte, the first in the highest bit."""
    return np.packbits(right.numpy()).tobytes().hex()


def unpack(text: str, count: int) -> Tensor:
    """The bools [count] of `pack`."""
    bits = np.unpackbits(np.frombuffer(bytes.fromhex(text), np.uint8))
    return torch.from_numpy(bits[:count].astype(bool))
