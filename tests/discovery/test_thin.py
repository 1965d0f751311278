"""Channel numbers that take no memory along axes on which nothing changes."""

from __future__ import annotations

import torch
from torch import nn

from ptq4snn.discovery.facts import TIME
from ptq4snn.discovery.surgery import copy_model
from ptq4snn.discovery.thin import channels_of, spread, thin


def test_only_axes_that_are_kept_once_are_thinned() -> None:
    ids = (torch.arange(3.0).view(1, 3, 1) + TIME * torch.arange(2.0).view(2, 1, 1)).expand(2, 3, 50)
    assert thin(ids).shape == (2, 3, 1) and thin(ids, keep=2).shape == (2, 3, 50)
    assert torch.equal(channels_of(ids), ids.contiguous() % TIME)
    dense = torch.zeros(2, 3, 5)
    assert thin(dense).shape == dense.shape  # equal, but nobody said so


def test_spreading_keeps_every_number() -> None:
    image = torch.arange(64.0).view(64, 1, 1).expand(64, 40, 40).contiguous()
    odd = image.clone()
    odd[5, 7, 9] = 1.0
    found = spread(image)
    assert torch.equal(found, image) and found.untyped_storage().nbytes() == 64 * 4
    assert torch.equal(spread(odd), odd)


def test_a_copy_that_shares_has_parameters_of_its_own() -> None:
    """Numbers are shared, objects are not: another type or place for the one's leaves the other's alone."""
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    net[1].weight = net[0].weight
    twin = copy_model(net, net.parameters())
    a, b = net.get_submodule("0").weight, twin.get_submodule("0").weight
    assert isinstance(a, nn.Parameter) and isinstance(b, nn.Parameter)
    assert a is not b and a.data_ptr() == b.data_ptr()
    assert twin.get_submodule("1").weight is b  # what was tied is tied
    twin.double()
    assert a.dtype == torch.float32 and b.dtype == torch.float64
    assert copy_model(net).get_submodule("0").weight.data_ptr() != a.data_ptr()  # type: ignore[operator]
