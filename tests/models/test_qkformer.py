"""QKFormer: the state that runs on between samples, token attention, layouts, bad arguments."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from oracles.backbones import golden_input, load_rule, published
from torch import nn

from ptq4snn.discovery.discover import discover
from ptq4snn.models.qkformer import QKFormer, TokenAttention
from ptq4snn.modules.quantized import QuantizedModel
from ptq4snn.pipeline import prepare, run
from ptq4snn.recipe import Recipe

NAME = "qkformer_4_384_cifar10"


def small(**arguments: Any) -> nn.Module:
    torch.manual_seed(0)
    arguments.setdefault("depths", (1, 1, 2))
    model = QKFormer(32, heads=4, T=3, scale=0.5, **arguments)
    for m in model.modules():
        if isinstance(m, nn.modules.batchnorm._BatchNorm):
            nn.init.normal_(m.bias, 1.0, 0.3)
    return model.double().eval()


def test_only_the_merged_state_mixes_samples() -> None:
    apart, merged = small(), small(merged_state=True)
    x = torch.randn(3, 3, 16, 16, dtype=torch.float64)
    with torch.no_grad():
        one_by_one = torch.cat([apart(s) for s in x.split(1)])
        torch.testing.assert_close(apart(x), one_by_one)
        torch.testing.assert_close(torch.cat([merged(s) for s in x.split(1)]), one_by_one)
        assert not torch.allclose(merged(x), one_by_one, atol=1e-3)


def test_without_the_merged_state_two_samples_give_the_golden_vector_of_one() -> None:
    golden = published()[NAME]["golden_other_batch"]
    assert golden["input_shape"][0] == 1
    model = QKFormer()
    load_rule(NAME, model, golden)
    model.double().eval()
    x = golden_input(NAME, published()[NAME]["golden"]).double()  # batch 2; the first sample is the same
    with torch.no_grad():
        logits = model(x)[:1]
    expected = torch.tensor(golden["logits"], dtype=torch.float64).view(1, -1)
    assert float((logits - expected).abs().max()) <= golden["tolerance"]["logits_max_abs"]


def test_a_model_with_the_merged_state_is_quantized() -> None:
    """Its steps are those of one sample; at batch 1 it computes what the model without the flag does."""
    recipe = Recipe(calibration=32, holdout=16, sensitivity_batches=1, beta=0.8, percentile=98.0)
    merged = small(merged_state=True).float()
    x = torch.randint(0, 256, (32, 3, 16, 16), generator=torch.Generator().manual_seed(0)) / 128 - 1
    q = run(prepare(merged, x, recipe), recipe)
    assert q.plan.steps == 3 and {n.steps for n in q.plan.neurons.values()} == {3}
    apart = QuantizedModel(small().float(), q.plan, q.integers)
    one_by_one = torch.cat([q(s) for s in x[:5].split(1)])
    assert torch.equal(apart(x[:5]), one_by_one)
    together = q(x[:5])
    assert not torch.equal(together, one_by_one)
    torch.testing.assert_close(together.std(), one_by_one.std(), rtol=0.2, atol=0.0)


def test_token_attention_masks_whole_tokens_of_a_head() -> None:
    torch.manual_seed(0)
    layer = TokenAttention(8, 2).eval()
    nn.init.constant_(layer.get_parameter("k_bn.bias"), 2.0)
    seen: dict[str, Any] = {}
    for name in ("q_lif", "k_lif", "attn_lif"):
        layer.get_submodule(name).register_forward_hook(
            lambda _m, _a, out, name=name: seen.update({name: out})
        )
    layer.get_submodule("proj_conv").register_forward_pre_hook(lambda _m, a: seen.update(masked=a[0]))
    layer((torch.rand(3, 2, 8, 4, 4) < 0.5).float())
    q, k = (seen[n].view(3, 2, 2, 4, 16) for n in ("q_lif", "k_lif"))
    # a sum of 1 or more gives 1/2 or more at once, which is the threshold: no state is ever kept
    mask = q.any(3, keepdim=True)
    assert torch.equal(seen["attn_lif"].bool(), mask)
    assert torch.equal(seen["masked"].view(3, 2, 2, 4, 16), torch.where(mask, k, 0.0))


@pytest.mark.parametrize(
    ("layout", "size", "embedded"), [("cifar", 16, 4), ("imagenet", 64, 4), ("events", 64, 4)]
)
def test_layouts_reduce_the_image(layout: str, size: int, embedded: int) -> None:
    depths = (1, 1) if layout == "events" else (1, 1, 1)
    model = small(layout=layout, depths=depths).float()
    d = discover(model, torch.randn(1, 3, size, size))
    last = "fc2" if layout == "imagenet" else "mlp2"
    assert d.neurons[f"stage{len(depths)}.0.mlp.{last}_lif"].layout.shape == (32, embedded, embedded)
    zero = [n.name for n in d.neurons.values() if n.zero_state]
    assert zero == [f"stage{i}.0.tssa.attn_lif" for i in range(1, len(depths))]
    token = d.neurons[zero[0]]
    assert token.layout.channels == 4 and token.layout.dims == (0,)
    assert token.hi == (16 if layout == "events" else 8) / 4  # channels of a head


def test_frames_come_batch_first() -> None:
    model = small(in_channels=2, layout="events", depths=(1, 1), mlp_ratio=1)
    x = torch.randn(2, 5, 2, 32, 32, dtype=torch.float64)
    with torch.no_grad():
        both = model(x)
        torch.testing.assert_close(model(x[1:]), both[1:])
    assert both.shape == (2, 10)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"layout": "mnist"}, "layout"),
        ({"depths": (1, 1)}, "3 stages"),
        ({"width": 100}, "multiples"),
        ({"heads": 7}, "7 heads"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        QKFormer(**arguments)
