"""What a Textual app shows, as rows of text."""

from __future__ import annotations

from typing import Any

from textual.app import App


def rows(app: App[Any]) -> list[str]:
    """Return the rows of the topmost screen without trailing blanks."""
    strips = app.screen._compositor.render_strips()  # App.export_screenshot only returns SVG
    return [strip.text.rstrip() for strip in strips]
