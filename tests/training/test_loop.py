"""Training: it learns, the seed decides, and a killed run goes on as if it had not been killed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ptq4snn.data.samples import VOID
from ptq4snn.errors import CheckpointError, DataError, RecipeError
from ptq4snn.models.neuron import LIF
from ptq4snn.models.sdt import SpikeDrivenTransformer
from ptq4snn.models.sew_resnet import SEWResNet
from ptq4snn.training import loop
from ptq4snn.training.loop import train
from ptq4snn.training.resume import Place
from ptq4snn.training.training_recipe import Stage, TrainingRecipe


class Blobs:
    """Two classes: bright on the left, or on the right."""

    classes = 2

    def __init__(self, count: int = 96, shape: tuple[int, ...] = (3, 8, 8)) -> None:
        g = torch.Generator().manual_seed(0)
        self.y = torch.arange(count) % 2
        self.x = 0.3 * torch.randn(count, *shape, generator=g)
        half = shape[-1] // 2
        self.x[self.y == 0, ..., :half] += 1.5
        self.x[self.y == 1, ..., half:] += 1.5

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        i = torch.as_tensor(indices)
        return self.x[i], self.y[i]


def make(T: int | None) -> nn.Module:
    return SEWResNet(widths=(8,), blocks=(1,), strides=(2,), stem=8, num_classes=2, T=T or 3)


def recipe(**changes: Any) -> TrainingRecipe:
    stages = (Stage("rate", 3, 1e-2), Stage("spiking", 2, 5e-3))
    settings = {"stages": stages, "batch_size": 16, "validation": 16, "augmentation": "crop", "margin": 1}
    return TrainingRecipe("net", **{**settings, **changes})


def run(out: Path, settings: TrainingRecipe | None = None, **options: Any) -> tuple[nn.Module, Place]:
    out.mkdir(exist_ok=True)
    return train(settings or recipe(), make, Blobs(), out, loop.Conduct(**options))


def test_products_in_bfloat16_learn_and_leave_the_weights_in_float32(tmp_path: Path) -> None:
    seen: set[torch.dtype] = set()

    class Watched(SEWResNet):
        def forward(self, x: Tensor) -> Tensor:
            logits: Tensor = super().forward(x)
            if torch.is_grad_enabled():
                seen.add(logits.dtype)
            return logits

    def watched(T: int | None) -> nn.Module:
        return Watched(widths=(8,), blocks=(1,), strides=(2,), stem=8, num_classes=2, T=T or 3)

    (tmp_path / "16").mkdir()
    model, place = train(recipe(precision="bfloat16"), watched, Blobs(), tmp_path / "16")
    assert seen == {torch.bfloat16}
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert place.log[-1]["validation"] > 90.0
    assert not same(model, run(tmp_path / "32")[0])


def same(a: nn.Module, b: nn.Module) -> bool:
    return all(
        torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True)
    )


def test_it_learns_and_ends_at_the_models_own_steps(tmp_path: Path) -> None:
    stages = (Stage("rate", 8, 1e-2), Stage("spiking", 4, 5e-3))
    model, place = run(tmp_path, recipe(stages=stages))
    assert [e["kind"] for e in place.log] == ["rate"] * 8 + ["spiking"] * 4
    assert place.log[-1]["loss"] < 0.6 * place.log[0]["loss"]
    assert place.log[-1]["validation"] >= 90.0
    assert model.T == 3 and not model.training


def test_the_seed_decides_and_no_global_random_state_is_touched(tmp_path: Path) -> None:
    torch.manual_seed(1)
    state = torch.random.get_rng_state()
    first, _ = run(tmp_path / "a")
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.manual_seed(2)
    again, _ = run(tmp_path / "b")
    other, _ = run(tmp_path / "c", recipe(seed=1))
    assert same(first, again) and not same(first, other)


class Killed(Exception):
    pass


@pytest.mark.parametrize("steps", [3, 5, 16, 21])
def test_a_killed_run_goes_on_to_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    """Killed inside and between epochs of both stages; 5 steps are an epoch, every step is saved."""
    whole, place = run(tmp_path / "whole")
    monkeypatch.setattr(loop, "SAVE_SECONDS", -1.0)
    step, left = loop.Trainer.step, [steps]

    def killed(self: loop.Trainer, *args: Any) -> float:
        if not left[0]:
            raise Killed
        left[0] -= 1
        return step(self, *args)

    monkeypatch.setattr(loop.Trainer, "step", killed)
    with pytest.raises(Killed):
        run(tmp_path / "killed")
    left[0] = 1000
    resumed, after = run(tmp_path / "killed")
    assert left[0] == 1000 - (25 - steps)  # nothing was done twice
    assert same(whole, resumed)
    assert [e["loss"] for e in after.log] == pytest.approx([e["loss"] for e in place.log], abs=0)


def test_a_finished_run_is_not_run_again(tmp_path: Path) -> None:
    first, _ = run(tmp_path)
    again, place = run(tmp_path, report=lambda epoch: pytest.fail("trained again"))
    assert same(first, again) and len(place.log) == 5


def test_another_recipe_does_not_go_on(tmp_path: Path) -> None:
    run(tmp_path)
    with pytest.raises(CheckpointError, match="another recipe, model, start or data set"):
        run(tmp_path, recipe(weight_decay=0.5))


def test_other_samples_do_not_go_on(tmp_path: Path) -> None:
    """Not even if the first, the middle and the last are the same."""
    run(tmp_path)
    for part in ("x", "y"):
        other = Blobs()
        values = getattr(other, part)
        values[7] = 1 - values[7]
        with pytest.raises(CheckpointError, match="another recipe, model, start or data set"):
            train(recipe(), make, other, tmp_path)


def test_another_model_does_not_go_on(tmp_path: Path) -> None:
    def louder(T: int | None) -> nn.Module:
        model = make(T)
        model.register_forward_pre_hook(lambda m, args: (args[0] * 2,))  # the same weights' names and shapes
        return model

    run(tmp_path)
    with pytest.raises(CheckpointError, match="another recipe, model, start or data set"):
        train(recipe(), louder, Blobs(), tmp_path)


def test_other_weights_to_start_from_do_not_go_on(tmp_path: Path) -> None:
    file = tmp_path / "start.pt"
    for seed in (0, 1):
        torch.manual_seed(seed)
        torch.save(make(None).state_dict(), file)
        if seed == 0:
            run(tmp_path / "run", recipe(start=str(file)))
            run(tmp_path / "run", recipe(start=str(file)), report=lambda epoch: pytest.fail("trained again"))
    with pytest.raises(CheckpointError, match="another recipe, model, start or data set"):
        run(tmp_path / "run", recipe(start=str(file)))
    file.unlink()
    with pytest.raises(CheckpointError, match="there is no checkpoint file"):
        run(tmp_path / "run", recipe(start=str(file)))


def test_a_head_for_other_classes_starts_anew(tmp_path: Path) -> None:
    file = tmp_path / "start.pt"
    torch.manual_seed(3)
    other = SEWResNet(widths=(8,), blocks=(1,), strides=(2,), stem=8, num_classes=5, T=3)
    torch.save(other.state_dict(), file)
    still = recipe(start=str(file), anew="fc", stages=(Stage("spiking", 1, 0.0),), clip=0.0)
    found = run(tmp_path / "run", still)[0].state_dict()
    weights = {k: v for k, v in other.state_dict().items() if "running" not in k and "tracked" not in k}
    assert all(torch.equal(found[k], v) for k, v in weights.items() if not k.startswith("fc."))
    assert found["fc.weight"].shape[0] == 2 and bool((found["fc.weight"] != 0).any())
    with pytest.raises(CheckpointError, match="no weights in 'haed'"):
        run(tmp_path / "run2", recipe(start=str(file), anew="haed"))
    with pytest.raises(CheckpointError, match="wrong shape"):
        run(tmp_path / "run3", recipe(start=str(file)))


def test_a_place_is_written_whole_and_keeps_its_mode(tmp_path: Path) -> None:
    run(tmp_path)
    (tmp_path / "resume.pt").chmod(0o600)
    (tmp_path / ".resume.pt").mkdir()  # the guessable name of a draft
    run(tmp_path)
    assert (tmp_path / "resume.pt").stat().st_mode & 0o777 == 0o600
    assert sorted(p.name for p in tmp_path.iterdir()) == [".resume.pt", "resume.pt"]


def test_a_damaged_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "resume.pt").write_bytes(b"PK\x03\x04 no")
    with pytest.raises(CheckpointError, match=r"resume\.pt is damaged"):
        run(tmp_path)


def test_too_few_samples(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="96 training samples are too few for batches of 90 besides 16"):
        run(tmp_path, recipe(batch_size=90))


def test_sgd_and_no_validation(tmp_path: Path) -> None:
    stages = (Stage("spiking", 2, 0.05, steps=1),)
    model, place = run(tmp_path, recipe(optimizer="sgd", stages=stages, validation=0))
    assert place.log[-1]["validation"] is None and place.log[-1]["loss"] < place.log[0]["loss"]
    assert model.T == 1


def test_event_recordings_are_averaged_for_rates(tmp_path: Path) -> None:
    def transformer(T: int | None) -> nn.Module:
        return SpikeDrivenTransformer(16, 1, 2, num_classes=2, in_channels=2, T=T or 4, dvs=True)

    stages = (Stage("rate", 8, 1e-2), Stage("spiking", 3, 5e-3))
    _, place = train(recipe(stages=stages), transformer, Blobs(64, (4, 2, 8, 8)), tmp_path)
    assert place.log[-1]["validation"] >= 90.0


class Halves(Blobs):
    """Pixels of class 1 are bright; a border is not labelled."""

    def __getitem__(self, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        x, _ = super().__getitem__(indices)
        y = (x.mean(1) > 0.7).long()
        y[:, 0] = VOID
        return x, y


class Pixels(nn.Module):
    """Logits at half the size."""

    def __init__(self, T: int) -> None:
        super().__init__()
        self.T, self.conv, self.norm, self.lif = T, nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), LIF()
        self.head = nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        current = self.norm(self.conv(x)).expand(self.T, -1, -1, -1, -1)
        return self.head(self.lif(current).mean(0))


def test_segmentation(tmp_path: Path) -> None:
    stages = (Stage("rate", 8, 2e-2), Stage("spiking", 3, 5e-3))
    settings = recipe(class_weights=True, stages=stages)
    _, place = train(settings, lambda T: Pixels(T or 4), Halves(64, (3, 16, 16)), tmp_path)
    assert place.log[-1]["validation"] > 85.0


def test_a_rate_network_alone_ends_as_a_spiking_one(tmp_path: Path) -> None:
    model, _ = run(tmp_path, recipe(stages=(Stage("rate", 1, 1e-2),)))
    assert model.T == 3 and any(isinstance(m, LIF) for m in model.modules())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.x.fill_(float("nan")), "the loss is nan at step"),
        (lambda d: d.y.fill_(2), "a label is 2, but the model has the outputs 0 to 1"),
        (lambda d: d.y.fill_(-1), "a label is -1"),
        (lambda d: setattr(d, "y", d.y + 0.5), "a label is .*5: labels are whole numbers"),
    ],
)
def test_samples_that_cannot_be_learned(tmp_path: Path, change: Any, message: str) -> None:
    samples = Blobs()
    change(samples)
    with pytest.raises(DataError, match=message):
        train(recipe(), make, samples, tmp_path)
    assert not list(tmp_path.iterdir())


def test_samples_that_the_model_cannot_take(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"the model cannot run on samples of shape \[5, 8, 8\]"):
        train(recipe(), make, Blobs(shape=(5, 8, 8)), tmp_path)
    with pytest.raises(RecipeError, match=r"samples of shape \[12\] have no rows and columns"):
        train(recipe(), make, Blobs(shape=(12,)), tmp_path)


def test_a_full_disk_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, place: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(CheckpointError, match="is there space left"):
        run(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_part_of_an_epoch(tmp_path: Path) -> None:
    """5 steps are an epoch: 1.6 of them are 8 steps, and their loss is an average over 3 in the second."""
    _, place = run(tmp_path, recipe(stages=(Stage("spiking", 1.6, 1e-2),)))
    assert [e["epoch"] for e in place.log] == [1, 2]
    assert 0.2 < place.log[1]["loss"] < 1.5
    settings = recipe(stages=(Stage("spiking", 1.6, 1e-2),))
    trainer = loop.Trainer(settings, make, Blobs(), tmp_path, loop.Conduct())
    assert trainer.total(settings.stages[0]) == 8
