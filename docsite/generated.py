"""What is generated in the pages of docs/, by name.

A page has a marker where a text belongs, which the site build replaces (docsite.extension):

    <!-- generated: NAME -->

The man page (docsite.man_page) has the same, for those who read without the site.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from docsite import events, fleet_keys, json_keys, manual, settings_table

PAGES = Path(__file__).parent.parent / "docs"

GENERATED: dict[str, Callable[[], str]] = {
    "commands": manual.commands,
    "exit codes": manual.exit_codes,
    "events": events.table,
    "json": json_keys.page,
    "settings": settings_table.table,
    **{f"keys of {title}": partial(fleet_keys.table, title) for title in fleet_keys.TABLES},
}

_MARKER = re.compile(r"^<!-- generated: ([^\n]+) -->$", re.MULTILINE)


def names(text: str) -> list[str]:
    """Return the names of what is generated in a page."""
    return _MARKER.findall(text)


def filled_in(text: str) -> str:
    """Return a page with a text for each marker. Raise KeyError for an unknown one."""
    return _MARKER.sub(lambda match: GENERATED[match[1]](), text)
