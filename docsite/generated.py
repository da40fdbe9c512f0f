"""What is generated in the pages of docs/, by name.

A page has a marker where a text belongs:

    <!-- generated: NAME -->

The site build replaces it (docsite.extension). With a second marker, the text is in the file itself, so that
it can be read without the site; `make man` rewrites it, and a test fails if it is stale:

    <!-- generated: NAME -->
    ...
    <!-- end -->
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from docsite import events, json_keys, manual, settings_table

PAGES = Path(__file__).parent.parent / "docs"

GENERATED: dict[str, Callable[[], str]] = {
    "commands": manual.commands,
    "exit codes": manual.exit_codes,
    "events": events.table,
    "json": json_keys.page,
    "settings": settings_table.table,
}

_MARKER = re.compile(
    r"^<!-- generated: (?P<name>[^\n]+) -->$(?P<kept>(?:(?!^<!-- ).)*^<!-- end -->$)?",
    re.MULTILINE | re.DOTALL,
)


def names(text: str) -> list[str]:
    """Return the names of what is generated in a page."""
    return [match["name"] for match in _MARKER.finditer(text)]


def filled_in(text: str) -> str:
    """Return a page with a text for each single marker. Raise KeyError for an unknown one."""
    return _MARKER.sub(lambda match: match[0] if match["kept"] else GENERATED[match["name"]](), text)


def rewritten(text: str) -> str:
    """Return a page with new text between each pair of markers. Raise KeyError for an unknown name."""

    def block(match: re.Match[str]) -> str:
        if not match["kept"]:
            return match[0]
        return f"<!-- generated: {match['name']} -->\n\n{GENERATED[match['name']]()}\n\n<!-- end -->"

    return _MARKER.sub(block, text)


def rewrite_pages() -> None:
    """Rewrite the pages in which a text is stale."""
    for path in PAGES.glob("*.md"):
        text = path.read_text(encoding="utf-8")
        if (new := rewritten(text)) != text:
            path.write_text(new, encoding="utf-8")
