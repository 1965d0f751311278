"""What ptq4snn needs to be installed, and for what: read from the metadata of installed packages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.metadata import Distribution, PackageNotFoundError, distribution

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

__all__ = ["EXTRAS", "Package", "closure", "licence_of", "needed_by_extra"]

EXTRAS = ("torch", "cli", "report", "images", "figures", "nir", "onnx", "ray")  # of users; not of developers
LONGEST = 60  # characters of a licence's name; longer texts are the licence itself


@dataclass(frozen=True)
class Package:
    name: str
    version: str
    licence: str
    needs: tuple[str, ...] = field(default=())  # what it requires itself, as far as that is installed


def licence_of(found: Distribution) -> str:
    """SPDX where the package says it; else its classifiers, or what it wrote into the field."""
    meta = found.metadata
    if expression := meta.get_all("License-Expression"):
        return str(expression[0])
    named = [c for c in meta.get_all("Classifier") or [] if c.startswith("License ::")]
    names = [c.rpartition(" :: ")[2] for c in named if c != "License :: OSI Approved"]
    if names:
        return " / ".join(dict.fromkeys(names))
    text = "".join(meta.get_all("License") or []).strip()
    return text if text and len(text) <= LONGEST and "\n" not in text else "unknown"


def _installed(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def _requirements(found: Distribution, extras: Iterable[str]) -> list[Requirement]:
    """Those that hold here, with these extras."""
    wanted = ("", *extras)
    parsed = [Requirement(text) for text in found.requires or []]
    return [
        r for r in parsed if r.marker is None or any(r.marker.evaluate({"extra": extra}) for extra in wanted)
    ]


def closure(requirements: Iterable[Requirement]) -> dict[str, Package]:
    """All packages that these bring along, themselves among them, by name; of what is installed."""
    found: dict[str, Package] = {}
    todo = list(requirements)
    while todo:
        requirement = todo.pop()
        name = canonicalize_name(requirement.name)
        there = _installed(name)
        if name in found or there is None or name == "ptq4snn":
            continue
        more = _requirements(there, requirement.extras)
        needs = sorted({canonicalize_name(r.name) for r in more if _installed(r.name) is not None})
        found[name] = Package(there.metadata["Name"], there.version, licence_of(there), tuple(needs))
        todo += more
    return dict(sorted(found.items()))


def needed_by_extra() -> dict[str, dict[str, Package]]:
    """ "" is what everybody needs; then each extra's own, without that."""
    own = distribution("ptq4snn")
    required = closure(_requirements(own, ()))
    found = {"": required}
    for extra in EXTRAS:
        more = [r for r in _requirements(own, (extra,)) if r.marker and "extra" in str(r.marker)]
        found[extra] = {n: p for n, p in closure(more).items() if n not in required}
    return found
