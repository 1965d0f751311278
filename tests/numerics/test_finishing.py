"""Softmax, log-softmax and argmax against torch, and against sums in another order."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ptq4snn.numerics.finishing import finished


@pytest.mark.parametrize("classes", [1, 2, 10, 1000])
@pytest.mark.parametrize("spread", [1e-3, 3.0, 80.0, 2000.0])
def test_as_torch_computes_it_in_float64(classes: int, spread: float) -> None:
    x = (torch.randn(16, classes, 3, generator=torch.Generator().manual_seed(0)) * spread).numpy()
    wide = torch.from_numpy(x).double()
    for how, f, least in (("softmax", torch.softmax, 1e-38), ("log_softmax", torch.log_softmax, 1e-9)):
        found, expected = finished(x, [(how, 1)]), f(wide, 1).numpy()
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected.astype(np.float32), rtol=1.3e-7, atol=least)
        double = finished(x.astype(np.float64), [(how, 1)])
        np.testing.assert_allclose(double, expected, rtol=2e-9, atol=least)
    np.testing.assert_array_equal(finished(x, [("argmax", 1)]), x.argmax(1))


def test_the_order_of_the_classes_does_not_matter() -> None:
    x = np.random.default_rng(0).normal(0, 6, (8, 999)).astype(np.float32)
    order = np.random.default_rng(1).permutation(999)
    for how in ("softmax", "log_softmax"):
        np.testing.assert_array_equal(finished(x, [(how, -1)])[:, order], finished(x[:, order], [(how, -1)]))


def test_of_equal_logits_the_first() -> None:
    x = np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 0.0]], dtype=np.float32)
    np.testing.assert_array_equal(finished(x, [("softmax", 1), ("argmax", 1)]), [1, 0])
