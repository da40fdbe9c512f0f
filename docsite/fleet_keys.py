"""The keys of a fleet file, each with its kind of value, its default and its help, from their schema."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from relay.supervision import agent_tables, schema
from relay.values import TableKey

TABLES: dict[str, Mapping[str, TableKey]] = {
    "[fleet]": schema.FLEET_KEYS,
    "[agents.NAME]": schema.AGENT_KEYS,
    "worktree": agent_tables.WORKTREE_KEYS,
    "schedule": agent_tables.SCHEDULE_KEYS,
    "actions": agent_tables.ACTION_KEYS,
}


def rows(title: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield name, kind of value, default and help of the keys of a table."""
    for name, key in TABLES[title].items():
        value = re.sub(r"^(an? |the )?(number of )?", "", key.kind.form).removesuffix(", 0 or more")
        yield name, value, key.default, key.help


def table(title: str) -> str:
    """Return the keys of a table in Markdown."""
    lines = (
        f"| `{name}` | {value} | {f'`{default}`' if default else ''} | {help} |"
        for name, value, default, help in rows(title)
    )
    return "\n".join(["| key | value | default | |", "|---|---|---|---|", *lines])
