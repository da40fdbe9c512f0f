"""The events for handlers, each with its fields and its docstring, for the site and the man page."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from relay.hooks.events import EVENTS


def rows() -> Iterator[tuple[str, list[str], str]]:
    """Yield name, fields and meaning of each event."""
    for name, event in EVENTS.items():
        yield name, [*event.field_names()], " ".join((inspect.getdoc(event) or "").split())


def table() -> str:
    """Return the table in Markdown."""
    lines = []
    for name, fields, meaning in rows():
        columns = ", ".join(f"`{field}`" for field in fields)
        lines.append(f"| `{name}` | {f'{columns} ' if columns else ''}| {meaning} |")
    return "\n".join(["| event | fields | |", "|---|---|---|", *lines])
