"""The table of settings, for docs/CONFIG.md: each with its default, its limits and its help."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from relay.settings import Settings


def table() -> str:
    """Return the table in Markdown."""
    rows = []
    for setting in fields(Settings):
        limits = setting.metadata
        most = f" {int(limits['most'])}" if limits["most"] else ""
        project = "never" if limits["own"] else "yes" if limits["project"] else "no"
        shown = _default(setting.default)
        rows.append(f"| `{setting.name}` | {shown} |{most} | {project} | {limits['help']} |")
    heading = "| setting | default | at most | untrusted project | |"
    return "\n".join([heading, "|---|---|---|---|---|", *rows])


def _default(value: Any) -> str:
    if isinstance(value, tuple):
        return f"`{[*value]}`"  # TOML has no tuples
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value) if isinstance(value, int) else f"`{value}`" if value else "(empty)"
