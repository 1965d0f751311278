"""Targets that are known by name. What is not known of one is left out, and its note says so."""

from __future__ import annotations

from ptq4snn.errors import PTQ4SNNError
from ptq4snn.files import short
from ptq4snn.hints import hint
from ptq4snn.targets.target import Target

__all__ = ["CHIPS", "MICROCONTROLLER", "chip"]

MICROCONTROLLER = "microcontroller"
K = 1024
CORES = ((16 * K, 64 * K),) * 3 + ((32 * K, 32 * K),) * 2 + ((64 * K, 16 * K),) * 2 + ((16 * K, 16 * K),) * 2

CHIPS: dict[str, Target] = {
    "xylo": Target(
        "Xylo",
        weight_bits=(1, 8),
        state_bits=(1, 16),
        leak="power",
        resets=("soft",),
        dense=True,
        without=("residual", "stream", "attention", "max-pool"),
        spiking_output=True,
        hidden_neurons=1000,  # Rockpool's mapper of Xylo v2
        output_neurons=8,
        note="not checked: inputs, synapses and fan-in, widths of thresholds and biases, where the chip "
        "saturates inside a step; the numbers of neurons are those of Rockpool's mapper for Xylo v2",
    ),
    "speck": Target(
        "Speck",
        weight_bits=(1, 8),
        state_bits=(1, 16),
        one_scale=True,
        leak="none",
        layers=9,
        without=("attention", "max-pool", "synapse"),
        spiking_output=True,
        cores=CORES,
        note="not checked: the reset, kernels and strides, memory that is lost by rounding sides up, "
        "rates of events; the cores' memories are those that sinabs gives for DynapCNN",
    ),
    "loihi2": Target(
        "Loihi 2",
        weight_bits=(1, 8),
        state_bits=(1, 24),
        leak="12-bit",
        resets=("hard",),
        comparator=">",
        note="by Lava's LIF, which is archived; not checked: memory and neurons of a core, fan-in, what "
        "other programs of neurons can do",
    ),
    "spinnaker2": Target(
        "SpiNNaker2",
        weight_bits=(1, 8),
        without=("stream", "attention", "max-pool"),
        note="by way of NIR; not checked: the state's width, resets, memory and neurons of a core; what "
        "NIR cannot say is refused by `ptq4snn export --to nir`",
    ),
    "hls4ml": Target(
        "hls4ml",
        dense=True,
        without=("recurrence", "residual", "stream", "attention", "synapse"),
        note="weights and states are fixed point of any width; not checked: resets, what the FPGA holds; "
        "release 1.3.0 does not take snnTorch's Leaky yet, the main branch of June 2026 does",
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
_SAME = {"dynapcnn": "speck", "loihi": "loihi2", "loihi-2": "loihi2", "spiker": "spiker+"}


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
