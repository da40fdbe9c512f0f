"""The table of events, for docs/HOOKS.md: each with its fields, and its docstring as the meaning."""

from __future__ import annotations

import inspect

from relay.hooks.events import EVENTS


def table() -> str:
    """Return the table in Markdown."""
    rows = []
    for name, event in EVENTS.items():
        columns = ", ".join(f"`{field}`" for field in event.field_names())
        meaning = " ".join((inspect.getdoc(event) or "").split())
        rows.append(f"| `{name}` | {f'{columns} ' if columns else ''}| {meaning} |")
    return "\n".join(["| event | fields | |", "|---|---|---|", *rows])
