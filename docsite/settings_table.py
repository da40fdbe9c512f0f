"""The settings, each with its default, its limits and its help, for the site and the man page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from relay.settings import Settings


@dataclass(frozen=True, slots=True)
class Row:
    """A setting. untrusted: whether an untrusted project may set it: yes, no, or never any project."""

    name: str
    default: str
    most: str
    untrusted: str
    help: str


def rows() -> Iterator[Row]:
    """Yield all settings, in their order; a default as Markdown."""
    for setting in fields(Settings):
        limits = setting.metadata
        yield Row(
            setting.name,
            _default(setting.default),
            str(int(limits["most"])) if limits["most"] else "",
            "never" if limits["own"] else "yes" if limits["project"] else "no",
            limits["help"],
        )


def table() -> str:
    """Return the table in Markdown."""
    lines = (
        f"| {' | '.join((f'`{row.name}`', row.default, row.most, row.untrusted, row.help))} |"
        for row in rows()
    )
    heading = "| setting | default | at most | untrusted project | |"
    return "\n".join([heading, "|---|---|---|---|---|", *lines])


def _default(value: Any) -> str:
    if isinstance(value, tuple):
        return f"`{[*value]}`"  # TOML has no tuples
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value) if isinstance(value, int) else f"`{value}`" if value else "(empty)"
