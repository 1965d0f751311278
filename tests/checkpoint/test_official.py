"""Files of the authors' programs: their names, their unused parameters, and hints at the right model."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest
import torch
from oracles.backbones import published
from oracles.meta_spikeformer import build
from torch import Tensor, nn

from ptq4snn.checkpoint import Loaded, load_checkpoint
from ptq4snn.errors import CheckpointError
from ptq4snn.models.fpn import SpikeFPN
from ptq4snn.models.meta_spikeformer import MetaSpikeFormer
from ptq4snn.models.neuron import PLIF
from ptq4snn.models.sdt import SpikeDrivenTransformer as SDT
from ptq4snn.models.sew_resnet import from_official, sew_resnet
from ptq4snn.models.spikformer import Spikformer
from ptq4snn.models.vgg import SpikingVGG
from ptq4snn.models.zoo import MODELS

State = dict[str, Tensor]


def seeded(make: Any, seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: nn.Module = make()
    return model


def same(model: nn.Module, state: State) -> bool:
    return all(torch.equal(v, state[k]) for k, v in model.state_dict().items() if k in state)


def load(model: nn.Module, content: Any, tmp_path: Path) -> Loaded:
    torch.save(content, tmp_path / "c.pth")
    return load_checkpoint(model, tmp_path / "c.pth")


def refusal(model: nn.Module, content: Any, tmp_path: Path) -> str:
    before = {k: v.clone() for k, v in model.state_dict().items()}
    with pytest.raises(CheckpointError) as e:
        load(model, content, tmp_path)
    assert same(model, before) and "\n" not in str(e.value)
    return str(e.value)


def small_sew(**changes: Any) -> nn.Module:
    return sew_resnet(**{"depth": 18, "num_classes": 5, "width": 4, **changes})


def official_sew() -> tuple[State, State]:
    """Weights of the small SEW-ResNet by the names of its official repository, and by ours."""
    state = seeded(small_sew, 1).state_dict()
    keys = {k: k for k in published()["sew_resnet18_imagenet_official"]["keys"]}
    return {k: state[ours] for ours, k in from_official(keys).items()}, state


@pytest.mark.parametrize("prefix", ["", "module."])
def test_official_sew_names(tmp_path: Path, prefix: str) -> None:
    official, state = official_sew()
    content = {
        "model": {prefix + k: v for k, v in official.items()},
        "optimizer": {"state": {}, "param_groups": [{"lr": 0.0, "params": [0]}]},
        "epoch": 319,
        "max_test_acc1": 63.182,
        "args": argparse.Namespace(model="sew_resnet18", output_dir=Path("logs")),
    }
    model = seeded(small_sew, 2)
    assert not same(model, state)
    loaded = load(model, content, tmp_path)
    assert same(model, state) and loaded.matched == len(state) == 122
    assert loaded.renamed == sum(".module." in k for k in official)
    assert loaded.account().endswith(f"122 tensors, {loaded.renamed} renamed from the official names")


def test_spikingjelly_names_are_ours(tmp_path: Path) -> None:
    _, state = official_sew()
    model = seeded(small_sew, 2)
    assert load(model, state, tmp_path).account() == "" and same(model, state)


def test_official_sew_names_are_not_mapped_in_other_models(tmp_path: Path) -> None:
    official, state = official_sew()
    other = nn.Sequential()
    other.add_module("layer1", seeded(small_sew, 2).get_submodule("layer1"))
    assert "unexpected conv1.weight" in refusal(other, official, tmp_path)
    both = {**official, "layer1.0.conv1.weight": state["layer1.0.conv1.weight"]}
    message = refusal(seeded(small_sew, 2), both, tmp_path)
    assert "unexpected layer1.0.conv1.module.0.weight" in message


def spikformer(tokens: int | None = None) -> nn.Module:
    return Spikformer(16, 1, 2, num_classes=3, tokens=tokens)


UNUSED: list[tuple[Any, set[str]]] = [
    (lambda: SDT(16, 1, heads=2, num_classes=3), {"block.0.attn.talking_heads.weight"}),
    (
        lambda: spikformer(9),
        {
            "pos_embed", "norm.weight", "norm.bias", "block.0.norm1.weight", "block.0.norm1.bias",
            "block.0.norm2.weight", "block.0.norm2.bias",
        },
    ),
]  # fmt: skip


@pytest.mark.parametrize(("make", "unused"), UNUSED)
def test_parameters_that_are_never_used_may_be_missing(tmp_path: Path, make: Any, unused: set[str]) -> None:
    state = {k: v for k, v in seeded(make, 1).state_dict().items() if k not in unused}
    model = seeded(make, 2)
    loaded = load(model, {"state_dict": state}, tmp_path)
    assert same(model, state) and set(loaded.absent) == unused
    assert "not in the file, nor ever used, " in loaded.account()
    x = torch.rand(1, 3, 16, 16)
    outputs = [model.eval()(x)]  # and indeed do not matter
    for name in unused:
        nn.init.constant_(model.get_parameter(name), 100.0)
    torch.testing.assert_close(model(x), outputs[0], rtol=0, atol=0)


def test_parameters_that_are_never_used_may_be_too_many(tmp_path: Path) -> None:
    state = seeded(lambda: spikformer(9), 1).state_dict()
    model = seeded(spikformer, 2)
    loaded = load(model, state, tmp_path)
    assert same(model, state)
    assert loaded.ignored == dict.fromkeys(
        ("pos_embed", "norm.weight", "norm.bias"), "never used by the model"
    )


def test_segmentation_files_may_hold_other_heads(tmp_path: Path) -> None:
    source, model = build("fpn", 1), build("fpn", 2)
    state = dict(source.state_dict())
    extra = {
        k: torch.zeros(1)
        for k in ("backbone.head.weight", "backbone.head_kd.bias", "auxiliary_head.conv_seg.bias")
    }
    content = {"meta": {"CLASSES": ("a", "b"), "config": "x = 1"}, "state_dict": {**state, **extra}}
    loaded = load(model, content, tmp_path)
    assert same(model, state) and set(loaded.ignored) == set(extra)
    assert "3 ignored (a head that segmentation does not use)" in loaded.account()


def test_a_classifier_is_no_segmentation_model(tmp_path: Path) -> None:
    message = refusal(build("fpn"), build("plain").state_dict(), tmp_path)
    assert "does not fit SpikeFPN: missing backbone.downsample1_1.encode_conv.weight" in message


def test_the_distillation_head_is_named(tmp_path: Path) -> None:
    message = refusal(build("plain"), build("kd", 1).state_dict(), tmp_path)
    assert "unexpected head_kd.weight, head_kd.bias; this file has a distillation head" in message
    assert "kd=True" in message and "metaspikeformer-8-512-kd-imagenet" in message
    message = refusal(build("kd"), build("plain", 1).state_dict(), tmp_path)
    assert "missing head_kd.weight, head_kd.bias; this file has no distillation head" in message


@pytest.mark.parametrize(
    "make",
    [
        lambda n: SDT(16, 1, heads=2, num_classes=n),
        lambda n: small_sew(num_classes=n),
        lambda n: SpikingVGG(((4,),), num_classes=n),
        lambda n: SpikingVGG(((4,),), num_classes=n, head="stock", hidden=4),
        lambda n: MetaSpikeFormer((4, 4, 4, 4), (1, 1), 2, n, kd=True),
        lambda n: SpikeFPN((4, 4, 4, 4), 4, (1, 1), 2, n),
    ],
)
def test_another_number_of_classes_is_named(tmp_path: Path, make: Any) -> None:
    message = refusal(make(10), make(100).state_dict(), tmp_path)
    assert "the file has 100 classes: build the model with num_classes=100 (--classes 100)" in message


def test_another_width_is_not_another_number_of_classes(tmp_path: Path) -> None:
    message = refusal(SDT(16, 1, heads=2), SDT(32, 1, heads=2, num_classes=100).state_dict(), tmp_path)
    assert "head.weight" not in message.split("; ")[-1] and "give the model that" in message


def test_learned_leaks_are_named(tmp_path: Path) -> None:
    message = refusal(small_sew(), small_sew(neuron=PLIF).state_dict(), tmp_path)
    assert "unexpected sn1.w" in message and "neuron=PLIF" in message


def test_a_file_of_another_built_in_model_is_recognised(tmp_path: Path) -> None:
    state = MODELS["sdt-2-64-nmnist"].make().state_dict()
    message = refusal(SDT(16, 1, heads=2), state, tmp_path)
    assert "it has the names and shapes of sdt-2-64-nmnist: use that model" in message
