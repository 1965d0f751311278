"""What `evaluate` measured of a bundle, written into the report beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ptq4snn.bundle.report_check import BUNDLE
from ptq4snn.discovery.discover import reset_neurons
from ptq4snn.errors import PTQ4SNNError
from ptq4snn.evaluation.examples import EXAMPLES, Example, Examples, decisions, is_map
from ptq4snn.modules.readout import find_readout, same_draws
from ptq4snn.modules.saving import read_report, write_report
from ptq4snn.report.figures import segmentation
from ptq4snn.report.figures.common import rounded
from ptq4snn.schema.report_types import Evaluation, Report
from ptq4snn.schema.score_types import Metrics, Result

__all__ = ["Gallery", "evaluation", "record"]

ABOUT = ("task", "samples", "limit", "throughput", "right")  # keys of a result that are no metrics


def record(
    file: Path, data: str, limit: int | None, quantized: Result, before: Result | None,
    examples: Examples | None = None,
) -> Report:  # fmt: skip
    """Put an evaluation into the report in `file`, in the place of an older one of the same data and limit.

    quantized, before: results of `evaluate`, the second of the float model. Returns the whole report.
    """
    read = read_report(file)
    figures, evaluations = read.get("figures"), read.get("evaluations")
    if not isinstance(figures, dict) or not isinstance(evaluations, list) or BUNDLE not in read:
        raise PTQ4SNNError(f"{file} is not the report of this version of ptq4snn: quantize again")
    report = cast(Report, read)
    entry = evaluation(data, limit, quantized, before)
    for older in (e for e in evaluations if _same(e, entry)):
        entry["float"] = entry["float"] or older.get("float")  # the float model has not changed
    report["evaluations"] = [*(e for e in evaluations if not _same(e, entry)), entry]
    if examples is not None:
        report["figures"]["segmentation"] = rounded(segmentation.data(examples))
    write_report(file, report)
    return report


def evaluation(data: str, limit: int | None, quantized: Result, before: Result | None) -> Evaluation:
    """What the report keeps of an evaluation."""
    return {
        "data": data,
        "samples": quantized["samples"],
        "limit": limit,
        "task": quantized["task"],
        "float": None if before is None else _metrics(before),
        "quantized": _metrics(quantized),
    }


def _metrics(result: Result) -> Metrics:
    return cast(Metrics, {k: v for k, v in result.items() if k not in ABOUT})


def _same(a: Any, b: Mapping[str, Any]) -> bool:
    return isinstance(a, dict) and all(a.get(k) == b[k] for k in ("data", "limit", "samples"))


class Gallery:
    """The first images of a labelled segmentation, and what models make of them."""

    def __init__(self, batch_axis: int) -> None:
        self.axis = batch_axis
        self.classes = 0
        self.images: tuple[Tensor, Tensor] | None = None  # x, label maps [n, H, W]
        self.maps: dict[str, list[Tensor]] = {}

    def look(self, name: str, model: nn.Module, batches: Iterable[Any]) -> None:
        """Keep what the model `name` decides over every pixel. Nothing where there are no label maps."""
        if self.images is None:
            self.images = _first(batches, self.axis)
        if self.images is None:
            return
        x = self.images[0]
        x = x.to(next((t.device for t in [*model.parameters(), *model.buffers()]), x.device))
        with torch.no_grad(), same_draws():
            logits = find_readout(model, x, self.axis)(model(x))
        reset_neurons(model)
        if is_map(logits):
            self.classes, self.maps[name] = logits.shape[1], decisions(logits, x.shape[-2:])

    def examples(self, quantized: str, before: str) -> Examples | None:
        """Of the models of these names; the float one need not have looked."""
        if self.images is None or quantized not in self.maps:
            return None
        x, y = self.images
        labels = F.interpolate(y[:, None].double(), size=x.shape[-2:], mode="nearest")[:, 0].long()
        floats = self.maps.get(before)
        rows = [
            Example(x.select(self.axis, i), None if floats is None else floats[i], found, labels[i])
            for i, found in enumerate(self.maps[quantized])
        ]
        return Examples(self.classes, tuple(rows))


def _first(batches: Iterable[Any], batch_axis: int) -> tuple[Tensor, Tensor] | None:
    """The first images with their label maps; None where there are none."""
    batch = next(iter(batches), None)
    if not isinstance(batch, tuple | list) or len(batch) < 2:
        return None
    x, y = batch[:2]
    x, y = (torch.as_tensor(part).cpu() for part in (x[0] if isinstance(x, tuple | list) else x, y))
    count = min(EXAMPLES, len(y))
    return (x.narrow(batch_axis, 0, count), y[:count]) if y.dim() == 3 else None
