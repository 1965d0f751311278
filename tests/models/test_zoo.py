"""The zoo: every published model under its name, with its authors' sizes, counts and preprocessing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from oracles.backbones import BACKBONES, ENTRIES, FACTS, entry_of, slow
from oracles.backbones import published as backbones
from oracles.numbers import known
from safetensors.torch import save_file

import ptq4snn
from ptq4snn.cli.counts import known_counts, measure
from ptq4snn.data.cifar import normalize
from ptq4snn.data.registry import DATA
from ptq4snn.data.sample import default_sample
from ptq4snn.data.samples import Preprocessing
from ptq4snn.errors import PTQ4SNNError
from ptq4snn.models.published import PUBLISHED
from ptq4snn.models.trained import TRAINED
from ptq4snn.models.zoo import MODELS, find, folded

FAMILIES = (
    "sdt_2_256_cifar10",
    "sew_resnet18_cifar10",
    "spiking_vgg16_bn_cifar10_linearhead",
    "spikformer_2_256_cifar10dvs",
    "qkformer_4_384_cifar10",
)
# published, but nobody measured the authors' program
UNMEASURED = {"sdt-8-384-imagenet", "sdt-6-512-imagenet", "sdt-10-512-imagenet"}


def test_every_published_model_has_an_entry_and_no_entry_is_made_up() -> None:
    assert {entry_of(n) for n in FACTS} | UNMEASURED == set(PUBLISHED)
    assert not set(TRAINED) & set(PUBLISHED) and set(MODELS) == set(TRAINED) | set(PUBLISHED)
    assert set(ENTRIES) <= set(FACTS)


@pytest.mark.parametrize("name", FACTS)
def test_known_counts_are_the_published_ones(name: str) -> None:
    counts, facts = known_counts()[entry_of(name)], FACTS[name]
    assert counts.parameters == facts.parameters
    assert (counts.pair, counts.stream, counts.bare) == facts.kinds
    assert (counts.channels, counts.states) == (facts.channels, facts.states)
    assert (counts.macs, counts.attention_macs) == pytest.approx(
        (facts.macs * 1e6, facts.attention_macs * 1e6), abs=0.05e6
    )
    if name in BACKBONES:  # these are not rounded
        exact = backbones()[name]["pairs"]
        assert counts.macs == exact["macs_per_timestep"]
        assert counts.attention_macs == exact.get("attn_matmul_macs_per_timestep", 0)


def test_counts_of_models_that_nobody_measured_follow_from_those_that_were() -> None:
    """A block more of SDT has the same size each time: 6, 8 and 10 blocks lie on a line."""
    known = known_counts()
    six, eight, ten = (known[f"sdt-{d}-512-imagenet"] for d in (6, 8, 10))
    for key in ("parameters", "pair", "stream", "bare", "channels", "states", "macs"):
        assert 2 * getattr(eight, key) == getattr(six, key) + getattr(ten, key), key
    narrow, wide = known["sdt-8-384-imagenet"], known["sdt-8-768-imagenet"]
    assert (2 * narrow.channels, 2 * narrow.states) == (wide.channels, wide.states)


@pytest.mark.parametrize("name", TRAINED)
def test_small_models_are_counted_again(name: str) -> None:
    assert known_counts().get(name) == measure(MODELS[name]), "run scripts/count_models.py"


@pytest.mark.parametrize("name", [*FAMILIES, *slow(*((n,) for n in FACTS if n not in FAMILIES))])
def test_published_models_are_counted_again(name: str) -> None:
    assert known_counts()[entry_of(name)] == measure(MODELS[entry_of(name)])


def test_counting_leaves_the_random_state_alone() -> None:
    before = torch.get_rng_state()
    measure(MODELS["sdt-2-64-nmnist"])
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("SDT_2_256_CIFAR10", "sdt-2-256-cifar10"),
        ("sdt_2_256_cifar10dvs", "sdt-2-256-cifar10-dvs"),
        ("metaspikeformer_fpn_55M_voc2012", "metaspikeformer-fpn-55m-voc2012"),
        ("Default", "default"),
    ],
)
def test_names_are_forgiven_their_spelling(name: str, found: str) -> None:
    assert find(name) == (found, MODELS[found])


def test_forgiven_names_stay_apart() -> None:
    assert len({folded(n) for n in MODELS}) == len(MODELS)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("sew-resnet19-imagenet", "did you mean 'sew-resnet18-imagenet'?"),
        ("spikfromer-4-384-cifar10", "did you mean 'spikformer-4-384-cifar10'?"),
        ("x", "`ptq4snn models` lists the built-in ones"),
        ("", "`ptq4snn models` lists the built-in ones"),
    ],
)
def test_unknown_names(name: str, words: str) -> None:
    with pytest.raises(PTQ4SNNError) as e:
        find(name)
    assert words in str(e.value) and repr(name) in str(e.value)


@pytest.mark.parametrize("name", MODELS)
def test_an_entry_fits_its_data(name: str) -> None:
    entry = MODELS[name]
    assert entry.data in DATA
    *frames, channels, height, width = entry.input
    steps, size = entry.preprocessing.steps, entry.preprocessing.size
    assert frames == ([] if steps is None else [steps])
    assert channels == entry.settings.get("in_channels", 3) and entry.steps == (steps or 4)
    if size is not None:
        assert (height, width) == (size if isinstance(size, tuple) else (size, size))
    with torch.device("meta"):
        model = entry.make(num_classes=7, T=3)
    assert [*model.state_dict().values()][-1].shape == (7,)
    assert {m.T for m in model.modules() if hasattr(m, "T")} == {3}


PREPROCESSING: dict[str, Any] = {
    "sdt-8-768-imagenet": {"resize": 235, "size": 224, "interpolation": "bicubic"},
    "metaspikeformer-8-512-kd-imagenet": {"resize": 256, "size": 224, "interpolation": "bicubic"},
    "qkformer-10-384-imagenet": {"resize": 256, "size": 224, "interpolation": "bicubic"},
    "sew-resnet18-imagenet": {"resize": 256, "size": 224, "interpolation": "bilinear"},
    "spikformer-8-512-imagenet": {"resize": 224, "size": 224, "interpolation": "bicubic"},
    "sdt-2-256-cifar100": {},
    "qkformer-4-384-cifar10": {},
    "qkformer-4-384-cifar100": {"mean": (0.4914, 0.4822, 0.4465), "std": (0.2470, 0.2435, 0.2616)},
    "sdt-2-256-cifar10-dvs": {"size": 64, "steps": 10},
    "spikformer-2-256-cifar10-dvs": {"size": 128, "steps": 16},
    "qkformer-2-256-cifar10-dvs": {"size": 128, "steps": 16},
    "metaspikeformer-fpn-55m-voc2012": {"resize": 512, "interpolation": "bilinear"},
}


@pytest.mark.parametrize("name", PREPROCESSING)
def test_preprocessing_is_the_authors(name: str) -> None:
    assert MODELS[name].preprocessing == Preprocessing(**PREPROCESSING[name])


def test_a_trained_entry_comes_with_weights_and_their_accuracy() -> None:
    entry = MODELS["default"]
    assert entry.score() == 89.40 and MODELS["sdt-2-256-cifar10"].score() is None
    model = entry.load(T=2)
    assert model.T == 2 and not model.training
    trained, random = model.state_dict()["fc.weight"], entry.make().state_dict()["fc.weight"]
    assert not torch.equal(trained, random) and torch.equal(trained, entry.load().state_dict()["fc.weight"])


@pytest.mark.parametrize(
    ("about", "score"),
    [
        ({"accuracy": "85.38"}, 85.38),
        ({"training": '{"result": {"samples": 9, "accuracy": 97.0, "accuracy_top5": 100.0}}'}, 97.0),
        ({"training": '{"result": {"aAcc": 90.0, "mIoU": 51.5, "mAcc": 60.0}}'}, 51.5),
        ({"model": "x"}, None),
    ],
)
def test_the_score_is_noted_with_the_weights(
    tmp_path: Path, about: dict[str, str], score: float | None
) -> None:
    save_file({"a": torch.zeros(1)}, tmp_path / "c.safetensors", about)
    entry = replace(MODELS["default"], checkpoint=str(tmp_path / "c.safetensors"))
    assert entry.score() == score


@pytest.mark.parametrize("name", [n for n, e in MODELS.items() if e.checkpoint])
def test_trained_weights_are_small_have_a_card_and_note_their_score(name: str) -> None:
    file = MODELS[name].weights()
    if file is None:
        pytest.skip(f"the weights of {name} are in the folder weights/ of the repository only")
    assert file.stat().st_size <= 4_000_000
    score = MODELS[name].score()
    assert score is not None
    card = file.with_suffix(".md") if name != "default" else file.with_name("README.md")
    terms = "CC BY-NC 4.0" if file.parent.name == "noncommercial" else "Apache-2.0"
    assert f"{score:.2f} %" in card.read_text(encoding="utf-8") and terms in card.read_text()


def test_trained_weights_score_what_is_noted() -> None:
    """Within the noise of 200 images."""
    _, images, labels = default_sample()
    for name, entry in MODELS.items():
        score = entry.score()
        if entry.data == "cifar10" and score is not None:
            found = ptq4snn.evaluate(entry.load(), [(normalize(images[:200]), labels[:200])])["accuracy"]
            assert abs(known(found) - score) < 3.5 * 50 / 200**0.5, name
