"""The paper's own figures, and whether a setting is the one they were measured in.

They are shown beside ours, never mixed with them. This module does not import torch.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = [
    "PaperSetting", "RunSetting", "cell", "difference", "paper_settings", "protocol_seeds", "same_setting",
]  # fmt: skip

FILE = "paper.toml"


@dataclass(frozen=True)
class PaperSetting:
    """One data set and backbone of one of the paper's tables."""

    experiment: str
    table: str
    data: str
    backbone: str
    steps: int
    models: tuple[str, ...]  # built-in models of this backbone
    rows: dict[str, dict[str, Any]]  # figures by label


@dataclass(frozen=True)
class RunSetting:
    """What an experiment is run on; None: not known, or not built in."""

    model: str | None
    data: str | None
    steps: int | None
    limit: int | None = None
    changed: str = ""  # fields of the recipes that are not the paper's


@cache
def contents() -> dict[str, Any]:
    return tomllib.loads((files("ptq4snn.experiments") / FILE).read_text("utf-8"))


def protocol_seeds() -> list[int]:
    """The seeds of the paper's protocol."""
    return [int(seed) for seed in contents()["protocol"]["Scorer seeds"].split("/")]


def paper_settings(experiment: str) -> list[PaperSetting]:
    found = [s for s in contents()["setting"] if s["experiment"] == experiment]
    return [PaperSetting(**{**s, "models": tuple(s["models"])}) for s in found]


def same_setting(experiment: str, ran: RunSetting) -> PaperSetting | None:
    """The paper's setting with this model, data, T, recipes and the whole test set, if there is one."""
    whole = ran.limit is None and not ran.changed
    for s in paper_settings(experiment):
        if ran.model in s.models and ran.data == s.data and ran.steps == s.steps and whole:
            return s
    return None


def difference(experiment: str, ran: RunSetting) -> str:
    """Why no figure of the paper stands beside ours."""
    settings = paper_settings(experiment)
    if not settings:
        return "the paper gives no figures to compare with"
    theirs = "; ".join(f"{s.backbone} on {s.data}, T = {s.steps}" for s in settings)
    part = "" if ran.limit is None else f", {ran.limit:,} test samples"
    part += f", other {ran.changed}" if ran.changed else ""
    steps = "" if ran.steps is None else f", T = {ran.steps}"
    ours = f"{ran.model or 'your own model'} on {ran.data or 'your own data'}{steps}{part}"
    return f"no figures of the paper here, because the setting differs: ours is {ours}; the paper's: {theirs}"


def cell(figures: dict[str, Any] | None) -> str:
    """The paper's figures of a row in one cell."""
    if figures is None:
        return ""
    if "mIoU" in figures:
        return " / ".join(f"{figures[n]:.2f}" for n in ("aAcc", "mIoU", "mAcc"))
    if "split" in figures:
        split = "/".join(f"{share:.4g}" for share in figures["split"])
        size = f"{figures['logical_mib']:.3f}/{figures['packed_mib']:.3f}"
        bits = f"{figures['bits_nonstem']:.3f} {figures['bits_all']:.3f}"
        return f"{split} {bits} {size} {figures['energy']:.3f}"
    text = f"{figures['accuracy']:.2f}"
    if "gain" in figures:
        text += f" (gain {figures['gain']:+.3f})"
    if "change" in figures or "drop" in figures:
        text += f" ({figures.get('change', -figures.get('drop', 0.0)):+.2f})"
    if "saturation" in figures:
        text += f" sat. {figures['saturation']:.2f}"
    return text
