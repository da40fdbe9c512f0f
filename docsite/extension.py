"""A Sphinx extension: fills in what is generated, and refuses what would need a network to be read.

A page has markers where generated texts belong (docsite.generated). A link to a file of the repository that
is not a page becomes a link to its source, or plain text if the project has no public address. A link that is
named by its file, as `[FLEET.md](FLEET.md)`, gets the title of what it leads to.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tomli
from sphinx.application import Sphinx
from sphinx.util import logging

from docsite.page import filled_in, loads_from_elsewhere

ROOT = Path(__file__).parent.parent

_log = logging.getLogger(__name__)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("source-read", _fill_in)
    app.connect("build-finished", _check_that_nothing_is_loaded)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _fill_in(app: Sphinx, name: str, content: list[str]) -> None:
    content[0] = filled_in(content[0], _source())


def _source() -> str | None:
    project = tomli.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    repository = project.get("urls", {}).get("Source")
    return f"{repository.rstrip('/')}/blob/main" if repository else None


def _check_that_nothing_is_loaded(app: Sphinx, failure: Exception | None) -> None:
    for path in Path(app.outdir).rglob("*") if failure is None else ():
        if path.suffix in {".html", ".css"}:
            for found in loads_from_elsewhere(path.read_text(encoding="utf-8")):
                _log.warning("%s is loaded from another host: %s", path.name, found)
