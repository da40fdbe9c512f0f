"""A page of docs/ as the site shows it, and what a page must not load."""

from __future__ import annotations

import os.path
import re

from docsite import generated

_LINK_OUTSIDE = re.compile(r"\[([^\[\]]+)\]\(\.\./([^)#\s]+)(#[^)\s]*)?\)")
_NAMED_BY_FILE = re.compile(r"\[[A-Z]+\.md\](?=\([A-Z]+\.md)")
_LOADED = re.compile(
    r"<(?:script|img|iframe|source|video|audio)\b[^>]*\bsrc=[\"'](?:https?:)?//"
    r"|<link\b[^>]*\brel=[\"'](?:stylesheet|preload|icon|preconnect)[\"'][^>]*\bhref=[\"'](?:https?:)?//"
    r"|@import\s+(?:url\()?[\"']?(?:https?:)?//"
    r"|url\([\"']?(?:https?:)?//",
)
"""What a browser would load from another host."""


def filled_in(text: str, source: str | None = None) -> str:
    """Return the text of a page with what is generated, and with links that a site can have.

    source: the address of the repository's files, if there is one. Raise KeyError for an unknown marker.
    """

    def link(match: re.Match[str]) -> str:
        words, path, anchor = match.groups(default="")
        if source:
            return f"[{words}]({source}/{path}{anchor})"
        name = os.path.normpath(path)
        return words if name in words else f"{words} (`{name}`)"

    return generated.filled_in(_NAMED_BY_FILE.sub("[]", _LINK_OUTSIDE.sub(link, text)))


def loads_from_elsewhere(text: str) -> list[str]:
    """Return what makes a browser load something from another host, in a file of HTML or CSS."""
    return _LOADED.findall(text)
