"""Which axis of the samples is the batch: the neurons tell.

One sample more or less must change the batch that the neurons see, never the number of their time steps.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor, nn

from ptq4snn.discovery.looping import Looped
from ptq4snn.discovery.resetting import reset_neurons
from ptq4snn.errors import DataError
from ptq4snn.frameworks import adapter_of

__all__ = ["check_batch_axis"]


def check_batch_axis(model: nn.Module, neurons: Collection[str], x: Tensor, batch_axis: int) -> None:
    """Raise where the samples lie on the axis that the neurons of these names take for time."""
    one = x.narrow(batch_axis, 0, 1)
    try:
        counts = [_steps_and_batch(model, neurons, b) for b in (one, torch.cat([one, one], batch_axis))]
    except (RuntimeError, ValueError, TypeError, IndexError):
        return  # a model that wants other numbers of samples; what is wrong shows elsewhere
    (steps, batch), (more_steps, more_batch) = counts
    # one neuron may see time and samples on one axis, as in QKFormer; then others see the samples apart
    if more_batch == batch and any(more_steps[n] > steps[n] for n in neurons):
        if isinstance(model, Looped):
            raise DataError(
                "the neurons take the samples of a step for time: the net runs whole sequences by itself, so "
                "leave steps or loop away; or its loop hands it another axis of the samples than a step"
            )
        other = 1 - batch_axis if batch_axis < 2 else 0
        raise DataError(
            f"the neurons take axis {batch_axis} of the samples {list(x.shape)} for time, not for the "
            f"samples: give batch_axis={other}"
        )


def _steps_and_batch(
    model: nn.Module, neurons: Collection[str], x: Tensor
) -> tuple[dict[str, int], dict[str, int]]:
    """Time steps and batch size of every neuron in one pass."""
    steps: dict[str, int] = dict.fromkeys(neurons, 0)
    batch: dict[str, int] = {}
    handles = []
    for name in neurons:
        module = model.get_submodule(name)
        adapter = adapter_of(module)
        assert adapter is not None

        def note(m: nn.Module, args: Any, name: str = name, adapter: Any = adapter) -> None:
            if args and isinstance(args[0], Tensor):
                several = adapter.steps(m, args[0])
                steps[name] += 1 if several is None else several
                batch[name] = int(args[0].shape[0 if several is None else 1])

        handles.append(module.register_forward_pre_hook(note))
    reset_neurons(model)
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            model(x)
    finally:
        reset_neurons(model)
        for h in handles:
            h.remove()
    return steps, batch
