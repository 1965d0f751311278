"""Traces of the float network, and of the quantized one against the float network's spikes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ptq4snn.modules.quantized import QuantizedModel
from ptq4snn.observation.float_traces import FloatTracers
from ptq4snn.observation.traces import SAMPLES, Trace, Tracer, record_traces
from ptq4snn.prepare import enough_samples
from ptq4snn.prepared import Prepared

__all__ = ["float_traces", "quantized_trace", "quantized_tracer", "trace_batches", "with_float_spikes"]


def trace_batches(prepared: Prepared) -> Sequence[Tensor]:
    """The samples that traces are taken of."""
    first, axis = prepared.kept[0], prepared.batch_axis
    size = max(1, first.shape[axis])
    return prepared.kept[: max(1, enough_samples(first, axis, SAMPLES, size) // size)]


def _samples(prepared: Prepared) -> int:
    return sum(x.shape[prepared.batch_axis] for x in trace_batches(prepared))


def float_traces(prepared: Prepared) -> dict[str, Trace]:
    """Of every neuron that carries a state; recorded when first asked for, if not while it was observed."""
    if not prepared.cache.traces:
        folded, batches = prepared.folded, trace_batches(prepared)
        tracers = FloatTracers.of(folded, batches, prepared.batch_axis)
        cores = {name: folded.core(name) for name in tracers.by_neuron}
        record_traces(folded.model, cores, tracers.by_neuron, batches, prepared.room)
        prepared.cache.traces = tracers.traces()
    return prepared.cache.traces


def quantized_tracer(prepared: Prepared, model: QuantizedModel, name: str) -> Tracer:
    """A probe for the currents that reach a neuron of the quantized model."""
    info, core = prepared.folded.discovery.neurons[name], model.core(name)

    def current(x: Tensor) -> Tensor:
        return core.potential(core.incoming(x)) - core.plan.v_rest

    found = Tracer(info.layout, current, info.steps, _samples(prepared))
    unit = torch.tensor(core.plan.unit, dtype=torch.float64)[:, None]

    def of_rows(x: Tensor) -> Tensor:  # [C, n]: the same, one unit a row
        h = core.incoming(x.as_subclass(Tensor))
        return (h.double() * unit + core.plan.v_rest).float() - core.plan.v_rest

    found.of_rows = of_rows
    return found


def quantized_trace(prepared: Prepared, model: QuantizedModel, name: str) -> Trace:
    """Currents that reach a neuron of the quantized model, with the spikes that the float network fires."""
    tracers = {name: quantized_tracer(prepared, model, name)}
    cores = {name: model.core(name)}
    found = record_traces(model, cores, tracers, trace_batches(prepared), prepared.room)[name]
    return with_float_spikes(prepared, name, found)


def with_float_spikes(prepared: Prepared, name: str, found: Trace) -> Trace:
    return replace(found, spikes=float_traces(prepared)[name].spikes)
