"""Fixtures for tests of the built-in namespaces."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hooks.rig import Rig


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    yield rig
    rig.store.close()
