"""How much a change of no meaning changes the network: the float model with weights jittered by 0.01 %.

    W' = W + 1e-4 sigma(W) n,  n normal

A spiking network is chaotic: the least disturbance flips spikes, and some decisions with them. No quantized
network can be told from the float one below this floor, so it stands beside every divergence and agreement.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ptq4snn.discovery.folding import Folded
from ptq4snn.heap import sparing
from ptq4snn.modules.readout import mean_divergence
from ptq4snn.progress import stepping
from ptq4snn.stages import NOISE

if TYPE_CHECKING:
    from ptq4snn.prepared import Prepared

__all__ = ["JITTER", "jittered", "jittered_logits", "noise_floor"]

JITTER = 1e-4  # of the standard deviation of a projection's weights


@contextmanager
def jittered(folded: Folded, seed: int = 0, size: float = JITTER) -> Iterator[None]:
    """Inside, the weights of all projections are jittered; the same seed draws the same noise."""
    weights: list[Tensor] = [folded.weight(name) for name in folded.discovery.projections]
    kept = [w.detach().clone() for w in weights]
    g = torch.Generator().manual_seed(seed)
    try:
        with torch.no_grad():
            for w in weights:
                noise = torch.randn(w.shape, generator=g, dtype=torch.float64)
                w.add_((noise * size * float(w.double().std(correction=0))).to(w))
        yield
    finally:
        with torch.no_grad():
            for w, before in zip(weights, kept, strict=True):
                w.copy_(before)


def noise_floor(prepared: Prepared) -> tuple[float, float]:
    """KL and agreement of the jittered float model with the float model on the samples that report."""
    if prepared.cache.noise is None:
        found = jittered_logits(prepared)
        prepared.cache.noise = mean_divergence(zip(prepared.reported_logits(), found, strict=True))
        prepared.cache.jittered = []
    return prepared.cache.noise


def jittered_logits(prepared: Prepared) -> list[Tensor]:
    """Logits of the jittered float model on the samples that report, computed once. It takes a second copy of
    the weights, so it is best done before there are others."""
    if not prepared.cache.jittered and prepared.cache.noise is None:
        with stepping(prepared.progress, 1, NOISE) as advance, sparing(), jittered(prepared.folded):
            prepared.cache.jittered = prepared.logits_of_float(prepared.reported)
            advance()
    return prepared.cache.jittered
