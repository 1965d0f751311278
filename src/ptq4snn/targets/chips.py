"""Targets that are known by name. What is not known of one is left out, and its note says so."""

from __future__ import annotations

from dataclasses import replace

from ptq4snn.errors import PTQ4SNNError
from ptq4snn.files import short
from ptq4snn.hints import hint
from ptq4snn.targets.target import Target

__all__ = ["CHIPS", "MICROCONTROLLER", "chip"]

MICROCONTROLLER = "microcontroller"
K = 1024
CORES = ((16 * K, 64 * K),) * 3 + ((32 * K, 32 * K),) * 2 + ((64 * K, 16 * K),) * 2 + ((16 * K, 16 * K),) * 2

XYLO = Target(  # Rockpool 3.1, devices/xylo: the mapper of SYNS61201 and its design rules
    "Xylo",
    weight_bits=(1, 8),
    state_bits=(1, 16),
    leak="power",
    resets=("soft",),
    dense=True,
    without=("residual", "stream", "attention", "max-pool"),
    spiking_output=True,
    inputs=16,
    hidden_neurons=1000,
    output_neurons=8,
    note="by Rockpool's mapper and design rules of Xylo v2 (SYNS61201); not checked: fan-in, widths of "
    "thresholds and biases, that there are two layers of neurons and the last is not recurrent, where the "
    "chip saturates inside a step",
)
CHIPS: dict[str, Target] = {
    "xylo": XYLO,
    "xylo-audio3": replace(
        XYLO,
        name="XyloAudio 3",
        hidden_neurons=992,
        output_neurons=32,
        note=XYLO.note.replace(
            "Xylo v2 (SYNS61201)", "XyloAudio 3 (SYNS65302), which warn of more than 16 outputs"
        ),
    ),
    "speck": Target(  # sinabs 3.1: backend/dynapcnn/chips/dynapcnn.py, validate_memory_speck.py
        "Speck",
        weight_bits=(1, 8),
        state_bits=(1, 16),
        one_scale=True,
        leak="none",
        resets=("hard", "soft"),
        layers=9,
        without=("stream", "attention", "max-pool", "synapse"),
        spiking_output=True,
        kernel=16,
        strides=(1, 2, 4, 8),
        cores=CORES,
        padded=True,
        note="by what sinabs checks before it maps a network; not checked: biases (1,024 a core), kernels "
        "that are no squares, windows of pools (1, 2 or 4, as large as their stride), two readers of a layer "
        "at most, rates of events",
    ),
    "loihi2": Target(
        "Loihi 2",
        weight_bits=(1, 8),
        state_bits=(1, 24),
        leak="12-bit",
        resets=("hard",),
        comparator=">",
        note="by Lava's bit-accurate LIF, which is archived; not checked: thresholds (17 bits, shifted by "
        "6), that its leak is rounded towards zero and ours to even, memory and neurons of a core, fan-in, "
        "what other programs of neurons can do",
    ),
    "spinnaker2": Target(
        "SpiNNaker2",
        weight_bits=(1, 8),
        without=("stream", "attention", "max-pool"),
        nir=True,
        note="by way of NIR, which is tried; not checked: the state's width, resets, memory and neurons of a "
        "core",
    ),
    "hls4ml": Target(
        "hls4ml",
        dense=True,
        without=("recurrence", "residual", "stream", "attention", "synapse"),
        note="weights and states are fixed point of any width; not checked: resets, what the FPGA holds; "
        "release 1.3.0 does not take snnTorch's Leaky yet (the main branch of June 2026 does), but what "
        "`export --to onnx --qonnx` writes of fully connected layers",
    ),
    "spiker+": Target(
        "Spiker+",
        weight_bits=(4, 8),
        state_bits=(4, 10),
        dense=True,
        without=("residual", "stream", "attention", "max-pool"),
        note="not checked: leaks, resets, kinds of neurons, what the FPGA holds",
    ),
}
_SAME = {
    "dynapcnn": "speck",
    "xyloaudio3": "xylo-audio3",
    "loihi": "loihi2",
    "loihi-2": "loihi2",
    "spiker": "spiker+",
}


def chip(name: str) -> Target:
    """A target by its name, in small or capital letters."""
    key = name.lower().replace(" ", "")
    found = CHIPS.get(_SAME.get(key, key))
    if found is None:
        known = [*CHIPS, MICROCONTROLLER]
        raise PTQ4SNNError(
            f"there is no target {short(name)!r}: {hint(key, known)}; a .toml file is one, too"
        )
    return found
