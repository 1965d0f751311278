"""Spikformer: its three programs compute one function, attention by hand, event frames, bad arguments."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ptq4snn.discovery.discover import discover
from ptq4snn.models.spikformer import KINDS, Spikformer, attend


def small(kind: str, **arguments: Any) -> nn.Module:
    torch.manual_seed(0)
    model = Spikformer(32, 2, 4, T=3, kind=kind, **arguments)
    for m in model.modules():
        if isinstance(m, nn.modules.batchnorm._BatchNorm):
            nn.init.normal_(m.bias, 1.0, 0.3)
    return model.double().eval()


def moved(state: dict[str, Tensor], target: nn.Module) -> dict[str, Tensor]:
    """Weights of the convolutions of `state` in the shapes and under the names of `target`."""
    out = {}
    for name, t in target.state_dict().items():
        source = state.get(name.replace("_linear.", "_conv."))
        out[name] = torch.zeros_like(t) if source is None else source.reshape(t.shape)  # q, k, v have no bias
    return out


def test_the_three_programs_compute_one_function() -> None:
    """Golden vectors exist for "linear" and "conv2d"; this ties "conv1d", the one for events, to both."""
    models = {kind: small(kind) for kind in KINDS}
    state = models["conv1d"].state_dict()
    x = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    outputs = []
    for model in models.values():
        model.load_state_dict(moved(state, model))
        with torch.no_grad():
            outputs.append(model(x))
    assert float(outputs[0].std()) > 0
    torch.testing.assert_close(outputs[1], outputs[0])
    torch.testing.assert_close(outputs[2], outputs[0])


@pytest.mark.parametrize("inner_first", [False, True])
def test_attention_by_hand(inner_first: bool) -> None:
    torch.manual_seed(0)
    q, k, v = (torch.rand(3, 1, 1, 5, 6) < 0.5).double()
    out = attend(q, k, v, 2, 0.25, inner_first)
    for head in (slice(0, 3), slice(3, 6)):
        a, b, c = q[0, 0, :, head], k[0, 0, :, head], v[0, 0, :, head]
        expected = torch.einsum("nd,md,me->ne", a, b, c) / 4
        assert torch.equal(out[0, 0, :, head], expected)


@pytest.mark.parametrize("kind", KINDS)
def test_frames_come_batch_first_and_samples_are_apart(kind: str) -> None:
    model = small(kind, in_channels=2)
    x = torch.randn(2, 5, 2, 16, 16, dtype=torch.float64)
    with torch.no_grad():
        both = model(x)
        torch.testing.assert_close(model(x[1:]), both[1:])
        still = x[:, 0]
        torch.testing.assert_close(model(still), model(still.unsqueeze(1).repeat(1, 3, 1, 1, 1)))
    assert both.shape == (2, 10)


@pytest.mark.parametrize(("kind", "scale"), [("linear", 0.125), ("conv2d", 0.125), ("conv1d", 0.25)])
def test_the_attention_neuron_counts_in_steps_of_the_scale(kind: str, scale: float) -> None:
    d = discover(small(kind, scale=scale).float(), torch.randn(1, 3, 16, 16))
    bare = d.neurons["block.1.attn.attn_lif"]
    assert (bare.kind, bare.factor, bare.lo) == ("bare", scale, 0.0)
    assert bare.hi == 16 * 8  # tokens times channels of a head
    assert bare.layout.channels == 32 and bare.carries_state
    spikes = d.projections["block.1.mlp.fc1_linear" if kind == "linear" else "block.1.mlp.fc1_conv"]
    assert (spikes.factor, spikes.lo, spikes.hi) == (1.0, 0.0, 5.0)  # 2 of the embedding, 3 branches so far


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"width": 20}, "multiple of 8"),
        ({"pooling": "01"}, "pooling"),
        ({"heads": 5}, "heads"),
        ({"kind": "conv3d"}, "kind"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        Spikformer(**arguments)
