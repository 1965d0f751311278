"""Discovery: one real forward pass, read as pairs, streams and bare neurons."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ptq4snn.discovery.batchnorm import is_norm
from ptq4snn.discovery.editing import Moved, edit_model
from ptq4snn.discovery.exclusion import advice, is_inside
from ptq4snn.discovery.facts import Constant, Current, Fact
from ptq4snn.discovery.graph import Graph, NodeKind
from ptq4snn.discovery.info import NeuronInfo, ProjectionInfo
from ptq4snn.discovery.moving import find_moves
from ptq4snn.discovery.needed_edits import needed_edits
from ptq4snn.discovery.opening import bake
from ptq4snn.discovery.outputs import output_axis
from ptq4snn.discovery.pairs import find_streams, find_ties, read_neurons
from ptq4snn.discovery.positions import find_places
from ptq4snn.discovery.projection_modules import is_projection
from ptq4snn.discovery.reading_projections import read_projections
from ptq4snn.discovery.record import record
from ptq4snn.discovery.resetting import reset_neurons
from ptq4snn.discovery.spike_scales import find_spike_scales
from ptq4snn.discovery.transposing import TRANSPOSED
from ptq4snn.discovery.unknown import no_neurons, unknown_neuron
from ptq4snn.discovery.walk import Then, Walk, walk
from ptq4snn.errors import DataError, UnsupportedModel, UnsupportedNeuron, UnsupportedOperation, first_line
from ptq4snn.frameworks import NeuronSpec, adapter_of
from ptq4snn.frameworks.compound import Before
from ptq4snn.memory import ran_out
from ptq4snn.network.edit import Edit

MOST_EDITS = 4096

__all__ = ["Discovery", "OutputInfo", "discover", "neuron_specs", "reset_neurons"]


@dataclass(frozen=True)
class OutputInfo:
    """How an output becomes real numbers; `projection` (any writer of a stream) is None where it is real."""

    projection: str | None
    axis: int
    then: tuple[tuple[str, int], ...] = ()  # softmax, argmax and their axes from the end, behind that
    scales: tuple[float, ...] = ()  # of spikes: what those of each channel along `axis` are worth


@dataclass(frozen=True)
class Discovery:
    graph: Graph
    specs: dict[str, NeuronSpec]
    neurons: dict[str, NeuronInfo]
    projections: dict[str, ProjectionInfo]
    outputs: tuple[OutputInfo, ...]
    step_outputs: tuple[OutputInfo, ...]  # of one step of a net inside its loop
    excluded: tuple[str, ...]  # modules that stay float
    single_step: bool  # every neuron was called once, on one time step, and keeps its state for the next
    folded_calls: tuple[str, ...]  # of those that moved: what is in the weights already when BatchNorms are
    unused_neurons: tuple[str, ...]
    unused_projections: tuple[str, ...]
    edits: tuple[Edit, ...] = ()  # of calls in the model's code

    @property
    def shortcuts(self) -> frozenset[str]:
        """Projections with weights of one, through which spikes are added to a current."""
        return frozenset(e.path for e in self.edits if e.kind == "shortcut")

    @property
    def norms(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(n.name for p in self.projections.values() for n in p.norms))

    @property
    def transformer(self) -> bool:
        """Streams or bare neurons: the paper searches (s_w, k) jointly there."""
        return any(n.kind != "pair" for n in self.neurons.values())

    def to_dict(self) -> dict[str, Any]:
        return {
            "neurons": [
                {
                    "name": n.name,
                    "kind": n.kind,
                    "projections": [
                        {"name": p, "norms": [m.name for m in self.projections[p].norms]}
                        for p in n.projections
                    ],
                    "spike_sources": list(n.spike_sources),
                    "ops": list(n.ops),
                    "state_shape": list(n.layout.shape),
                    "channels": n.layout.channels,
                    "channel_axes": list(n.layout.dims),
                    "steps": n.steps,
                    "carries_state": n.carries_state,
                    "stream": n.stream,
                    "stem": n.stem,
                    "readout": n.readout,
                    "zero_state": n.zero_state,
                }
                for n in self.neurons.values()
            ],
            "projections": [
                {
                    "name": p.name,
                    "role": p.role,
                    "reads": p.reads,
                    "norms": [m.name for m in p.norms],
                    "feeds": list(p.feeds),
                    "macs": p.macs,
                    "stream": p.stream,
                }
                for p in self.projections.values()
            ],
            "unused_neurons": list(self.unused_neurons),
            "unused_projections": list(self.unused_projections),
        }

    def summary(self) -> str:
        from ptq4snn.discovery.listing import render

        return render(self)


def neuron_specs(model: nn.Module, excluded: Collection[str] = ()) -> dict[str, NeuronSpec]:
    """Canonical form of every neuron of the model that is not excluded, by module path."""
    specs = {}
    for name, module in model.named_modules():
        adapter = adapter_of(module)
        if adapter is not None and not is_inside(name, excluded):
            specs[name] = spec = adapter.spec(module, name)
            if not all(bool(torch.isfinite(v).all()) for v in (spec.leak, spec.gain, spec.theta, spec.rho)):
                raise UnsupportedNeuron(
                    f"the threshold, leak or reset of the neuron '{name}' is not finite; give it a finite one"
                )
    if not specs and excluded:
        raise UnsupportedModel("no spiking neuron is left to quantize: all of them are excluded")
    if not specs:
        raise no_neurons(model)
    return specs


def _classify(name: str, module: nn.Module, excluded: Collection[str]) -> NodeKind | None:
    if name in excluded:
        return "float"
    if is_projection(module):
        return "projection"
    if is_norm(module):
        return "norm"
    if isinstance(module, Before):
        return "before"
    if isinstance(module, Moved):
        return "moved"
    return "neuron" if adapter_of(module) is not None else None


def discover(
    model: nn.Module, sample: Tensor, batch_axis: int = 0, excluded: Collection[str] = ()
) -> Discovery:
    """Follow `sample` (a batch) through `model` once. The model is put into eval mode. Where integers cannot
    follow it, calls in its code are edited (network/edit.py), in place, and it is followed again."""
    neuron_specs(model, excluded)
    try:
        return _edited(model, sample, batch_axis, excluded)
    except (UnsupportedOperation, UnsupportedModel) as why:
        unknown = unknown_neuron(model, excluded, why)  # else its first operation would be told, not itself
        if unknown is None or isinstance(why, UnsupportedNeuron):
            raise
        raise unknown from why


def _edited(model: nn.Module, sample: Tensor, batch_axis: int, excluded: Collection[str]) -> Discovery:
    edits: tuple[Edit, ...] = ()
    while True:
        graph = _recorded(model, sample, excluded)
        try:
            found = replace(_read(model, graph, sample.shape[batch_axis], excluded, edits), edits=edits)
        except UnsupportedOperation:
            more = needed_edits(graph, model) if len(edits) < MOST_EDITS else ()
            if not more or _places(more) & _places(edits):  # an edit that is wished again was of no use
                raise
            edit_model(model, more)
            edits += more
            bake(model, [sample])
        else:
            return _with_moves(found, model, sample, batch_axis, excluded)


def _with_moves(
    found: Discovery, model: nn.Module, sample: Tensor, batch_axis: int, excluded: Collection[str]
) -> Discovery:
    """With what forward does to the input and to its results taken out of it."""
    moves = find_moves(found.graph, model, sample)
    if not moves.edits:
        return found
    edit_model(model, moves.edits)
    edits = (*found.edits, *moves.edits)
    graph = _recorded(model, sample, excluded)
    read = _read(model, graph, sample.shape[batch_axis], excluded, edits)
    projections = {
        name: replace(p, gains=moves.inputs[name][0], offsets=moves.inputs[name][1])
        if name in moves.inputs
        else p
        for name, p in read.projections.items()
    }
    return replace(read, projections=projections, edits=edits)


def _places(edits: tuple[Edit, ...]) -> set[tuple[str, int, int]]:
    return {(e.scope, e.place, e.turn) for e in edits}


def _recorded(model: nn.Module, sample: Tensor, excluded: Collection[str]) -> Graph:
    neuron_specs(model, excluded)
    _refuse_transposed(model, excluded)
    model.eval()
    reset_neurons(model)
    try:
        return record(model, sample, lambda name, m: _classify(name, m, excluded))[0]
    except (RuntimeError, ValueError, TypeError, LookupError, AttributeError, AssertionError) as why:
        if ran_out(why):
            raise
        lone = ", or give batches: for one sample x.unsqueeze(0)" if sample.dim() == 1 else ""
        raise DataError(
            f"the model cannot run on a sample of shape {list(sample.shape)} and type {sample.dtype}: "
            f"{first_line(why)}; check the input's shape and type and batch_axis{lone}"
        ) from why
    finally:
        reset_neurons(model)


def _read(
    model: nn.Module, graph: Graph, batch: int, excluded: Collection[str], edits: tuple[Edit, ...]
) -> Discovery:
    """What one recorded pass says."""
    specs = neuron_specs(model, excluded)
    modules = dict(model.named_modules())
    w = walk(graph, model)
    if w.outputs and isinstance(w.outputs[0], Constant):
        raise UnsupportedModel(
            "the model's output is not made by anything in its forward pass; a neuron's state must be "
            "returned by the neuron (as snnTorch does), not read from an attribute: return spikes or a "
            "projection instead"
        )
    ties = find_ties(w, {e.path for e in edits if e.kind == "shortcut"})
    streams = find_streams(w, ties)
    neurons = _own_steps(w, read_neurons(w, specs, streams), batch)
    specs = {n: s for n, s in specs.items() if n not in w.floating}
    if both := sorted(set(w.floating) & set(neurons)):
        raise UnsupportedOperation(
            f"the neuron '{both[0]}' is fed by an excluded part and also by others; use one each, or "
            "exclude it"
        )
    if not neurons:
        hint = "all of them are excluded" if w.floating or excluded else "check the model's forward"
        raise UnsupportedModel(f"no spiking neuron ran in the forward pass that could be quantized; {hint}")
    projections = read_projections(w, neurons, streams, ties, modules, batch)
    for name, places in find_places(graph, modules).items():
        projections[name] = replace(projections[name], places=places)
        _check_places(projections[name])
    scales = find_spike_scales(graph, modules)
    for name, columns in scales.columns.items():
        projections[name] = replace(projections[name], columns=columns)
    outputs = _read_outputs(w, w.outputs, w.then, projections, streams)
    return Discovery(
        graph=graph,
        specs=specs,
        neurons=neurons,
        projections=projections,
        outputs=tuple(_worth(o, scales.outputs.get(v)) for o, v in zip(outputs, graph.outputs, strict=True)),
        step_outputs=_read_outputs(w, w.step_outputs, w.step_then, projections, streams),
        excluded=(*excluded, *dict.fromkeys(w.floating)),
        single_step=all(c.steps is None for c in w.neurons) and set(w.steps.values()) == {1},
        folded_calls=tuple(sorted(scales.folded)),
        unused_neurons=tuple(n for n in specs if n not in neurons),
        unused_projections=tuple(
            n
            for n, m in modules.items()
            if is_projection(m) and n not in projections and not is_inside(n, excluded)
        ),
    )


def _worth(output: OutputInfo, found: tuple[int, Tensor] | None) -> OutputInfo:
    """With factors of spikes that are returned."""
    return output if found is None else replace(output, axis=found[0], scales=tuple(found[1].tolist()))


def _check_places(p: ProjectionInfo) -> None:
    if p.over_time or p.tied or p.summed:
        what = "reads a mean over time" if p.over_time else "is summed with others"
        raise UnsupportedOperation(
            f"a constant that differs from position to position is added to the output of '{p.name}', which "
            f"{what}; add it to the output of another layer, or keep it in float: {advice([p.name])}"
        )


def _refuse_transposed(model: nn.Module, excluded: Collection[str]) -> None:
    for name, m in model.named_modules():
        if isinstance(m, TRANSPOSED) and not is_inside(name, excluded):
            raise UnsupportedOperation(
                f"'{name}' is a {type(m).__name__} with a forward or hooks of its own; use nn's as it is, or "
                f"keep it in float: {advice([name])}"
            )


def _own_steps(w: Walk, neurons: dict[str, NeuronInfo], batch: int) -> dict[str, NeuronInfo]:
    """Steps of one sample, also where a neuron sees time and batch on one axis, as in QKFormer."""
    apart = [c.name for c in w.neurons if c.batch > 1]
    longest = max((neurons[n].steps for n in apart), default=0)
    merged = {c.name for c in w.neurons if c.batch == 1 and neurons[c.name].steps == batch * longest}
    return {n: replace(i, steps=i.steps // batch) if n in merged else i for n, i in neurons.items()}


def _read_outputs(
    w: Walk, facts: list[Fact], then: list[Then], projections: dict[str, ProjectionInfo],
    streams: dict[str, int],
) -> tuple[OutputInfo, ...]:  # fmt: skip
    outputs = []
    for fact, end in zip(facts, then, strict=True):
        axis = output_axis(w, fact, streams) if isinstance(fact, Current) else None
        name = min(fact.projections) if isinstance(fact, Current) else ""
        real = axis is None or projections[name].decode
        outputs.append(OutputInfo(None, 0, end) if real or axis is None else OutputInfo(name, axis, end))
    return tuple(outputs)
