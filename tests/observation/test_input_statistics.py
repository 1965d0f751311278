"""The input's grid: pixels found exactly, counts, continuous data, constants, merging."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from ptq4snn.modules.projection import InputQuantizer
from ptq4snn.observation.input_statistics import InputStatistics, spacing

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
CONV = nn.Conv2d(3, 4, 3)


def seen(*batches: Tensor, module: nn.Module = CONV) -> InputStatistics:
    out = InputStatistics.for_module(module)
    for x in batches:
        out.update(x)
    return out


def normalised(p: Tensor) -> Tensor:
    return (p.float() / 255 - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)


def random_pixels(n: int, seed: int = 0, low: int = 0, high: int = 256) -> Tensor:
    return torch.randint(low, high, (n, 3, 16, 16), generator=torch.Generator().manual_seed(seed))


def test_normalised_pixels_are_found_exactly() -> None:
    p = random_pixels(32)
    p.view(-1)[:2] = torch.tensor([0, 255])
    plan = seen(normalised(p[:16]), normalised(p[16:])).plan()
    assert plan.exact
    assert list(plan.scales) == pytest.approx([1 / (255 * s) for s in STD], rel=1e-6)
    assert [z / 2**16 for z in plan.zeros] == pytest.approx([255 * m for m in MEAN], abs=1e-3)
    assert torch.equal(InputQuantizer(plan, -3)(normalised(p)), p.double())


def test_pixels_of_few_values_are_on_the_pixel_grid() -> None:
    """Neither the least distance (2) nor any other is one step: 0, 2, 5, 9."""
    p = torch.tensor([0, 2, 5, 9, 250])[
        torch.randint(0, 5, (4, 3, 8, 8), generator=torch.Generator().manual_seed(0))
    ]
    plan = seen(normalised(p)).plan()
    assert plan.exact
    assert list(plan.scales) == pytest.approx([1 / (255 * s) for s in STD], rel=1e-6)


@pytest.mark.parametrize(
    ("values", "step"),
    [([3.0], 0.0), ([0.0, 1.0], 1.0), ([0.0, 2.0, 5.0], 1.0), ([0.0, 6.0, 10.0, 15.0], 1.0),
     ([-1.5, 0.0, 3.0], 1.5),
     ([0.0, 100.0, 255.0], 5.0), ([0.0, 1.0, 256.0], None), ([0.0, 1.0, 2**0.5, 3.1, 7.77], None)],
)  # fmt: skip
def test_spacing(values: list[float], step: float | None) -> None:
    assert spacing(torch.tensor(values, dtype=torch.float64)) == (
        None if step is None else pytest.approx(step)
    )


def test_a_first_batch_without_contrast_does_not_hide_the_grid() -> None:
    black = torch.zeros(16, 3, 16, 16, dtype=torch.int64)
    even = random_pixels(16, 1) // 2 * 2
    plan = seen(normalised(black), normalised(even), normalised(random_pixels(16, 2))).plan()
    assert plan.exact
    assert list(plan.scales) == pytest.approx([1 / (255 * s) for s in STD], rel=1e-6)


def test_counts() -> None:
    """Event frames: small integers from zero. The grid is theirs and zero stays zero."""
    x = torch.poisson(torch.full((2, 8, 3, 8, 8), 0.7), generator=torch.Generator().manual_seed(0))
    x[:, :, 2] = x[:, :, 2] * 3 + 3 * (x[:, :, 2] == 0)  # never zero: the grid still begins there
    plan = seen(x).plan()
    assert plan.exact and plan.scales == (1.0, 1.0, 3.0) and plan.zeros == (0, 0, 0)
    p = InputQuantizer(plan, -3)(x)
    assert torch.equal(p * torch.tensor([1.0, 1.0, 3.0]).view(3, 1, 1), x.double())


def test_continuous_data() -> None:
    x = torch.randn(16, 3, 16, 16, generator=torch.Generator().manual_seed(0)) * 2 + 0.3
    plan = seen(x).plan()
    assert not plan.exact
    z = torch.tensor(plan.zeros).view(3, 1, 1) / 2**16
    s = torch.tensor(plan.scales, dtype=torch.float64).view(3, 1, 1)
    assert torch.equal(z, z.round())  # zero itself is on the grid
    p = InputQuantizer(plan, -3)(x)
    assert float(p.min()) >= 0 and float(p.max()) <= 255
    assert (
        float(((p - z) * s - x).abs().max()) <= float(s.max()) * 1.01
    )  # half a step, and half a step of z at the ends


def test_constant_channel() -> None:
    x = normalised(random_pixels(16))
    x[:, 1] = 0.731
    plan = seen(x).plan()
    assert plan.exact
    p = InputQuantizer(plan, -3)(x)
    back = torch.tensor(plan.scales[1]) * (p[:, 1] - plan.zeros[1] / 2**16)
    assert float((back - 0.731).abs().max()) < 1e-4


def test_linear_has_one_entry() -> None:
    plan = seen(torch.tensor([[0.0, 0.5], [1.0, 3.5]]), module=nn.Linear(2, 3)).plan()
    assert plan.scales == (0.5,) and plan.exact


def test_a_grouped_convolution_has_all_its_channels() -> None:
    x = random_pixels(2)[:, [0, 1, 2, 0]].float()
    assert len(seen(x, module=nn.Conv2d(4, 4, 3, groups=2)).plan().scales) == 4


def parts(kind: str) -> list[Tensor]:
    if kind == "pixels":
        return [normalised(random_pixels(4, s)) for s in range(3)]
    if kind == "sparse":  # every part is on a coarser grid than all of them
        return [normalised(random_pixels(4, s) // 2 * 2 + s % 2) for s in range(3)]
    if kind == "constant":
        return [torch.full((4, 3, 8, 8), float(s)) for s in range(3)]
    g = torch.Generator().manual_seed(0)
    return [
        torch.randn(4, 3, 8, 8, generator=g),
        normalised(random_pixels(4)),
        normalised(random_pixels(4, 1)),
    ]


@pytest.mark.parametrize("kind", ["pixels", "sparse", "constant", "continuous"])
def test_merge_is_the_whole(kind: str) -> None:
    batches = parts(kind)
    whole = seen(*batches).plan()
    one = [seen(b) for b in batches]
    assert one[0].merge(one[1]).merge(one[2]).plan() == whole
    assert one[2].merge(one[0].merge(one[1])).plan() == whole
    assert whole.exact is (kind != "continuous")


def test_two_grids_are_none() -> None:
    a = torch.tensor([0.0, 1.0, 2.0]).repeat(3, 1).view(1, 3, 1, 3)
    b = a + 0.3717
    assert not seen(a, b).plan().exact


def test_observed_network_has_the_pixel_grid(observed: object, images: Callable[..., Tensor]) -> None:
    plan = observed.seen.inputs["conv1"].plan()  # type: ignore[attr-defined]
    assert plan.exact and list(plan.scales) == pytest.approx([1 / (255 * s) for s in STD], rel=1e-6)
