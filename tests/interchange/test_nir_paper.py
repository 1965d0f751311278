"""Files of the NIR paper, with what its platforms made of them.

They lie in the folder paper/ of the wheel nir 1.0.3; PTQ4SNN_NIR_PAPER says where that is. None of them was
written by lava-dl, which cannot; Lava, on a CPU and on the Loihi chip, read the one that is read here.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("nir")

import ptq4snn

PAPER = Path(os.environ.get("PTQ4SNN_NIR_PAPER", "/nowhere"))
NEURON = PAPER / "01_lif" / "lif_norse.nir"
needs_paper = pytest.mark.skipif(not NEURON.is_file(), reason="PTQ4SNN_NIR_PAPER is not given")
# Lava's spikes come one step later: its synapses hand on what came in the step before
PLATFORMS = {"norse": 0, "snntorch": 0, "lava_cpu_float": 1, "lava_cpu_fixed": 1, "lava_loihi_fixed": 1}


@needs_paper
@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_neuron_fires_as_on_other_platforms(platform: str) -> None:
    rows = np.loadtxt(NEURON.parent / f"lif_{platform}.csv", delimiter=",")  # input, potential, spikes [T, 3]
    net = ptq4snn.from_nir(NEURON, dt=1e-4, reset="zero", readout="none").double()
    with torch.no_grad():
        spikes = net(torch.from_numpy(rows[:, 0]).reshape(1, -1, 1)).reshape(-1).numpy()
    late = PLATFORMS[platform]
    assert spikes.sum() == 4
    np.testing.assert_array_equal(rows[late:, 2], spikes[: len(spikes) - late])


@needs_paper
def test_and_so_do_its_integers() -> None:
    rows = np.loadtxt(NEURON.parent / "lif_lava_loihi_fixed.csv", delimiter=",")
    net = ptq4snn.from_nir(NEURON, dt=1e-4, reset="zero", readout="none")
    x = torch.from_numpy(rows[:, 0]).float().reshape(1, -1, 1).repeat(4, 1, 1)
    q = ptq4snn.quantize(net, x, "w8m32")
    np.testing.assert_array_equal(q(x)[0, :-1, 0].numpy(), rows[1:, 2])
