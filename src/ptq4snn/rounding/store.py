"""Finished units of a rounding, kept in a folder: an interrupted run goes on behind the last of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ptq4snn.bundle.format import IntegerArray, read_bundle, write_bundle
from ptq4snn.errors import BundleError
from ptq4snn.hashing import digest

__all__ = ["Rounded", "Store"]


@dataclass(frozen=True)
class Rounded:
    """Integers [C, ...] of projections, how many columns of each GPTQ had to leave alone, and scales [C]
    where other ones than the lattice's were found to be better."""

    integers: Mapping[str, Tensor] = field(default_factory=dict)
    dead: Mapping[str, int] = field(default_factory=dict)
    scales: Mapping[str, Tensor] = field(default_factory=dict)

    def __or__(self, other: Rounded) -> Rounded:
        """Both."""
        return Rounded(
            {**self.integers, **other.integers}, {**self.dead, **other.dead}, {**self.scales, **other.scales}
        )


@dataclass(frozen=True)
class Store:
    """Without a folder nothing is kept. Files that are damaged or of another run are not read."""

    folder: Path | None
    identity: str  # hash of what the units are made from

    def _path(self, folder: Path, unit: tuple[str, ...]) -> Path:
        return folder / f"{digest(self.identity, unit)[:32]}.ptq4snn"

    def load(self, unit: tuple[str, ...]) -> Rounded | None:
        if self.folder is None or not self._path(self.folder, unit).is_file():
            return None
        try:
            found = read_bundle(self._path(self.folder, unit))
        except BundleError:
            return None
        mine = (found.plan.get("identity"), found.plan.get("unit")) == (self.identity, list(unit))
        if not mine or set(found.integers) != set(unit):
            return None
        integers = {n: torch.tensor(a.values, dtype=torch.float64) for n, a in found.integers.items()}
        scales = {n: torch.tensor(s, dtype=torch.float64) for n, s in found.plan["scales"].items()}
        return Rounded(integers, found.plan["dead"], scales)

    def save(self, unit: tuple[str, ...], done: Rounded, bits: dict[str, int]) -> None:
        if self.folder is None:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as why:
            raise BundleError(
                f"the folder {self.folder} for finished units cannot be made: {why.strerror}; choose another"
            ) from why
        arrays = {n: IntegerArray(t.cpu().numpy().astype("int32"), bits[n]) for n, t in done.integers.items()}
        plan: dict[str, Any] = {"identity": self.identity, "unit": unit, "dead": dict(done.dead)}
        plan["scales"] = {n: s.tolist() for n, s in done.scales.items()}
        write_bundle(self._path(self.folder, unit), plan, arrays, {})
