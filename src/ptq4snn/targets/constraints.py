"""Every constraint of a target, place by place: met or broken, in one line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ptq4snn.export.c99.figures import Figures
from ptq4snn.targets.network_facts import Cell, Layer, Network
from ptq4snn.targets.target import Target

__all__ = ["Finding", "findings"]

RESET_WORDS = {"hard": "to rest", "soft": "by subtraction", "none": "never"}
FEATURE_WORDS = {
    "recurrence": "spikes that come back a step later",
    "residual": "a sum of several branches",
    "stream": "a rescaled current between layers",
    "attention": "products of activities",
    "max-pool": "a maximum",
    "synapse": "a synaptic current with a state of its own",
}


@dataclass(frozen=True)
class Finding:
    """One constraint at one place. `place` is empty where the whole network is meant."""

    constraint: str
    place: str
    met: bool
    text: str


def findings(target: Target, network: Network, figures: Figures | None) -> list[Finding]:
    """All constraints of the target; `figures` where it limits memory."""
    out = [f for layer in network.layers for f in _of_layer(target, layer)]
    out += [f for cell in network.cells for f in _of_cell(target, cell)]
    out += _of_whole(target, network)
    if target.cores:
        out += _of_cores(target, network.layers)
    if figures is not None:
        out += _of_memory(target, figures)
    return out


def _of_layer(target: Target, layer: Layer) -> Iterator[Finding]:
    if target.weight_bits is not None:
        least, most = target.weight_bits
        text = f"weights of {layer.bits} bits, {most} at most"
        if layer.bits < least:
            text = f"weights of {layer.bits} bits, stored in {least}"
        yield Finding("weight_bits", layer.name, layer.bits <= most, text)
    if target.one_scale:
        text = "one scale for all weights" if layer.scales == 1 else f"{layer.scales} scales, one is allowed"
        yield Finding("one_scale", layer.name, layer.scales == 1, text)
    if target.dense:
        text = (
            "fully connected" if layer.dense else "not fully connected: a convolution, or shared by positions"
        )
        yield Finding("dense", layer.name, layer.dense, text)
    if target.kernel is not None and layer.kernel:
        sides, longest = " x ".join(map(str, layer.kernel)), max(layer.kernel)
        text = f"a kernel of {sides}, sides of {target.kernel} at most"
        yield Finding("kernel", layer.name, longest <= target.kernel, text)
    if target.strides and layer.stride:
        found, allowed = " x ".join(map(str, layer.stride)), ", ".join(map(str, target.strides))
        met = set(layer.stride) <= set(target.strides)
        yield Finding("strides", layer.name, met, f"a stride of {found}, one of {allowed}")


def _of_cell(target: Target, cell: Cell) -> Iterator[Finding]:
    if target.state_bits is not None:
        least, most = target.state_bits
        text = f"a state of {cell.bits} bits"
        text += f", {cell.held} with its zero point" if cell.held != cell.bits else ""
        text += f", stored in {least}" if cell.held < least else f", {most} at most"
        yield Finding("state_bits", cell.name, cell.held <= most, text)
    if target.leak is not None:
        yield Finding("leak", cell.name, *_leak(target.leak, cell))
    if cell.emits != "spikes":
        return
    if target.resets:
        yield Finding("resets", cell.name, *_reset(target.resets, cell))
    if target.comparator is not None:
        same = cell.comparator == target.comparator
        text = f"fires where the potential is {target.comparator} its threshold"
        text += "" if same else f" (trained with {cell.comparator}; of integers, one step further)"
        yield Finding("comparator", cell.name, True, text)


def _leak(kind: str, cell: Cell) -> tuple[bool, str]:
    if not cell.carries:
        return True, "keeps no state, so nothing leaks"
    named = ", ".join(f"{float(v):.6g}" for v in cell.leaks[:3]) + (", ..." if len(cell.leaks) > 3 else "")
    if kind == "none":
        met = all(v == 1 for v in cell.leaks)
        return met, "does not leak" if met else f"keeps {named} of its state in a step, only 1 is possible"
    if kind == "power":
        met = all(0 <= v < 1 and (1 - v).numerator == 1 and (1 - v) >= 2**-15 for v in cell.leaks)
        return met, f"keeps {named} of its state in a step, " + (
            "1 - 2^-n" if met else "which is no 1 - 2^-n"
        )
    met = all((v * 2**12).denominator == 1 for v in cell.leaks)
    return met, f"keeps {named} of its state in a step, " + (
        "12 bits" if met else "which takes more than 12 bits"
    )


def _reset(allowed: Sequence[str], cell: Cell) -> tuple[bool, str]:
    if cell.most > 1:
        return False, f"fires up to {cell.most} times in a step, only once is possible"
    if not cell.carries:
        return True, "keeps no state, so nothing is reset"
    text, met = f"resets {RESET_WORDS[cell.reset]}", cell.reset in allowed
    if not met:
        return False, f"{text}, only {' or '.join(RESET_WORDS[r] for r in allowed)} is possible"
    if cell.reset == "soft" and not cell.own_threshold:
        return False, f"{text} of another number than its threshold"
    return True, text


def _of_whole(target: Target, network: Network) -> Iterator[Finding]:
    for feature in target.without:
        places = network.features.get(feature, ())
        for place in places:
            yield Finding("without", place, False, f"{FEATURE_WORDS[feature]}, which {target.name} has not")
        if not places:
            yield Finding("without", "", True, f"no {feature}")
    if target.layers is not None:
        yield _count("layers", len(network.layers), target.layers, "layers")
    if target.inputs is not None:
        yield _count("inputs", network.inputs, target.inputs, "inputs")
    if target.hidden_neurons is not None:
        hidden = sum(c.neurons for c in network.cells if c.emits == "spikes" and not c.last)
        yield _count("hidden_neurons", hidden, target.hidden_neurons, "hidden neurons")
    if target.output_neurons is not None:
        last = sum(c.neurons for c in network.cells if c.emits == "spikes" and c.last)
        yield _count("output_neurons", last, target.output_neurons, "output neurons")
    if target.spiking_output:
        for text in network.read_out:
            yield Finding("spiking_output", "", False, f"{text}, and what leaves {target.name} are spikes")
        if not network.read_out:
            yield Finding("spiking_output", "", True, "all outputs are made of spikes")


def _count(constraint: str, found: int, most: int, what: str) -> Finding:
    return Finding(constraint, "", found <= most, f"{found:,} {what}, {most:,} at most")


def _of_cores(target: Target, layers: Sequence[Layer]) -> Iterator[Finding]:
    """Each layer on a core of its own: an augmenting path for each, so that as many as possible have one."""
    owner: dict[int, int] = {}  # core -> layer
    sizes = [x.padded if target.padded else (x.weights, x.outputs) for x in layers]

    def place(layer: int, seen: set[int]) -> bool:
        for core, (weights, neurons) in enumerate(target.cores):
            fits = sizes[layer][0] <= weights and sizes[layer][1] <= neurons
            if not fits or core in seen:
                continue
            seen.add(core)
            if core not in owner or place(owner[core], seen):
                owner[core] = layer
                return True
        return False

    for i, layer in enumerate(layers):
        held = ", in powers of two" if target.padded else ""
        size, met = f"{sizes[i][0]:,} weights and {sizes[i][1]:,} neurons{held}", place(i, set())
        text = f"{size} fit a core" if met else f"{size}: no core that is free holds them"
        yield Finding("cores", layer.name, met, text)


def _of_memory(target: Target, figures: Figures) -> Iterator[Finding]:
    if target.flash is not None:
        parts = f"weights {figures.weights:,}, tables {figures.tables:,}, code about {figures.code:,}"
        yield _count("flash", figures.flash, target.flash, f"bytes of flash ({parts})")
    if target.ram is not None:
        parts = f"state {figures.state:,}, arena {figures.arena:,}"
        yield _count("ram", figures.ram, target.ram, f"bytes of RAM ({parts}; stack not counted)")
