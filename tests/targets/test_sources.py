"""Facts of chips against the sources they were taken from, read as text: one of them runs an installer."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path
from typing import Any

import pytest

from ptq4snn.targets.chips import CHIPS
from ptq4snn.targets.network_facts import padded_memory


def source(variable: str, path: str) -> str:
    folder = os.environ.get(variable)
    file = Path(folder or ".", path)
    if not folder or not file.is_file():
        pytest.skip(f"{variable} names no folder with {path} in it: `make test` installs it there")
    return file.read_text(encoding="utf-8")


@pytest.mark.parametrize(("target", "device"), [("xylo", "syns61201"), ("xylo-audio3", "syns65302")])
def test_neurons_of_xylo(target: str, device: str) -> None:
    text = source("PTQ4SNN_ROCKPOOL", f"rockpool/devices/xylo/{device}/xylo_mapper.py")
    for what in ("hidden_neurons", "output_neurons"):
        found = re.search(rf"max_{what}: int = (\d+)", text)
        assert found is not None and int(found[1]) == getattr(CHIPS[target], what)


def test_design_rules_of_xylo() -> None:
    text = source("PTQ4SNN_ROCKPOOL", "rockpool/devices/xylo/syns61201/xylo_mapper.py")
    assert f"len(graph.input_nodes) > {CHIPS['xylo'].inputs}" in text
    assert "All network outputs must be directly from neurons" in text and CHIPS["xylo"].spiking_output
    assert "All neurons must receive inputs only from weight nodes" in text
    code = source("PTQ4SNN_ROCKPOOL", "rockpool/devices/xylo/syns61201/xylo_samna.py")
    assert "A quantised 8-bit input weight matrix" in code and CHIPS["xylo"].weight_bits == (1, 8)


def test_memories_of_speck() -> None:
    text = source("PTQ4SNN_SINABS", "sinabs/backend/dynapcnn/chips/dynapcnn.py")
    sizes = []
    for name in ("weight_memory_size", "neurons_memory_size"):
        found = re.search(rf"{name} = \[(.*?)\]", text, re.S)
        assert found is not None
        sizes.append([int(k) * 1024 for k in re.findall(r"(\d+) \* 1024", found[1])])
    assert CHIPS["speck"].cores == tuple(zip(*sizes, strict=True))
    assert "MembraneReset" in text and "MembraneSubtract" in text and "-(2**15)" in text


def test_limits_of_speck() -> None:
    """The memory that sinabs computes, on numbers of its own formula."""
    text = source("PTQ4SNN_SINABS", "sinabs/validate_memory_speck.py")
    speck = CHIPS["speck"]
    assert f"kernel_size[0] > {speck.kernel}" in text
    assert tuple(int(n) for n in re.findall(r"self\.stride\[i\] == (\d+)", text)) == speck.strides
    file = Path(os.environ["PTQ4SNN_SINABS"], "sinabs/validate_memory_speck.py")
    spec = importlib.util.spec_from_file_location("validate_memory_speck", file)
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for inputs, outputs, kernel, side in [(2, 16, 3, 64), (16, 32, 5, 30), (7, 100, 1, 9), (128, 10, 4, 4)]:
        found = module.ValidateMapping(inputs, outputs, (kernel,) * 2, (1, 1), (0, 0), (side,) * 2)
        made = side - kernel + 1
        ours = padded_memory(inputs, outputs, (kernel, kernel), (made, made))
        assert ours == (found.calculate_kernel_memory(), found.calculate_neuron_memory())
