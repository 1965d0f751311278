"""Finished runs, one JSON file each under the hash of what decides them.

Files are written whole and read anew, so several commands may share a folder and a killed one goes on.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ptq4snn.errors import PTQ4SNNError
from ptq4snn.files import write_whole
from ptq4snn.hashing import digest

__all__ = ["Store"]


class Store:
    """Results by setting; a setting is a JSON-able mapping."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise PTQ4SNNError(f"{self.folder} is a file: name a folder for the runs")
        self.folder.mkdir(parents=True, exist_ok=True)

    def path(self, setting: dict[str, Any]) -> Path:
        return self.folder / f"{digest(setting)[:24]}.json"

    def get(self, setting: dict[str, Any]) -> dict[str, Any] | None:
        """The result that was stored for exactly this setting; a damaged file is as good as none."""
        try:
            held = json.loads(self.path(setting).read_text("utf-8"))
            result: dict[str, Any] = held["result"]
            return result if digest(held["setting"]) == digest(setting) else None
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None

    def put(self, setting: dict[str, Any], result: dict[str, Any]) -> None:
        write_whole(self.path(setting), json.dumps({"setting": setting, "result": result}, indent=1) + "\n")
