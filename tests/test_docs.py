"""The documentation is complete: what exists is documented, and what is documented exists."""

from __future__ import annotations

import inspect
import re
from dataclasses import Field, fields
from pathlib import Path
from typing import Any

import pytest

from relay.cli.main import commands, overview
from relay.hooks.config import MemoryConfig
from relay.hooks.context import Context
from relay.hooks.events import EVENTS, Event
from relay.hooks.result import HookResult
from relay.settings import Settings
from support import Relay

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").glob("*.md")])
SOURCES = sorted((ROOT / "relay").rglob("*.py"))
NAMESPACES = sorted({path.stem for path in (ROOT / "relay" / "namespaces").glob("*.py")} - {"__init__"})


def page(name: str) -> str:
    path = ROOT / name
    return path.read_text(encoding="utf-8") if path.exists() else ""


def rows(text: str) -> list[str]:
    """The rows of the tables in `text`."""
    return [line for line in text.splitlines() if line.startswith("|")]


@pytest.mark.parametrize("command", commands())
def test_each_command_is_in_the_help_and_in_the_readmes_table(command: str) -> None:
    assert re.search(rf"^  {command}\b +\w", overview(), re.MULTILINE)
    assert any(f"`relay {command}" in row for row in rows(page("README.md")))


@pytest.mark.parametrize("command", commands())
def test_each_command_explains_itself(command: str, relay: Relay) -> None:
    help = relay(command, "--help").stdout
    assert help.startswith(f"usage: relay {command}")
    assert len(help.splitlines()) > 4


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_each_command_that_a_page_names_exists(path: Path) -> None:
    named = set(re.findall(r"(?:^|`|\$ )relay ([a-z]+)\b", path.read_text(encoding="utf-8"), re.MULTILINE))
    assert named <= {*commands(), "help"}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_each_link_to_a_file_leads_there(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", path.read_text(encoding="utf-8")):
        assert "://" in target or (path.parent / target).exists(), target


@pytest.mark.parametrize("event", EVENTS.values(), ids=list(EVENTS))
def test_each_event_is_documented_with_its_fields(event: type[Event]) -> None:
    (row, *_) = [row for row in rows(page("docs/HOOKS.md")) if f"`{event.name}`" in row] or [""]
    assert row, f"docs/HOOKS.md has no table row for `{event.name}`"
    for field in fields(event):
        assert f"`{field.name}`" in row


@pytest.mark.parametrize("field", fields(HookResult), ids=lambda field: field.name)
def test_each_field_of_a_handlers_answer_is_documented(field: Field[Any]) -> None:
    assert f"`{field.name}`" in page("docs/HOOKS.md")


def test_each_part_of_the_context_is_documented() -> None:
    given = set(inspect.signature(Context.__init__).parameters) - {"self", "services"}
    methods = {name for name in dir(Context) if not name.startswith("_")} - {"for_handler"}
    for name in sorted({*given, *methods, "relay"}):
        assert re.search(rf"`(ctx\.)?{name}\b", page("docs/HOOKS.md")), name


@pytest.mark.parametrize("setting", fields(Settings), ids=lambda field: field.name)
def test_each_setting_is_documented_with_its_default(setting: Field[Any]) -> None:
    (row, *_) = [row for row in rows(page("docs/CONFIG.md")) if f"`{setting.name}`" in row] or [""]
    assert row, f"docs/CONFIG.md has no table row for `{setting.name}`"
    assert (f"{setting.default:g}" if isinstance(setting.default, float) else str(setting.default)) in row


@pytest.mark.parametrize("setting", fields(MemoryConfig), ids=lambda field: field.name)
def test_each_setting_of_memory_is_documented(setting: Field[Any]) -> None:
    assert f"`{setting.name}`" in page("docs/CONFIG.md") + page("docs/HOOKS.md")


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
