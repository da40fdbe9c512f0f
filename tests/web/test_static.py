"""What a browser gets: small, complete, without HTML from strings, and nothing from elsewhere."""

from __future__ import annotations

import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

STATIC = Path(__file__).parents[2] / "relay" / "web" / "static"
VENDOR = STATIC / "vendor"
OWN = sorted(path for path in STATIC.rglob("*") if path.is_file() and VENDOR not in path.parents)
SCRIPTS = [path for path in OWN if path.suffix == ".js"]

MOST = 700_000
"""Bytes of all that a browser may load."""

PARSES = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|setHTML|document\.write|DOMParser|createContextualFragment|srcdoc"
    r"|\beval\b|new Function|javascript:"
)
"""Ways to make elements or code of a string."""


def test_the_pages_are_small() -> None:
    assert sum(path.stat().st_size for path in STATIC.rglob("*") if path.is_file()) <= MOST


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_no_script_parses_what_an_agent_says(script: Path) -> None:
    assert not PARSES.findall(script.read_text("utf-8"))


def test_everything_is_from_this_server() -> None:
    for path in OWN:
        addresses = re.findall(r"\b(?:https?|wss?)://[^\s\"'`)]*", path.read_text("utf-8"))
        assert {*addresses} <= {"http://www.w3.org/2000/svg"}, path.name


def test_every_imported_module_is_there() -> None:
    for script in SCRIPTS:
        for name in re.findall(r'(?:from|import) ?\(?"([^"]+)"', script.read_text("utf-8")):
            assert (script.parent / name).is_file(), (script.name, name)


class _Inline(HTMLParser):
    """Collects what a policy without 'unsafe-inline' refuses."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.files: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.found += [name for name in attributes if name.startswith("on") or name == "style"]
        if tag == "style" or (tag == "script" and "src" not in attributes):
            self.found.append(tag)
        file = attributes.get("src") or attributes.get("href") or ""
        if file and not file.startswith("#"):
            self.files.append(file)


def test_the_document_has_no_inline_script_or_style() -> None:
    parser = _Inline()
    parser.feed((STATIC / "index.html").read_text("utf-8"))
    assert parser.found == []
    assert {"main.js", "style.css", "icon.svg"} <= {*parser.files}
    for file in parser.files:
        assert (STATIC / file).is_file(), file


def test_files_of_others_are_unchanged_and_have_their_licences() -> None:
    listed = dict(
        re.findall(r"^\| `([^`]+)` \|.*\| `([0-9a-f]{64})` \|$", (VENDOR / "README.md").read_text(), re.M)
    )
    files = {
        str(path.relative_to(VENDOR)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in VENDOR.rglob("*")
        if path.is_file() and path.name != "README.md"
    }
    assert files == listed
    assert "Permission is hereby granted" in (VENDOR / "xterm" / "LICENSE").read_text()
