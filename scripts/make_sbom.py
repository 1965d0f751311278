"""A software bill of materials, CycloneDX 1.5 as JSON, from the metadata of installed packages:

    python scripts/make_sbom.py --out dist/ptq4snn.cdx.json

Components are what ptq4snn requires, what each of its extras brings along, in the versions that are installed
(those of constraints.txt), and the JavaScript inside of it. The same environment gives the same bytes.
"""

from __future__ import annotations

import argparse
import json
import uuid
from pathlib import Path
from typing import Any

from package_facts import Package, needed_by_extra
from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

import ptq4snn

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = ROOT / "src" / "ptq4snn" / "assets" / "vega" / "vega.min.js"  # its first line tells the versions


def reference(p: Package) -> str:
    return f"pkg:pypi/{p.name.lower().replace('_', '-')}@{p.version}"


def licences(text: str) -> list[dict[str, Any]]:
    """An SPDX expression where it is one, else its name."""
    if text == "unknown":
        return []
    try:
        return [{"expression": canonicalize_license_expression(text)}]
    except InvalidLicenseExpression:
        return [{"license": {"name": text}}]


def component(p: Package, extras: list[str]) -> dict[str, Any]:
    """`scope`: what running a bundle needs is required."""
    made: dict[str, Any] = {
        "type": "library", "bom-ref": reference(p), "name": p.name, "version": p.version,
        "purl": reference(p),
        "scope": "required" if "" in extras else "optional", "licenses": licences(p.licence),
        "properties": [{"name": "ptq4snn:extra", "value": e} for e in extras if e],
    }  # fmt: skip
    return made


def scripts() -> list[dict[str, Any]]:
    """What draws the figures of a page, inside of the package."""
    first = SCRIPTS.read_text(encoding="utf-8").split(";", 1)[0].removeprefix("/* ")
    pairs = [part.rsplit(" ", 1) for part in first.split(", ")]
    return [
        {
            "type": "library", "bom-ref": f"pkg:npm/{n.lower()}@{v}", "name": n, "version": v,
            "purl": f"pkg:npm/{n.lower()}@{v}", "scope": "required", "licenses": licences("BSD-3-Clause"),
        }
        for n, v in pairs
    ]  # fmt: skip


def bill() -> dict[str, Any]:
    found = needed_by_extra()
    packages = {n: p for part in found.values() for n, p in part.items()}
    own = Package("ptq4snn", ptq4snn.__version__, "Apache-2.0", tuple(found[""]))
    main = component(own, [""]) | {"type": "application"}
    components = [component(p, [e for e in found if n in found[e]]) for n, p in sorted(packages.items())]
    depends = [{"ref": reference(own), "dependsOn": [reference(packages[n]) for n in own.needs]}]
    for _, p in sorted(packages.items()):
        depends.append(
            {"ref": reference(p), "dependsOn": [reference(packages[n]) for n in p.needs if n in packages]}
        )
    body = {"metadata": {"component": main}, "components": components + scripts(), "dependencies": depends}
    number = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(body, sort_keys=True))
    head = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{number}",
        "version": 1,
    }
    return head | body


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist" / "ptq4snn.cdx.json")
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(bill(), indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(f"wrote {args.out}")


if __name__ == "__main__":
    main()
