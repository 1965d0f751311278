"""Accuracy of a float or quantized model over labelled batches."""

from __future__ import annotations

from collections.abc import Iterable, Sized
from typing import Any

import torch
from torch import Tensor, nn

from ptq4snn.calibration import check
from ptq4snn.discovery.discover import reset_neurons
from ptq4snn.errors import DataError
from ptq4snn.evaluation.readout import Readout, find_readout
from ptq4snn.progress import Progress, Silent

__all__ = ["evaluate"]

BATCH = 256


def evaluate(
    model: nn.Module, batches: Iterable[Any], batch_axis: int = 0, progress: Progress | None = None
) -> dict[str, Any]:
    """Acc@1 and Acc@5 in %, and the number of samples. Batches without labels give no accuracy."""
    if isinstance(batches, Tensor):
        batches = batches.split(BATCH, batch_axis)
    training = [m for m in model.modules() if m.training]
    model.eval()
    try:
        with torch.random.fork_rng(devices=[]):
            return _evaluate(model, batches, batch_axis, progress or Silent())
    finally:
        reset_neurons(model)
        for m in training:
            m.training = True


def _evaluate(
    model: nn.Module, batches: Iterable[Any], batch_axis: int, progress: Progress
) -> dict[str, Any]:
    first: Tensor | None = None
    readout: Readout | None = None
    samples = labelled = top1 = top5 = 0
    size = len(batches) if isinstance(batches, Sized) else None
    for batch in progress.track(batches, size, "evaluating"):
        x, y = _split(batch, first, batch_axis)
        first = x if first is None else first
        readout, logits = _logits(model, x, readout, batch_axis)
        samples += x.shape[batch_axis]
        if y is not None:
            best = logits.topk(min(5, logits.shape[1]), 1).indices == y.unsqueeze(1)
            labelled += y.numel()
            top1 += int(best.narrow(1, 0, 1).sum())
            top5 += int(best.sum())
    if samples == 0:
        raise DataError("no samples to evaluate; give at least one batch")
    share = (lambda n: 100.0 * n / labelled) if labelled else (lambda n: None)
    return {"samples": samples, "accuracy": share(top1), "accuracy_top5": share(top5)}


def _split(batch: Any, first: Tensor | None, batch_axis: int) -> tuple[Tensor, Tensor | None]:
    """Inputs and labels of a batch, checked against each other."""
    x, y = (batch[0], batch[1]) if isinstance(batch, (tuple, list)) and len(batch) > 1 else (batch, None)
    x = torch.as_tensor(x[0] if isinstance(x, (tuple, list)) else x)
    check(x, first, batch_axis)
    if y is None:
        return x, None
    y = torch.as_tensor(y)
    if y.dim() == 0 or len(y) != x.shape[batch_axis]:
        raise DataError(f"{x.shape[batch_axis]} samples came with labels of shape {list(y.shape)}")
    return x, y


def _logits(model: nn.Module, x: Tensor, readout: Readout | None, batch_axis: int) -> tuple[Readout, Tensor]:
    x = x.to(next((t.device for t in [*model.parameters(), *model.buffers()]), x.device))
    try:
        readout = readout or find_readout(model, x, batch_axis)
        reset_neurons(model)
        with torch.no_grad():
            return readout, readout(model(x)).cpu()
    except (RuntimeError, ValueError, TypeError, IndexError) as why:
        raise DataError(
            f"the model cannot run on a batch of shape {list(x.shape)} and type {x.dtype}: "
            f"{str(why).splitlines()[0]}; check the input and batch_axis"
        ) from why
