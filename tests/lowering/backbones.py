"""Backbones reduced to a few channels, and what is asked of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from lowering.small import lively, quantized
from oracles.simulation import check_same
from torch import Tensor, nn

FRAMES = (3, 2, 16, 16)


@dataclass(frozen=True)
class Case:
    build: Callable[[], nn.Module]
    input: tuple[int, ...] = (2, 8, 8)
    kinds: frozenset[str] = frozenset()  # operations that must occur, beside those that always do
    free: bool = True  # no element has to be moved in memory


def samples(case: Case, n: int, seed: int = 0) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    shape = (n, *case.input)
    if len(shape) == 5:
        return torch.poisson(torch.full(shape, 0.5), generator=g)
    return torch.randint(0, 256, shape, generator=g) / 128 - 1


def check_backbone(case: Case) -> None:
    """Spikes, states and logits; nothing moved that need not be; the stem of a still image computed once."""
    x = samples(case, 8)
    q = quantized(lively(case.build, x), x)
    assert q.program is not None, q.not_lowered
    trace = check_same(q, q.program, samples(case, 3, 1))
    kinds = {o.kind for o in q.program.operations}
    assert case.kinds <= kinds
    assert case.free == ("gather" not in kinds)
    rates = [float(s.mean()) for s in trace.spikes.values()]
    assert sum(rates) / len(rates) > 0.1 and min(rates) > 0
    still = len(case.input) == 3
    assert q.program.input.time_axis == (None if still else 1) and q.program.input.batch_axis == 0
    stem = next(o for o in q.program.operations if o.kind == "project")
    assert q.program.values[stem.output].time != still  # a still image is convolved once
