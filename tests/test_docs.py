"""The documentation is complete: what exists is documented, and what is documented exists.

Events, the context and the answers of handlers are compared in tests/hooks/test_hooks_documented.py.
"""

from __future__ import annotations

import re
from dataclasses import Field, fields
from pathlib import Path
from typing import Any

import pytest

from relay.cli.main import COMMANDS, overview
from relay.settings import Settings
from support import Relay

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").glob("*.md")])
SOURCES = sorted((ROOT / "relay").rglob("*.py"))
TRANSLATED = re.compile(
    r"Nothing is to be mended|Lend your terminal|Hear no longer|is the mend that is left"
    r"|in one that draws it rings|Two that do the same work|without them it would be another"
    r"|is no time\b(?! zone)|is none of its options|a text stands in|\bthe person\b",
    re.IGNORECASE,
)
"""Phrases that were translated from another language; CONTRIBUTING.md has what to write instead."""
NAMESPACES = sorted({path.stem for path in (ROOT / "relay" / "builtin").glob("*.py")} - {"__init__"})


def page(name: str) -> str:
    path = ROOT / name
    return path.read_text(encoding="utf-8") if path.exists() else ""


def rows(text: str) -> list[str]:
    """The rows of the tables in `text`."""
    return [line for line in text.splitlines() if line.startswith("|")]


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_is_in_the_help_and_in_the_table_of_commands(command: str) -> None:
    assert re.search(rf"^  {command}\b +\w", overview(), re.MULTILINE)
    assert any(f"`relay {command}" in row for row in rows(page("docs/COMMANDS.md")))


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_explains_itself(command: str, relay: Relay) -> None:
    help = relay(command, "--help").stdout
    assert help.startswith(f"usage: relay {command}")
    assert len(help.splitlines()) > 4


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_each_command_that_a_page_names_exists(path: Path) -> None:
    named = set(re.findall(r"(?:^|`|\$ )relay ([a-z]+)\b", path.read_text(encoding="utf-8"), re.MULTILINE))
    assert named <= {*COMMANDS, "help"}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_each_link_to_a_file_leads_there(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", path.read_text(encoding="utf-8")):
        assert "://" in target or (path.parent / target).exists(), target


@pytest.mark.parametrize("setting", fields(Settings), ids=lambda field: field.name)
def test_each_setting_is_documented_with_its_default(setting: Field[Any]) -> None:
    (row, *_) = [row for row in rows(page("docs/CONFIG.md")) if f"`{setting.name}`" in row] or [""]
    assert row, f"docs/CONFIG.md has no table row for `{setting.name}`"
    default = setting.default
    shown = list(default) if isinstance(default, tuple) else default  # TOML has no tuples
    assert (f"{default:g}" if isinstance(default, float) else str(shown)) in row


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_each_namespace_is_documented(namespace: str) -> None:
    assert f"@{namespace}:" in page("README.md")
    assert f"@{namespace}:" in page("docs/HOOKS.md")


def test_each_environment_variable_is_documented() -> None:
    used = {name for path in SOURCES for name in re.findall(r"\bRELAY_[A-Z_]+\b", path.read_text())}
    assert "RELAY_HOME" in used
    for name in sorted(used):
        assert f"`{name}`" in page("docs/CONFIG.md"), name


def test_each_example_is_listed() -> None:
    listed = page("examples/README.md")
    for path in (ROOT / "examples").iterdir():
        if path.name not in {"README.md", "__pycache__"}:
            assert f"`{path.name}{'/' if path.is_dir() else ''}`" in listed, path.name


def test_the_readme_is_an_introduction() -> None:
    """Tables of states, figures, commands and caveats are pages of their own."""
    assert len(page("README.md").split()) <= 900


@pytest.mark.parametrize(
    "path", [*PAGES, *SOURCES, ROOT / "config" / "lesson.md"], ids=lambda path: str(path.relative_to(ROOT))
)
def test_no_phrase_that_reads_as_translated_comes_back(path: Path) -> None:
    if path.name != "CONTRIBUTING.md":  # it names some of them
        assert TRANSLATED.findall(path.read_text(encoding="utf-8")) == []
