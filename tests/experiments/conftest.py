"""A small network with its data."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from experiments.small import Case
from torch import Tensor

from ptq4snn.models.sew_resnet import SEWResNet


@pytest.fixture(scope="session")
def case(small_model: Callable[..., SEWResNet], images: Callable[..., Tensor]) -> Case:
    x = images(30, seed=2)
    y = torch.randint(0, 10, (30,), generator=torch.Generator().manual_seed(0))
    model = small_model()
    with torch.no_grad():
        model.get_parameter("fc.bias").sub_(model(x).mean(0))  # else one class wins always
        y[:20] = model(x[:20]).argmax(1)
    return Case(model, images(48, seed=1), [(x[:12], y[:12]), (x[12:], y[12:])])
