"""A line of code knows its room: no two packages have files of one name."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import ptq4snn

SOURCE = Path(ptq4snn.__file__).parent
# a file of `cli` is named as its command, a figure as itself, a way out by the kinds of operations
BY_ANOTHER_RULE = ("cli", "report/figures", "export/c99", "export/nir_form", "export/onnx_form")


def test_file_names_do_not_repeat() -> None:
    homes = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        folder = path.parent.relative_to(SOURCE).as_posix()
        if path.name != "__init__.py" and folder not in BY_ANOTHER_RULE:
            homes[path.name].append(folder)
    assert len(homes) > 200
    assert not {name: folders for name, folders in homes.items() if len(folders) > 1}
