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


def evaluate(
    model: nn.Module, batches: Iterable[Any], batch_axis: int = 0, progress: Progress | None = None
) -> dict[str, Any]:
    """Acc@1 and Acc@5 in %, and the number of samples. Batches without labels give no accuracy."""
    progress = progress or Silent()
    readout: Readout | None = None
    first: Tensor | None = None
    samples = labelled = top1 = top5 = 0
    size = len(batches) if isinstance(batches, Sized) else None
    was_training = model.training
    model.eval()
    for batch in progress.track(batches, size, "evaluating"):
        x, y = (batch[0], batch[1]) if isinstance(batch, (tuple, list)) and len(batch) > 1 else (batch, None)
        x = x[0] if isinstance(x, (tuple, list)) else x
        check(x, first, batch_axis)
        first = x if first is None else first
        x = x.to(next((t.device for t in [*model.parameters(), *model.buffers()]), x.device))
        readout = readout or find_readout(model, x, batch_axis)
        reset_neurons(model)
        with torch.no_grad():
            logits = readout(model(x)).cpu()
        samples += x.shape[batch_axis]
        if y is not None:
            best = logits.topk(min(5, logits.shape[1]), 1).indices == torch.as_tensor(y).unsqueeze(1)
            labelled += torch.as_tensor(y).numel()
            top1 += int(best.narrow(1, 0, 1).sum())
            top5 += int(best.sum())
    reset_neurons(model)
    model.train(was_training)
    if samples == 0:
        raise DataError("no samples to evaluate; give at least one batch")
    share = (lambda n: 100.0 * n / labelled) if labelled else (lambda n: None)
    return {"samples": samples, "accuracy": share(top1), "accuracy_top5": share(top5)}
