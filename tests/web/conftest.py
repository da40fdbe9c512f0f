"""One server for each module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support import Relay
from web.running import WebServer, serving


@pytest.fixture(scope="module")
def web(shared: Relay) -> Iterator[WebServer]:
    """Yield a `relay web` to which the user has logged in."""
    with serving(shared) as server:
        yield server
