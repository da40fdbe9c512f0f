"""Fixtures: Chromium, a server of `relay web`, and its pages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from support import Relay
from web.browser.pages import Pages, Server

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="module")  # meanwhile a loop runs in this thread, so other tests could run none
def browser() -> Iterator[Any]:
    """Yield a headless Chromium: the one that CHROMIUM names, or the first in PATH."""
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip(
            "CHROMIUM IS NOT INSTALLED: `relay web`'s pages were not tested. Install it, or set CHROMIUM."
        )
    from playwright.sync_api import sync_playwright

    sandbox = [] if os.geteuid() else ["--no-sandbox"]  # Chromium as root has no sandbox
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=sandbox)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def server(browser: Any, shared: Relay) -> Iterator[Server]:
    """Yield a server for the tests of a module, in the home that they share."""
    server = Server(shared)
    yield server
    server.close()


@pytest.fixture(scope="module")
def _pages(browser: Any, server: Server) -> Iterator[Pages]:
    pages = Pages(browser, server)
    yield pages
    pages.close()


@pytest.fixture
def pages(_pages: Pages) -> Iterator[Pages]:
    """Yield the pages of the module's server. Errors in them and requests to elsewhere fail the test."""
    yield _pages
    _pages.finish()
