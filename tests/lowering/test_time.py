"""Where time is: in the input, in loops of the model's own, in sums, or nowhere."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from lowering.small import images, lively, program_of, quantized
from oracles.simulation import check_same
from torch import Tensor, nn

from ptq4snn.lowering import lower
from ptq4snn.models.neuron import LIF
from ptq4snn.models.patches import per_step
from ptq4snn.models.qkformer import QKFormer
from ptq4snn.models.sew_resnet import SEWResNet
from ptq4snn.models.spikformer import Spikformer
from ptq4snn.models.vgg import SpikingVGG
from ptq4snn.modules.quantized import QuantizedModel
from ptq4snn.network.program import Neuron, TimeSum


def frames(n: int, steps: int, seed: int = 0, size: int = 8) -> Tensor:
    """Event counts [B, T, 2, size, size]."""
    g = torch.Generator().manual_seed(seed)
    return torch.poisson(torch.full((n, steps, 2, size, size), 0.6), generator=g)


def ready(build: Callable[[], nn.Module], x: Tensor, batch_axis: int = 0) -> QuantizedModel:
    q = quantized(lively(build, x), x, batch_axis)
    assert q.program is not None, q.not_lowered
    return q


def set_steps(q: QuantizedModel, steps: int) -> None:
    q.model.T = steps  # type: ignore[assignment]


def test_another_number_of_steps_of_a_still_image() -> None:
    q = ready(lambda: SEWResNet((4,), (1,), (1,), 5, 5, 2, 3), images())
    for steps in (1, 2, 5):
        set_steps(q, steps)
        check_same(q, program_of(q), images(4, seed=2), steps)


def test_another_number_of_steps_behind_a_mean_over_time() -> None:
    """Spikformer's head reads a mean over time: its bias stays, whatever T is."""
    q = ready(lambda: Spikformer(16, 1, 4, 5, 2, 3, mlp_ratio=1), images())
    assert q.plan.projections["head"].over_time
    for steps in (1, 2, 5):
        set_steps(q, steps)
        check_same(q, program_of(q), images(3, seed=3), steps)


@pytest.mark.parametrize("time_first", [False, True])
def test_frames_of_another_length(time_first: bool) -> None:
    """Time on axis 1 or 0, samples on the other."""

    def arrange(x: Tensor) -> Tensor:
        return x.transpose(0, 1).contiguous() if time_first else x

    q = ready(
        lambda: SpikingVGG(((4,), (5,)), 5, 2, dvs=not time_first), arrange(frames(8, 3)), int(time_first)
    )
    assert (program_of(q).input.time_axis, program_of(q).input.batch_axis) == (
        (0, 1) if time_first else (1, 0)
    )
    for n, steps in ((1, 3), (2, 7), (5, 2)):
        check_same(q, program_of(q), arrange(frames(n, steps, 1)))


def test_a_time_axis_as_long_as_the_channel_axis() -> None:
    """Two frames of two channels: the neurons tell which is which."""
    q = ready(lambda: SpikingVGG(((4,), (5,)), 5, 2, dvs=True), frames(8, 2))
    assert program_of(q).input.time_axis == 1 and program_of(q).input.shape == (2, 8, 8)
    check_same(q, program_of(q), frames(3, 4, 1))


def test_a_single_step() -> None:
    q = ready(lambda: SEWResNet((4,), (1,), (1,), 5, 5, 2, 1), images())
    check_same(q, program_of(q), images(3, seed=1))
    assert not any(o.once for o in program_of(q).operations if isinstance(o, Neuron))


def test_a_single_sample() -> None:
    x = images(1)
    q = quantized(
        lively(lambda: SEWResNet((4,), (1,), (1,), 5, 5, 2, 3), images()), x, calibration=1, holdout=1
    )
    assert q.program == lower(q, x)
    check_same(q, program_of(q), images(4, seed=1))


class Averaged(nn.Module):
    """Spikes averaged over time in front of a neuron, which runs once, and `read` as the model's output."""

    def __init__(self, read: Callable[[Tensor], Tensor] = lambda y: y[0]) -> None:
        super().__init__()
        self.a, self.n1 = nn.Conv2d(2, 4, 3, padding=1), LIF()
        self.b, self.n2 = nn.Conv2d(4, 4, 3, padding=1), LIF(v_threshold=0.3)
        self.head, self.read = nn.Linear(4, 5), read

    def forward(self, x: Tensor) -> Tensor:
        s = self.n1(self.a(x).expand(3, len(x), 4, 8, 8))
        y = self.n2(per_step(self.b, s).mean(0, keepdim=True))
        return self.read(self.head(y.mean((3, 4))))


def test_a_neuron_behind_a_mean_over_time_runs_once() -> None:
    q = ready(Averaged, images())
    check_same(q, program_of(q), images(3, seed=1))
    once = {o.name: o.once for o in program_of(q).operations if isinstance(o, Neuron)}
    assert once == {"n1": False, "n2": True}
    sums = [o for o in program_of(q).operations if isinstance(o, TimeSum)]
    assert len(sums) == 1 and not program_of(q).values[sums[0].output].time


class Returned(nn.Module):
    """`read` makes the output of logits [T, B, 3] and spikes [T, B, 6]."""

    def __init__(self, read: Callable[[Tensor, Tensor], object]) -> None:
        super().__init__()
        self.a, self.n1 = nn.Linear(12, 6), LIF()
        self.head, self.read = nn.Linear(6, 3), read

    def forward(self, x: Tensor) -> object:
        s = self.n1(self.a(x).expand(3, len(x), 6))
        return self.read(self.head(s), s)


def accumulated(y: Tensor, s: Tensor) -> Tensor:
    total = torch.zeros_like(y[0])
    for t in range(3):
        total = total + y[t]
    return total / 3


READS: dict[str, Callable[[Tensor, Tensor], object]] = {
    "all steps": lambda y, s: y,
    "samples first": lambda y, s: y.transpose(0, 1),
    "classes first": lambda y, s: y.permute(2, 1, 0),
    "sum": lambda y, s: y.sum(0),
    "loop": accumulated,
    "last": lambda y, s: y[-1],
    "spikes": lambda y, s: s,
    "two": lambda y, s: (y.mean(0), {"rate": s.mean(0), "pairs": s.unflatten(2, (3, 2)).mean(3).mean(0)}),
    "groups": lambda y, s: s.unflatten(2, (2, 3)).mean(3).sum(0) * 0.7,
}


@pytest.mark.parametrize("name", READS)
def test_output(name: str) -> None:
    x = torch.rand(12, 12, generator=torch.Generator().manual_seed(0))
    q = ready(lambda: Returned(READS[name]), x)
    check_same(q, program_of(q), x[:5])


def test_the_loop_is_one_operation_of_each_kind() -> None:
    x = torch.rand(8, 12, generator=torch.Generator().manual_seed(0))
    q = ready(lambda: Returned(accumulated), x)
    assert [o.kind for o in program_of(q).operations] == [
        "quantize",
        "project",
        "neuron",
        "project",
        "time_sum",
    ]
    assert program_of(q).outputs[0].scalings == (("steps",),)


def test_a_state_that_runs_on_from_sample_to_sample() -> None:
    x = images()
    build = lambda: QKFormer(16, (1, 1), 2, 5, 2, 2, 1, layout="events", merged_state=True)  # noqa: E731
    q = quantized(lively(build, x), x)
    assert q.program is None
    assert "'stage2.0.ssa.proj_lif' sees time and samples on one axis" in q.not_lowered
