"""What holds for a network of any framework: quantized, saved, loaded, run by every kernel, step by step."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import ptq4snn
from ptq4snn import runtime
from ptq4snn.frameworks import adapter_of, compound_of
from ptq4snn.runtime.native import available


def framework(name: str, *unused: str) -> Any:
    """The framework, or the test file is skipped. What it imports and no test touches may be missing."""
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed here: `make test` gives it a folder", allow_module_level=True)
    for other in unused:
        if importlib.util.find_spec(other) is None:
            sys.modules[other] = MagicMock()
    return importlib.import_module(name)


def seeded(seed: int, build: Any, *args: Any, **kwargs: Any) -> Any:
    """Built with a random state of its own."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build(*args, **kwargs)


def replaced(module: nn.Module) -> nn.Module:
    """The compound in the place of one neuron, in float64."""
    assert adapter_of(module) is not None
    made = compound_of(module, "n")
    assert made is not None
    return made.double().eval()


def currents(shape: tuple[int, ...], seed: int, size: float = 1.0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * size


def runs_everywhere(
    net: nn.Module, x: Tensor, folder: Path, recipe: str = "w4m4", time_axis: int | None = 0, **options: Any
) -> ptq4snn.QuantizedModel:
    """The simulation, the saved model and the runtime with every kernel give the same bits, also step by step
    (along `time_axis` of the input; None: a still image)."""
    assert ptq4snn.inspect(net, x, batch_axis=options.get("batch_axis", 0)).neurons
    q = ptq4snn.quantize(net, x, recipe, **options)
    assert q.program is not None, q.not_lowered
    y = q(x).numpy()
    assert np.unique(y).size > 2, "a network that is silent shows nothing"
    q.save(folder / "q.ptq")
    np.testing.assert_array_equal(ptq4snn.load(folder / "q.ptq", net)(x).numpy(), y)
    for kernels in ("numpy", *available()):
        rt = runtime.load(folder / "q.ptq", kernels=kernels)
        np.testing.assert_array_equal(rt(x.numpy()), y)
        steps = q.plan.steps if time_axis is None else x.shape[time_axis]
        for t in range(steps):
            last = rt.step(x.numpy() if time_axis is None else x.select(time_axis, t).numpy())
        whole = rt(x.numpy())
        np.testing.assert_array_equal(last, _last(whole, last))
    return q


def _last(whole: Any, last: Any) -> Any:
    """What the last step gives: all of it, or the last entry of an output with an axis of time."""
    return (
        whole if whole.shape == last.shape else whole[-1] if whole.shape[1:] == last.shape else whole[:, -1]
    )
