"""Neurons of the quantized network one after the other, each on the currents that the tuned ones before it
send, in a single pass where the network lets them.

A neuron that is called once, with the whole sequence, is halted at this call: it runs on what has reached it
with a probe, is tuned, and runs again as it is then; the pass goes on. All samples go in one batch. A network
that calls its neurons step by step has no such moment: there each neuron takes a pass of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ptq4snn.frameworks import Shell
from ptq4snn.memory import ran_out
from ptq4snn.modules.integer import IntegerCore
from ptq4snn.modules.quantized import QuantizedModel
from ptq4snn.modules.readout import same_draws
from ptq4snn.observation.traces import Trace
from ptq4snn.prepared import Prepared, join
from ptq4snn.progress import stepping
from ptq4snn.stages import TUNING
from ptq4snn.tuning.tuning_traces import (
    float_traces,
    quantized_trace,
    quantized_tracer,
    trace_batches,
    with_float_spikes,
)

__all__ = ["traces_in_order"]

Tune = Callable[[str, Trace], None]  # takes a neuron's trace and changes the model's plan


class _StepByStep(Exception):
    """A neuron was called with less than a sequence, or twice."""


class _Enough(Exception):
    """All neurons have had their turn."""


def traces_in_order(prepared: Prepared, model: QuantizedModel, names: Sequence[str], tune: Tune) -> None:
    """Hand `tune` the trace of every neuron of `names`, in execution order; it sees what was tuned before."""
    left = dict.fromkeys(names)
    with stepping(prepared.progress, len(names), TUNING) as advance:

        def done(name: str, trace: Trace) -> None:
            tune(name, trace)
            del left[name]
            advance()

        batches = join(trace_batches(prepared), prepared.batch_axis)
        if len(batches) == 1:
            _in_one_pass(prepared, model, left, batches[0], done)
        for name in list(left):
            done(name, quantized_trace(prepared, model, name))


def _in_one_pass(
    prepared: Prepared, model: QuantizedModel, left: dict[str, None], x: Tensor, done: Tune
) -> None:
    """Those of `left` that can be tuned so, until one cannot."""
    stops = Stops(prepared, model, left, done)
    handles = [
        model.model.get_submodule(name).register_forward_pre_hook(partial(stops.halt, name), with_kwargs=True)
        for name in left
    ]
    model.reset_state()
    try:
        with torch.no_grad(), same_draws():
            model(x)
    except (_StepByStep, _Enough):
        return
    except (MemoryError, RuntimeError) as why:  # a neuron at a time takes less, and finds the same
        if stops.tuning or not ran_out(why):
            raise
    finally:
        for handle in handles:
            handle.remove()
        model.reset_state()


@dataclass
class Stops:
    """Where the pass is halted: in front of every neuron that is `left`, in their order."""

    prepared: Prepared
    model: QuantizedModel
    left: dict[str, None]
    done: Tune
    seen: set[str] = field(default_factory=set)
    tuning: bool = False  # a neuron is tuned, which no number of samples hangs on

    def halt(self, name: str, shell: nn.Module, args: Any, kwargs: Any) -> None:
        """In front of a neuron's call: what reaches it, then the neuron tuned."""
        if name in self.seen or next(iter(self.left)) != name:
            raise _StepByStep
        self.seen.add(name)
        assert isinstance(shell, Shell) and isinstance(shell.core, IntegerCore)
        core, clock = shell.core, (self.model.clock.steps, shell.core._seen)
        tracer = quantized_tracer(self.prepared, self.model, name)
        core.probe, core.listens = tracer, True
        try:
            shell.forward(*args, **kwargs)
        finally:
            core.probe, core.listens = None, False
            shell.reset()
            self.model.clock.steps, core._seen = clock
        steps = self.prepared.folded.discovery.neurons[name].steps
        if len(tracer.rows) != 1 or len(tracer.rows[0]) < steps:
            raise _StepByStep
        found = tracer.trace()
        if found.currents.shape != float_traces(self.prepared)[name].currents.shape:
            raise _StepByStep  # what a call sees hangs on the batch
        self.tuning = True
        self.done(name, with_float_spikes(self.prepared, name, found))
        self.tuning = False
        if not self.left:
            raise _Enough
