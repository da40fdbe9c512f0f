"""The data files that ship with relay: `patterns/`, `config/` and `examples/` of the repository.

A wheel has them in `relay/_data`; an editable install reads them next to the package.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parent


def directory(name: str) -> Path:
    """Return the directory `name` of the shipped data: "patterns", "config" or "examples"."""
    shipped = _PACKAGE / "_data" / name
    return shipped if shipped.is_dir() else _PACKAGE.parent / name
