"""A real Chromium, where there is one, and what a page did in it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
PATIENCE = 60_000  # ms, on a busy machine


def find_chromium() -> str:
    given = os.environ.get("PTQ4SNN_CHROMIUM")
    found = given or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("no Chromium: install Debian's chromium, or set PTQ4SNN_CHROMIUM")
    return found


@contextmanager
def chromium() -> Iterator[Any]:
    """One browser with a new, empty profile."""
    api = pytest.importorskip("playwright.sync_api", reason="the browser's tests need playwright")
    program = find_chromium()
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        yield browser
        browser.close()


class Visit:
    """A page that was opened and has drawn all its charts, with all it said and asked for."""

    def __init__(self, browser: Any, file: Path, width: int = 1200, scheme: str = "light") -> None:
        self.page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.set_default_timeout(PATIENCE)
        self.page.on("console", lambda m: self.said.append(f"{m.type}: {m.text}"))
        self.page.on("pageerror", lambda e: self.said.append(f"error: {e}"))
        self.page.on("dialog", self._dismiss)
        self.page.on("request", lambda r: self.asked.append(r.url))
        self.page.goto(file.as_uri())
        self.drawn()

    def _dismiss(self, dialog: Any) -> None:
        self.said.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def drawn(self) -> None:
        self.page.wait_for_selector("html[data-ready]")

    def read(self, script: str) -> Any:
        return self.page.evaluate(script)

    def close(self) -> None:
        self.page.close()
