"""Small versions of Meta-SpikeFormer and its segmentation model, quantized end to end."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch
from oracles.meta_spikeformer import build, pixels, small
from torch import Tensor, nn

from ptq4snn import pipeline
from ptq4snn.discovery.folding import Folded
from ptq4snn.modules.integer import IntegerCore
from ptq4snn.modules.quantized import QuantizedModel
from ptq4snn.modules.saving import load_model
from ptq4snn.pipeline import Prepared
from ptq4snn.recipe import Recipe

RECIPE = Recipe(calibration=32, holdout=16, sensitivity_batches=1, beta=0.8, percentile=98.0)


@functools.cache
def prepared(kind: str) -> Prepared:
    return pipeline.prepare(small(kind), pixels(48), RECIPE)


@functools.cache
def quantized(kind: str) -> QuantizedModel:
    return pipeline.run(prepared(kind), RECIPE)


def error(q: nn.Module, model: nn.Module) -> float:
    """Mean |difference| of the logits, in standard deviations of the float ones."""
    x = pixels(16)
    with torch.no_grad():
        expected, found = model(x), q(x)
    assert found.shape == expected.shape
    return float((found - expected).abs().mean() / expected.std())


@pytest.mark.parametrize("kind", ["plain", "kd", "fpn"])
def test_no_neuron_stays_float(kind: str) -> None:
    q, d = quantized(kind), prepared(kind).folded.discovery
    assert all(int(s.spikes.sum()) > 0 for s in prepared(kind).seen.neurons.values())
    assert {n: p.kind for n, p in q.plan.neurons.items()} == {n: i.kind for n, i in d.neurons.items()}
    assert all(isinstance(q.core(n), IntegerCore) for n in d.neurons)
    assert {n for n, p in q.plan.neurons.items() if p.in_budget} == {
        n for n, i in d.neurons.items() if i.steps > 1 and not i.stem
    }
    assert not any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in q.model.modules())
    chains = {n: p.rescale.bits for n, p in q.plan.projections.items() if p.role == "chain" and p.rescale}
    assert set(chains.values()) == {8} and len(chains) == 4 + 2 * 4 * 2  # SepConvs; RepConvs of two blocks


def currents(q: QuantizedModel, folded: Folded, x: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    """What drives every neuron, quantized and in float, the latter on the quantized network's spikes."""
    seen: dict[str, list[Tensor]] = {}
    spikes: dict[str, list[Tensor]] = {}
    handles = []
    for name in q.plan.neurons:
        core, spec = q.core(name), folded.specs[name]

        def note(x: Tensor, h: Tensor, s: Tensor, v: Tensor, t: int, name: str = name) -> None:
            c = q.core(name)
            seen.setdefault(name, []).append(c.incoming(x).double() * c._get("unit", torch.float64))
            spikes.setdefault(name, []).append(s)

        def force(m: nn.Module, args: Any, out: Tensor, name: str = name, gain: Tensor = spec.gain) -> Tensor:
            seen[name] = [torch.stack(seen[name]), args[0] * gain]
            return torch.stack(spikes[name])

        core.probe = note
        handles.append(folded.model.get_submodule(name).register_forward_hook(force))
    with torch.no_grad():
        q(x), folded.model(x)
    for name in q.plan.neurons:
        q.core(name).probe = None
    for handle in handles:
        handle.remove()
    return {n: (v[0], v[1]) for n, v in seen.items()}


def check_currents(q: QuantizedModel, kind: str) -> None:
    """With the same spikes at every input, the weights' rounding is all that is left."""
    for name, (found, expected) in currents(q, prepared(kind).folded, pixels(16)).items():
        assert float((found - expected).abs().mean()) < 0.02 * float(expected.std()), name
        assert float((found - expected).mean().abs()) < 0.004 * float(expected.std()), name


@functools.cache
def fine(kind: str) -> QuantizedModel:
    recipe = Recipe(calibration=32, holdout=16, weights=8, membrane=8, allocation="uniform")
    return pipeline.run(prepared(kind), recipe)


@pytest.mark.parametrize("kind", ["plain", "kd", "fpn"])
def test_every_neuron_is_driven_by_the_right_numbers(kind: str) -> None:
    check_currents(fine(kind), kind)
    assert error(fine(kind), small(kind)) < 0.25
    assert error(quantized(kind), small(kind)) < 0.5


@pytest.mark.parametrize("kind", ["plain", "kd", "fpn"])
def test_a_bundle_gives_the_same_bits(kind: str, tmp_path: Path) -> None:
    q, x = quantized(kind), pixels(16)
    q.save(tmp_path / "model.ptq4snn")
    loaded = load_model(tmp_path / "model.ptq4snn", build(kind, seed=1))
    with torch.no_grad():
        assert torch.equal(loaded(x), q(x))


def test_a_sequence_of_another_length_runs() -> None:
    """The pyramid reads means over time, which are sums in units of the calibration's T."""
    models = (fine("fpn").model, prepared("fpn").folded.model)
    backbones: list[Any] = [m.get_submodule("backbone") for m in models]
    try:
        for b in backbones:
            b.T = 7
        check_currents(fine("fpn"), "fpn")
    finally:
        for b in backbones:
            b.T = 3
