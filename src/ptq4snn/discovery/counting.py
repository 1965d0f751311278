"""How often a neuron may fire in a step, where its framework sets no limit: found on samples.

A neuron that fires floor(H / threshold) times (sinabs's MultiSpike) has no bound but its input's, and
integers need one. It is the least 2^b - 1 that is no less than twice the most that a micro-batch of samples
makes it fire, a byte at the most. What goes beyond it stays in the membrane of a neuron that subtracts.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from ptq4snn.discovery.resetting import reset_neurons
from ptq4snn.frameworks.adapter import COUNTS
from ptq4snn.frameworks.compound import Stage
from ptq4snn.frameworks.core import FloatCore, Probe

__all__ = ["limit_counts"]

ROOM = 2  # times what was seen


def limit_counts(model: nn.Module, x: Tensor) -> None:
    """Give every neuron of `model` that counts without a limit one, from a forward pass on `x`."""
    counting = [m for m in model.modules() if isinstance(m, Stage) and m.spec.most is None]
    if not counting:
        return
    seen = dict.fromkeys(counting, 1)

    def note(stage: Stage) -> Probe:
        def probe(_x: Tensor, _h: Tensor, s: Tensor, _v: Tensor, _t: int) -> None:
            seen[stage] = max(seen[stage], int(s.max()) if s.numel() else 0)

        return probe

    reset_neurons(model)
    for stage in counting:
        stage.core.probe = note(stage)
    with torch.no_grad():
        model(x)
    for stage, most in seen.items():
        stage.spec = replace(stage.spec, most=min(COUNTS, 2 ** (ROOM * most).bit_length() - 1))
        stage.core = FloatCore(stage.spec)
    reset_neurons(model)
