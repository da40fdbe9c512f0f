from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hooks.house import House


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path)
    yield house
    house.store.close()
