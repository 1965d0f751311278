"""What goes with a release: packages that are the same bytes twice, a bill of materials, licences."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

pytest.importorskip("packaging.licenses", reason="packaging 24.2 reads licences")
from build_release import plain_tar, plain_zip
from make_licences import PAGE, renewed, tables
from make_sbom import bill
from package_facts import EXTRAS, needed_by_extra

ROOT = Path(__file__).parents[2]
WHEN = 1_700_000_000


def tar(names: list[str], mode: int, when: int) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as file:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size, info.mtime, info.mode, info.uname = len(name), when, mode, "somebody"
            file.addfile(info, io.BytesIO(name.encode()))
    return out.getvalue()


def wheel(names: list[str], mode: int, year: int) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        for name in names:
            info = zipfile.ZipInfo(name, (year, 1, 2, 3, 4, 6))
            info.external_attr = mode << 16
            file.writestr(info, name)
    return out.getvalue()


def test_order_time_owner_and_permissions_do_not_show() -> None:
    names = ["p/b.py", "p/a.py", "p-1.dist-info/RECORD", "p-1.dist-info/METADATA", "p/k.so"]
    one, two = tar(names, 0o600, 5), tar(names[::-1], 0o777, 6)
    assert one != two and plain_tar(one, WHEN) == plain_tar(two, WHEN) != plain_tar(one, WHEN + 60)
    one, two = wheel(names, 0o600, 1999), wheel(names[::-1], 0o777, 2020)
    assert one != two and plain_zip(one, WHEN) == plain_zip(two, WHEN)
    with zipfile.ZipFile(io.BytesIO(plain_zip(one, WHEN))) as file:
        assert file.namelist()[-1] == "p-1.dist-info/RECORD"  # as the standard wants it
        assert file.getinfo("p/k.so").external_attr >> 16 == 0o100755
        assert {name: file.read(name).decode() for name in names} == {name: name for name in names}


@pytest.mark.full
@pytest.mark.skipif(os.environ.get("PTQ4SNN_FULL") != "1", reason="PTQ4SNN_FULL=1 compiles kernels twice")
def test_two_builds_are_the_same_bytes() -> None:
    script = ROOT / "scripts" / "build_release.py"
    done = subprocess.run(
        [sys.executable, str(script), "--twice"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("the same twice") == 2


def test_the_bill_names_what_is_installed_and_its_licences() -> None:
    found = bill()
    assert found == bill() and (found["bomFormat"], found["specVersion"]) == ("CycloneDX", "1.5")
    parts = {c["name"].lower(): c for c in found["components"]}
    for name, scope in (("numpy", "required"), ("safetensors", "required"), ("torch", "optional")):
        assert parts[name]["version"] == version(name) and parts[name]["scope"] == scope
    assert "vega-lite" in parts
    assert all(c["licenses"] for c in found["components"])  # of each a licence is known
    references = {c["bom-ref"] for c in (*found["components"], found["metadata"]["component"])}
    assert len(references) == len(found["components"]) + 1
    assert {r for d in found["dependencies"] for r in (d["ref"], *d["dependsOn"])} <= references


def test_the_page_of_licences_is_that_of_the_installed_packages() -> None:
    found = needed_by_extra()
    if missing := [extra for extra in EXTRAS if not found[extra]]:
        pytest.skip(f"without the extra {missing[0]} its licences are not known")
    if sys.version_info[:2] != (3, 11):
        pytest.skip("the page is made by Python 3.11; another brings other packages along")
    page = PAGE.read_text(encoding="utf-8")
    assert page == renewed(page, tables(found)), "python scripts/make_licences.py makes it anew"
