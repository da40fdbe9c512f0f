"""The data files that ship with relay: `patterns/` and `config/` of the repository.

Inside a wheel they are `relay/_data/patterns` and `relay/_data/config`; in an editable install they are
read where they stand, beside the package.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parent


def directory(name: str) -> Path:
    """The directory `name` ("patterns" or "config") of the shipped data."""
    shipped = _PACKAGE / "_data" / name
    return shipped if shipped.is_dir() else _PACKAGE.parent / name
