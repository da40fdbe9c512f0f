"""The documentation is complete and accurate: commands, settings, links, names.

tests/hooks/test_hooks_documented.py compares the context and the answers of handlers.
"""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from docsite import settings_table
from relay.cli.main import COMMANDS, overview
from relay.settings import Settings
from support import Relay

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").glob("*.md")])
SOURCES = sorted((ROOT / "relay").rglob("*.py"))
_TABLE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("## Words")[1]
WORDS = re.findall(r"^\| (`.+`) \|", _TABLE, re.MULTILINE)
TRANSLATED = re.compile(
    "|".join(
        r"\b" + r"\s+".join(map(re.escape, phrase.split())) + (r"\b" if phrase[-1].isalnum() else "")
        for cell in WORDS
        for phrase in re.findall(r"`([^`]+)`", cell)
    ),
    re.IGNORECASE,
)
"""Phrases that read as translated; CONTRIBUTING.md lists them with their replacements."""
NAMESPACES = sorted({path.stem for path in (ROOT / "relay" / "builtin").glob("*.py")} - {"__init__"})


def page(name: str) -> str:
    path = ROOT / name
    return path.read_text(encoding="utf-8") if path.exists() else ""


def rows(text: str) -> list[str]:
    """Return the table rows in `text`."""
    return [line for line in text.splitlines() if line.startswith("|")]


def test_each_command_is_in_the_help_and_the_table_of_commands(subtests: pytest.Subtests) -> None:
    help, table = overview(), rows(page("docs/COMMANDS.md"))
    for command in COMMANDS:
        with subtests.test(command):
            assert re.search(rf"^  {command}\b +\w", help, re.MULTILINE)
            assert any(f"`relay {command}" in row for row in table)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help(command: str, relay: Relay) -> None:
    help = relay(command, "--help").stdout
    assert help.startswith(f"usage: relay {command}")
    assert len(help.splitlines()) > 4


def test_each_command_named_on_a_page_exists(subtests: pytest.Subtests) -> None:
    for path in PAGES:
        with subtests.test(path.relative_to(ROOT).as_posix()):
            text = path.read_text(encoding="utf-8")
            blocks = re.findall(r"^ *```.*?^ *```", text, re.MULTILINE | re.DOTALL)
            named = set(re.findall(r"(?:`|\$ )relay ([a-z]+)\b", text))
            named |= set(re.findall(r"^ *relay ([a-z]+)\b", "\n".join(blocks), re.MULTILINE))
            assert named <= {*COMMANDS, "help"}


def test_each_link_to_a_file_works(subtests: pytest.Subtests) -> None:
    for path in PAGES:
        with subtests.test(path.relative_to(ROOT).as_posix()):
            for target in re.findall(r"\]\(([^)#\s]+)", path.read_text(encoding="utf-8")):
                assert "://" in target or (path.parent / target).exists(), target


def test_each_link_to_a_heading_works(subtests: pytest.Subtests) -> None:
    for path in PAGES:
        with subtests.test(path.relative_to(ROOT).as_posix()):
            for target, anchor in re.findall(
                r"\]\(([^)#\s:]*)#([^)\s]+)\)", path.read_text(encoding="utf-8")
            ):
                linked = (path.parent / target) if target else path
                if linked.suffix == ".md":
                    assert anchor in headings(linked.read_text(encoding="utf-8")), f"{target}#{anchor}"


def headings(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and the site generate them."""
    prose = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.+?) *$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_each_link_to_another_site_is_a_valid_url(subtests: pytest.Subtests) -> None:
    """Only the form is checked: the tests work offline."""
    for path in PAGES:
        with subtests.test(path.relative_to(ROOT).as_posix()):
            for target in re.findall(r"\]\((\w+:[^)\s]*)\)", path.read_text(encoding="utf-8")):
                parts = urlsplit(target)
                assert parts.scheme in {"https", "http"} and re.fullmatch(
                    r"([\w-]+\.)+\w+(:\d+)?", parts.netloc
                ), target


def test_each_page_is_in_the_contents_of_the_site() -> None:
    listed = re.findall(r"^([A-Z]+)$", page("docs/index.md"), re.MULTILINE)
    assert sorted(listed) == sorted(
        path.stem for path in (ROOT / "docs").glob("*.md") if path.stem != "index"
    )


def test_each_setting_is_documented_with_its_default(subtests: pytest.Subtests) -> None:
    """The commented file to copy has each, too."""
    copied = page("config/relay.toml")
    table = settings_table.table()
    for setting in fields(Settings):
        with subtests.test(setting.name):
            (row, *_) = [row for row in rows(table) if row.startswith(f"| `{setting.name}` |")]
            assert re.search(rf"^{setting.name} = ", copied, re.MULTILINE)
            default = setting.default
            shown = list(default) if isinstance(default, tuple) else default  # TOML has no tuples
            columns = [cell.strip().strip("`") for cell in row.split("|")[1:-1]]
            assert columns[1] == (
                "(empty)" if shown == "" else f"{default:.6g}" if isinstance(default, float) else str(shown)
            )
            limits = setting.metadata
            assert columns[2] == (str(int(limits["most"])) if limits["most"] else "")
            assert columns[3] == ("never" if limits["own"] else "yes" if limits["project"] else "no")
            for choice in limits["choices"] if len(limits["choices"]) < 5 else ():
                assert f"`{choice}`" in row, choice


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


def test_the_readme_is_short() -> None:
    """Details have their own pages."""
    assert len(page("README.md").split()) <= 900


def test_no_translated_phrase_is_used(subtests: pytest.Subtests) -> None:
    for path in [*PAGES, *SOURCES, ROOT / "config" / "lesson.md"]:
        with subtests.test(path.relative_to(ROOT).as_posix()):
            text = path.read_text(encoding="utf-8")
            if path.name == "CONTRIBUTING.md":  # its table names them
                text = text.split("## Words")[0]
            assert TRANSLATED.findall(text) == []
