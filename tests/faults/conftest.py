"""One parent of all commands."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from faults.nursery import Nursery


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    made = Nursery()
    yield made
    made.close()
