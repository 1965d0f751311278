"""SEW-ResNet: the three ways to join, both key layouts, stems, and the embedded default as it was."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import pytest
import torch
from oracles.backbones import published
from safetensors.torch import load_file
from torch import Tensor, nn

from ptq4snn.models.neuron import IF, LIF
from ptq4snn.models.sew_resnet import BasicBlock, Bottleneck, SEWResNet, from_official, sew_resnet
from ptq4snn.models.zoo import MODELS

OFFICIAL = [n for n in published() if n.startswith("sew") and n.endswith("official")]


def lively(model: nn.Module) -> nn.Module:
    for m in model.modules():
        if isinstance(m, nn.BatchNorm2d):
            nn.init.constant_(m.weight, 2.0)
            nn.init.normal_(m.bias, 0.5, 0.3)
    return model.eval()


def spikes(*shape: int) -> Tensor:
    return (torch.rand(shape) < 0.4).float()


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("connect", ["ADD", "AND", "IAND"])
@pytest.mark.parametrize("kind", [BasicBlock, Bottleneck])
def test_a_block_joins_its_two_branches(kind: Any, connect: str, swapped: bool) -> None:
    torch.manual_seed(0)
    block = lively(kind(8, 8 // kind.expansion, 1, connect, IF, swapped))
    seen: list[Tensor] = []
    block.get_submodule("sn3" if kind is Bottleneck else "sn2").register_forward_hook(
        lambda _m, _a, out: seen.append(out)
    )
    x = spikes(3, 2, 8, 5, 5)
    y = block(x)
    out, identity = seen[0].bool(), x.bool()
    if connect == "ADD":
        expected: Tensor = out.int() + identity.int()
    elif connect == "AND":
        expected = out & identity
    elif kind is Bottleneck and swapped:  # as SpikingJelly has it
        expected = out & ~identity
    else:
        expected = identity & ~out
    assert out.any() and not out.all()
    assert torch.equal(y, expected.float())


def test_a_shortcut_of_another_shape_has_its_own_neuron() -> None:
    block = BasicBlock(8, 16, 2, "ADD", LIF)
    assert block.downsample is not None and isinstance(block.downsample_sn, LIF)
    assert block(spikes(2, 1, 8, 6, 6)).shape == (2, 1, 16, 3, 3)
    assert BasicBlock(8, 8, 1, "ADD", LIF).downsample is None


@pytest.mark.parametrize("name", OFFICIAL)
def test_official_names_are_mapped_one_to_one(name: str) -> None:
    keys = published()[name]["keys"]
    before = dict(keys)
    mapped = from_official(keys)
    assert keys == before and len(mapped) == len(keys)
    assert list(mapped.values()) == list(keys.values())
    assert not any(".module." in k for k in mapped)
    assert from_official(mapped) == mapped  # our own names, which are SpikingJelly's, stay


def test_both_key_layouts_load() -> None:
    model = sew_resnet(18, num_classes=10, width=8)
    state = model.state_dict()
    keys = {k: k for k in published()["sew_resnet18_imagenet_official"]["keys"]}
    official = {k: state[ours] for ours, k in from_official(keys).items()}
    assert any(".module." in k for k in official)
    other = sew_resnet(18, num_classes=10, width=8)
    other.load_state_dict(from_official(official))
    assert all(torch.equal(a, b) for a, b in zip(other.state_dict().values(), state.values(), strict=True))
    other.load_state_dict(from_official(state))


@pytest.mark.parametrize("stem_kind", ["cifar", "imagenet"])
@pytest.mark.parametrize("neuron", [IF, LIF])
def test_a_still_image_is_a_constant_sequence(stem_kind: str, neuron: Any) -> None:
    torch.manual_seed(0)
    model = lively(sew_resnet(50, 5, T=3, neuron=neuron, stem_kind=stem_kind, width=4))
    x = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        logits = model(x)
        assert logits.shape == (2, 5) and float(logits.std()) > 0
        torch.testing.assert_close(model(x.expand(3, *x.shape)), logits)
        torch.testing.assert_close(model(x[:1]), logits[:1])


def test_the_embedded_default_keeps_its_names() -> None:
    trained = load_file(str(files("ptq4snn") / "assets" / "default.safetensors"))
    state = MODELS["default"].make().state_dict()
    kept = {k: v.shape for k, v in state.items() if not k.endswith("num_batches_tracked")}
    assert kept == {k: v.shape for k, v in trained.items()}


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: SEWResNet(connect="OR"), "connect"),
        (lambda: SEWResNet(stem_kind="mnist"), "stem_kind"),
        (lambda: sew_resnet(101), "18, 34, 50"),
    ],
)
def test_bad_arguments(make: Any, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        make()
