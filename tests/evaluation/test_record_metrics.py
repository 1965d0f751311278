"""What evaluate leaves in a report: examples of any layout and label size."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ptq4snn.data.samples import VOID
from ptq4snn.errors import PTQ4SNNError
from ptq4snn.evaluation.record_metrics import Gallery, record


class Sums(nn.Module):
    """Frames [T, B, 2, H, W] to logits [T, B, 2, H / 2, W / 2]."""

    def __init__(self, sign: float) -> None:
        super().__init__()
        self.sign = sign

    def forward(self, x: Tensor) -> Tensor:
        return self.sign * nn.functional.avg_pool2d(x.flatten(0, 1), 2).unflatten(0, x.shape[:2])


def test_time_first_and_labels_of_another_size() -> None:
    x = torch.rand(3, 6, 2, 4, 8, generator=torch.Generator().manual_seed(0))  # T, B, polarities, H, W
    y = torch.arange(6 * 8 * 16).reshape(6, 8, 16) % 2
    y[0, 0, :2] = VOID
    gallery = Gallery(batch_axis=1)
    assert gallery.examples("q", "float") is None
    gallery.look("q", Sums(1.0), [(x, y)])
    gallery.look("float", Sums(-1.0), [])  # the images are known already
    found = gallery.examples("q", "float")
    assert found is not None and found.classes == 2 and len(found.rows) == 4
    mean = nn.functional.avg_pool2d(x.mean(0), 2)
    wanted = nn.functional.interpolate(mean, size=(4, 8), mode="bilinear").argmax(1)
    for i, e in enumerate(found.rows):
        assert torch.equal(e.x, x[:, i]) and torch.equal(e.after, wanted[i])
        assert e.before is not None and torch.equal(e.before, 1 - wanted[i])
        assert e.label is not None and torch.equal(e.label, y[i, ::2, ::2])
    assert int(found.rows[0].label[0, 0]) == VOID  # type: ignore[index]


def test_inputs_in_a_list_are_read_as_evaluate_does() -> None:
    x = torch.rand(2, 2, 4, 4)
    gallery = Gallery(batch_axis=0)
    gallery.look("q", nn.Identity(), [([x], torch.ones(2, 4, 4))])
    found = gallery.examples("q", "float")
    assert found is not None and torch.equal(found.rows[1].x, x[1]) and found.rows[1].before is None


@pytest.mark.parametrize("batches", [[], [torch.rand(2, 2, 4, 4)], [(torch.rand(2, 2, 4, 4), torch.ones(2))]])
def test_data_without_label_maps(batches: list[object]) -> None:
    gallery = Gallery(batch_axis=0)
    gallery.look("q", nn.Identity(), batches)
    assert gallery.examples("q", "float") is None


def test_what_is_kept_of_a_result(tmp_path: Path) -> None:
    file = tmp_path / "m.ptq.report.json"
    file.write_text(
        json.dumps({"summary": {}, "figures": {"memory": {}}, "evaluations": ["odd"], "bundle": ""})
    )
    result: Any = {
        "samples": 5, "task": "classification", "accuracy": 50.0, "accuracy_top5": None, "limit": 5,
        "throughput": {"samples_per_second": 1.0},
    }  # fmt: skip
    written: Any = record(file, "x.npz", 5, result, None)
    assert written == json.loads(file.read_text())
    assert written["figures"] == {"memory": {}} and written["evaluations"][0] == "odd"
    assert written["evaluations"][1] == {
        "data": "x.npz", "samples": 5, "limit": 5, "task": "classification", "float": None,
        "quantized": {"accuracy": 50.0, "accuracy_top5": None},
    }  # fmt: skip
    with pytest.raises(PTQ4SNNError, match="quantize again"):
        record(tmp_path / "absent.json", "x.npz", 5, result, None)
