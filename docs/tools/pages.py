"""Pages of the site that lie elsewhere in the repository: the README, the handbook, the examples.

On a code host the links between them and docs/ are paths of the repository; here they become pages.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    "examples/README.md": "examples.md",
}


def on_files(files: Files, config: Any) -> Files:
    for source, page in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        text = text + examples() if page == "examples.md" else text
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    return re.sub(r"(?<=\]\()(?!https?:)([^)#\s]+)", lambda link: moved(link[1]), markdown)


def moved(link: str) -> str:
    """A link of the repository as a link of the site."""
    path = link.removeprefix("../").removeprefix("docs/")
    if path in PAGES:
        return PAGES[path]
    if path.endswith(".py"):  # an example; its own page links to it without the folder
        page = "examples.md" if path.startswith("examples/") else ""
        return f"{page}#{Path(path).stem}"
    return path


def examples() -> str:
    """The code of every example under a heading of its own, in the order of the table."""
    table = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    parts = []
    for name in re.findall(r"\((\w+)\.py\)", table):
        code = (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8")
        parts.append(f"\n## {name}.py {{ #{name} }}\n\n```python\n{code}```\n")
    return "".join(parts)
