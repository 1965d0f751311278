"""Finished candidates, kept in the folder of `work`: what each did on the samples that judge, and its bundle.

The goal is not part of what decides a candidate, so that a search for another one uses them, too.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ptq4snn.discovery.model_digest import model_digest
from ptq4snn.errors import BundleError
from ptq4snn.frontier.candidates import Candidate
from ptq4snn.frontier.dealing import Dealt
from ptq4snn.frontier.goal import Outcome
from ptq4snn.hashing import Hash, code_digest
from ptq4snn.modules.quantized import QuantizedModel
from ptq4snn.modules.saving import load_model
from ptq4snn.prepared import Prepared
from ptq4snn.run_store import Store
from ptq4snn.team import SOLO, Team

__all__ = ["Finished", "Kept", "identity"]

FOLDER = "candidates"


@dataclass(frozen=True)
class Kept:
    """A candidate that was quantized and judged."""

    candidate: Candidate
    bytes: int
    outcome: Outcome
    warnings: tuple[str, ...] = ()
    stored: bool = False


def identity(prepared: Prepared, dealt: Dealt) -> str:
    """The hash of what all candidates are made from and judged by."""
    sample = prepared.sample
    few = sample.narrow(prepared.batch_axis, 0, min(2, sample.shape[prepared.batch_axis]))
    found = Hash(code_digest(), model_digest(prepared.model, few), str(sample.device), prepared.batch_axis)
    for x in dealt.calibration:
        found.add(x)
    for batch in dealt.judging:
        found.add(batch.unpack())
    found.add(dealt.labels)
    return found.hexdigest()


class Finished:
    """Without a folder nothing is kept."""

    def __init__(self, folder: Path | None, material: str, team: Team = SOLO) -> None:
        self.store = None if folder is None else Store(folder / FOLDER)
        self.material, self.team = material, team

    def _setting(self, candidate: Candidate) -> dict[str, Any]:
        return {"material": self.material, "recipe": candidate.recipe.to_dict()}

    def get(self, candidate: Candidate) -> Kept | None:
        if self.store is None:
            return None
        found = self.team.told(partial(self.store.get, self._setting(candidate)), "finished candidates")
        if found is None:
            return None
        right = None if found["right"] is None else torch.tensor(found["right"], dtype=torch.bool)
        outcome = Outcome(torch.tensor(found["agree"], dtype=torch.float64), right)
        return Kept(candidate, found["bytes"], outcome, tuple(found["warnings"]), True)

    def put(self, done: Kept, q: QuantizedModel) -> None:
        """The bundle first: where the result is, the bundle is."""
        if self.store is None or not self.team.leads:
            return
        q.save(self._bundle(done.candidate))
        right = done.outcome.right
        self.store.put(
            self._setting(done.candidate),
            {
                "bytes": done.bytes, "agree": done.outcome.agree.tolist(), "warnings": list(done.warnings),
                "right": None if right is None else right.int().tolist(),
            },
        )  # fmt: skip

    def load(self, candidate: Candidate, model: nn.Module) -> QuantizedModel | None:
        """The quantized model as it was; None where its bundle was taken away or altered, or lies where not
        all processes see it."""
        if self.store is None:
            return None
        found = self._read(candidate, model)
        return found if all(self.team.all(found is not None, "finished candidates")) else None

    def _read(self, candidate: Candidate, model: nn.Module) -> QuantizedModel | None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", UserWarning)  # a bundle that lost its report
                q = load_model(self._bundle(candidate), model)
        except (BundleError, OSError, UserWarning):
            return None
        q.report.pop("bundle", None)
        return q if q.report else None

    def _bundle(self, candidate: Candidate) -> Path:
        assert self.store is not None
        return self.store.path(self._setting(candidate)).with_suffix(".ptq")
